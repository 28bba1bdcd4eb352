"""Where the servers are: from names of hosts, or from one URL, taken apart without showing a password."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

DEFAULT_INDEX = "locus-checkpoints"
DEFAULT_PORT = 9200

SCHEMES = {"opensearch": False, "opensearchs": True}
"""Schemes of URLs, and whether they mean TLS."""

_INDEX = re.compile(r"[a-z0-9][a-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers are.

    Attributes:
        hosts: As opensearch-py takes them.
        index: The index's name.
        options: What else it takes: the user, TLS.
    """

    hosts: tuple[dict[str, Any], ...]
    index: str
    options: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        places = ",".join(f"{host['host']}:{host['port']}" for host in self.hosts)
        return f"{places}/{self.index}"


def check_index(name: str) -> str:
    """Return the name of an index.

    Raises:
        ValueError: No index can have it, or it would name several.
    """
    if not isinstance(name, str):
        raise TypeError(f"index_name must be a str, got {type(name).__name__}")
    if not _INDEX.fullmatch(name) or len(name) > 200:
        raise ValueError(
            f"index_name must be lower-case letters, digits, '-', '_', '+' and '.', at most 200 of them: {name[:64]!r}"
        )
    return name


def of_hosts(
    hosts: str | Sequence[str] | None,
    index: str,
    username: str | None,
    password: str | None,
    use_ssl: bool,
    verify_certs: bool,
    ca_certs: str | None,
) -> Address:
    """An address from the parameters of `OpenSearchBackend`."""
    names = ["localhost:9200"] if hosts is None else hosts.split(",") if isinstance(hosts, str) else list(hosts)
    if not names:
        raise ValueError("hosts is empty: name at least one host")
    if (username is None) != (password is None):
        raise ValueError("username and password belong together: give both or neither")
    options: dict[str, Any] = {}
    if username is not None:
        options["http_auth"] = (username, password)
    found = tuple(_host(name, use_ssl=use_ssl) for name in names)
    if any(host["use_ssl"] for host in found):
        options |= {"verify_certs": verify_certs, "ssl_show_warn": False}
        if ca_certs is not None:
            options["ca_certs"] = ca_certs
    return Address(found, check_index(index), options)


def _host(name: str, *, use_ssl: bool) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError(f"hosts must be names, got {type(name).__name__}")
    refusal = "a host is written host, host:port, http://host:port or https://host:port"
    text = name.strip()
    scheme, _, rest = text.rpartition("://")
    if scheme not in ("", "http", "https") or not rest:
        raise ValueError(refusal)
    try:
        parts = urlsplit(f"//{rest}")
        port = parts.port
    except ValueError:
        raise ValueError(refusal) from None
    if "@" in rest:
        raise ValueError("a host has no user: pass username and password")
    if not parts.hostname or parts.query or parts.fragment:
        raise ValueError(refusal)
    tls = use_ssl if not scheme else scheme == "https"
    host: dict[str, Any] = {"host": parts.hostname, "port": port or DEFAULT_PORT, "use_ssl": tls}
    if parts.path.strip("/"):
        host["url_prefix"] = parts.path.strip("/")
    return host


def of_url(
    url: str,
    index: str | None = None,
    username: str | None = None,
    password: str | None = None,
    use_ssl: bool | None = None,
    verify_certs: bool = True,
    ca_certs: str | None = None,
) -> Address:
    """An address from ``opensearch://user:password@host:port,host:port/index``, or ``opensearchs://…`` with TLS.

    Raises:
        ValueError: It is none. The message does not repeat the URL, for the password's sake.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ValueError("an address of OpenSearch is opensearch://host:9200/index, or opensearchs://… for TLS")
    if "?" in rest or "#" in rest:
        raise ValueError("options are arguments here, and no part of the dsn; a '?' in a password is written %3F")
    places, _, path = rest.partition("/")
    if places.count("@") > 1 or "@" in path:
        raise ValueError("more than one '@' in a URL; an '@' or a '/' in a user or a password is written %40 or %2F")
    user, at, names = places.rpartition("@")
    if at:
        if username is not None or password is not None:
            raise ValueError("the user is in the URL and in the arguments: give one of them")
        name, _, secret = user.partition(":")
        username, password = unquote(name), unquote(secret)
    if "/" in path.rstrip("/"):
        raise ValueError("an address of OpenSearch ends with the index: opensearch://host:9200/index")
    known = unquote(path.rstrip("/")) or None
    if known and index is not None and known != index:
        raise ValueError("the index is in the URL and in index_name: give one of them")
    with_tls = SCHEMES[scheme] if use_ssl is None else use_ssl
    if SCHEMES[scheme] and not with_tls:
        raise ValueError("opensearchs:// is TLS; without it the scheme is opensearch://")
    return of_hosts(
        names or None, known or index or DEFAULT_INDEX, username, password, with_tls, verify_certs, ca_certs
    )
