"""Where a server is: URLs as people write them, taken apart.

    redis://user:password@host:6379/0                    one server; rediss://… over TLS
    unix:///path/to/socket?db=0                          one on this machine
    redis+sentinel://user:password@host,host:26379/name/0    the primary that sentinels know by a name
    redis+cluster://user:password@host:7000,host:7001    a cluster, found through any of its nodes

``rediss+sentinel`` and ``rediss+cluster`` are the last two over TLS. In a user or a password ``@``, ``:``, ``/`` and
``?`` are percent-encoded. No message of this module repeats what it was given, for the password's sake.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, unquote_plus

Kind = Literal["single", "sentinel", "cluster"]

SCHEMES: dict[str, Kind] = {
    "redis": "single",
    "rediss": "single",
    "unix": "single",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
}
"""The schemes that are understood."""

_PORTS: dict[Kind, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}


def _bool(text: str) -> bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]


CLIENT: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("client_name", "username", "password", "sentinel_username", "sentinel_password"), str),
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password"), str),
    **dict.fromkeys(("ssl_cert_reqs", "ssl_ciphers"), str),
    **dict.fromkeys(("ssl_check_hostname", "socket_keepalive"), _bool),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), float),
    **dict.fromkeys(("db", "health_check_interval", "protocol"), int),
}
"""The options that may follow in the query, and how they are read: arguments of redis-py's connections."""


@dataclass(frozen=True)
class Address:
    """A URL taken apart.

    Attributes:
        kind: What there is at the place.
        shown: The URL as it may be shown: without user, password and options.
        hosts: The hosts with their ports; none for a socket.
        path: The socket's path, or None.
        master: The name that sentinels know the server by.
        tls: Whether connections go through TLS.
        options: User, password, database and the like, as arguments of redis-py's connections.
    """

    kind: Kind
    shown: str
    hosts: tuple[tuple[str, int], ...] = ()
    path: str | None = None
    master: str = ""
    tls: bool = False
    options: dict[str, Any] = field(default_factory=dict, repr=False)


def parse(url: str, db: int = 0) -> Address:
    """Take a URL apart.

    Args:
        url: The URL.
        db: The number of the database, unless the URL has one.

    Raises:
        ValueError: It is none of a Redis server.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, got {type(url).__name__}")
    match = re.fullmatch(r"([A-Za-z]+(?:\+[A-Za-z]+)?)://([^/?]*)([^?]*)(?:\?(.*))?", url, re.S)
    scheme = match[1].lower() if match else ""
    if match is None or scheme not in SCHEMES:
        raise ValueError(
            "not a URL like redis://user:password@host:6379/0; the known schemes are " + ", ".join(SCHEMES)
        )
    kind = SCHEMES[scheme]
    login, at, place = match[2].rpartition("@")
    if "@" in login or (scheme != "unix" and "@" in match[3]):
        raise ValueError("more than one '@' before the '?' of a URL; an '@' in a user or a password is written %40")
    options = _options(match[4] or "")
    for needed, found in {"ssl_": scheme.startswith("rediss"), "sentinel_": kind == "sentinel"}.items():
        misplaced = [name for name in options if name.startswith(needed) and not found]
        if misplaced:
            raise ValueError(f"{misplaced[0]} is no option of {scheme}://")
    user, colon, password = login.partition(":")
    if at:
        options.update({"username": unquote(user)} if user else {})
        options.update({"password": unquote(password)} if colon else {})
    if scheme == "unix":
        if place or not match[3]:
            raise ValueError("a socket is written unix:///path/to/socket?db=0")
        return Address(kind, f"unix://{match[3]}", path=unquote(match[3]), options=_with_db(options, [], db))
    parts = [unquote(part) for part in match[3].rstrip("/").split("/")[1:]]
    if kind == "sentinel" and not parts:
        raise ValueError(f"{scheme}://host:26379,host:26379/name: after the hosts comes the name of the primary")
    master = parts.pop(0) if kind == "sentinel" else ""
    options = _with_db(options, parts, db)
    if kind == "cluster" and options.get("db"):
        raise ValueError("a cluster has one database only, number 0")
    hosts = _hosts(place, _PORTS[kind])
    if kind == "single" and len(hosts) > 1:
        raise ValueError("several hosts are written redis+sentinel://… or redis+cluster://…")
    shown = ",".join([f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts])
    shown = f"{scheme}://{shown}" + (f"/{master}" if master else "") + (f"/{options['db']}" if "db" in options else "")
    return Address(kind, shown, hosts, None, master, scheme.startswith("rediss"), options)


def _with_db(options: dict[str, Any], path: list[str], db: int) -> dict[str, Any]:
    """The options with the number of the database, which may be named in three places, but differently in none."""
    if len(path) > 1 or not all([re.fullmatch("[0-9]{1,9}", part) for part in path]):
        raise ValueError("the path of a Redis URL ends with the number of a database, as in redis://host:6379/0")
    named = {*map(int, path), *([options["db"]] if "db" in options else [])}
    if len(named) > 1:
        raise ValueError("the URL names two different databases")
    if db and named - {db}:
        raise ValueError(f"db={db}, but the URL names database {named.pop()}")
    return {**options, "db": db or named.pop()} if db or named else options


def _hosts(text: str, port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for one in text.split(","):
        match = re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]]*)(?::([0-9]{1,5}))?", one)
        if match is None:
            raise ValueError("hosts are written host:port, several with commas between them")
        found.append((match[1].strip("[]") or "localhost", int(match[2] or port)))
    return tuple(found)


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in CLIENT:
            raise ValueError(
                "after the '?' of a Redis URL stand options of redis-py's connections, of which are known:"
                f" {', '.join(CLIENT)}. A '?' in a password is written %3F"
            )
        try:
            found[name] = CLIENT[name](unquote_plus(value))
        except (ValueError, KeyError):
            raise ValueError(f"the option {name!r} in the URL has a value that cannot be read") from None
    return found
