"""Where a server is: URLs as people write them, taken apart.

redis://user:password@host:6379/0, rediss://… (TLS), unix:///path/socket?db=0     one server
redis+sentinel://host:26379,host:26379/master/0                                    found through sentinels
redis+cluster://host:7000,host:7001                                                a cluster
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
"""The schemes that are understood."""

_PORTS = {"sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True)
class Address:
    """A URL taken apart.

    Attributes:
        kind: ``"single"``, ``"sentinel"`` or ``"cluster"``.
        shown: The URL as it may be shown: without user, password and options.
        url: What redis-py reads user, password, database and options from; for a single server its place, too.
        hosts: The hosts with their ports, unless it is a single server.
        master: The name that the sentinels know the server by.
        tls: Whether connections go through TLS, unless it is a single server.
    """

    kind: str
    shown: str
    url: str = field(repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    master: str = ""
    tls: bool = False


def parse(url: str) -> Address:
    """Take a URL apart.

    Raises:
        ValueError: It is none of a Redis server. The message does not repeat it, for the password's sake.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, got {type(url).__name__}")
    match = re.fullmatch(r"([a-z]+(?:\+[a-z]+)?)://([^/?]*)([^?]*)(\?.*)?", url, re.S)
    if match is None or match[1] not in SCHEMES:
        raise ValueError(f"not a URL like redis://user:password@host:6379/0; its scheme is one of {', '.join(SCHEMES)}")
    scheme, place, path = match[1], match[2], match[3]
    login, at, hosts = place.rpartition("@")
    shown = f"{scheme}://{hosts}{path}"
    base, _, kind = scheme.partition("+")
    if not kind:
        return Address("single", shown, url)
    parts = [part for part in path.split("/")[1:] if part]
    master = ""
    if kind == "sentinel":
        if not parts:
            raise ValueError(f"{scheme}://host:26379,host:26379/name: after the hosts comes the name of the master")
        master = unquote(parts.pop(0))
    if len(parts) > 1 or not all(part.isdecimal() for part in parts):
        raise ValueError("the last part of the path is the number of a database")
    options = f"redis://{login}{at}host/{parts[0] if parts else ''}{match[4] or ''}"
    return Address(kind, shown, options, _hosts(hosts, _PORTS[kind]), master, base == "rediss")


def _hosts(text: str, port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for one in text.split(","):
        match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::([0-9]+))?", one)
        if match is None:
            raise ValueError("the hosts are written host:port,host:port")
        found.append((match[1].strip("[]"), int(match[2] or port)))
    return tuple(found)
