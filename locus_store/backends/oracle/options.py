"""From what people write about an Oracle database to what ``oracledb.connect_async`` takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL

from locus_store.sql.addresses import read_url
from locus_store.sql.client_parameters import ORACLE_CLIENT

NAMES = ("oracle", "oracle+oracledb", "oracle+oracledb_async")
"""The schemes that are understood."""

_PORT = 1521
_CONNECT_TIMEOUT = 10.0
_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "expire_time": int,
    "retry_count": int,
    "retry_delay": int,
    "sdu": int,
    "stmtcachesize": int,
    "tcp_connect_timeout": float,
}
_FLAGS = ("ssl_server_dn_match", "use_sni", "use_tcp_fast_open")
_TEXTS = ORACLE_CLIENT - _NUMBERS.keys() - set(_FLAGS)


def address(
    dsn: str | URL | None,
    *,
    user: str | None = None,
    password: str | None = None,
    wallet_location: str | None = None,
    wallet_password: str | None = None,
    host: str | None = None,
    port: int = _PORT,
    service_name: str | None = None,
    connect_args: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The arguments for ``oracledb.connect_async``.

    Args:
        dsn: A URL, a name of ``tnsnames.ora``, an Easy Connect string (``host:port/service``, with
            ``user/password@`` in front if need be) or a whole connect descriptor; or None if there is a ``host``.
        user: Who connects, unless the dsn says it.
        password: Their password, unless the dsn says it.
        wallet_location: The folder of the wallet, and of ``tnsnames.ora`` unless ``config_dir`` is another one.
        wallet_password: Its password.
        host: The server, where there is no dsn.
        port: The port of its listener.
        service_name: The service there.
        connect_args: Whatever else; it wins.

    Raises:
        ValueError: It is no place of an Oracle database. The message does not repeat it, for the password's sake.
    """
    connect: dict[str, Any] = {"tcp_connect_timeout": _CONNECT_TIMEOUT, "user": user, "password": password}
    if wallet_location is not None:
        connect |= {"wallet_location": wallet_location, "config_dir": wallet_location}
    if wallet_password is not None:
        connect["wallet_password"] = wallet_password
    if dsn is None:
        if host is None and not (connect_args and {"dsn", "host", "params"} & connect_args.keys()):
            raise ValueError("where the database is: pass a dsn, or a host with its service_name")
        if host is not None:
            connect |= {"host": host, "port": port, "service_name": service_name}
            if wallet_location is not None:
                connect["protocol"] = "tcps"
    elif isinstance(dsn, URL) or re.match(r"oracle(\+\w+)?:", dsn, re.IGNORECASE):
        connect |= _of_url(dsn)
    else:
        login, at, rest = ("", "", dsn) if dsn.lstrip().startswith("(") else dsn.rpartition("@")
        if at:
            found_user, _, found_password = login.partition("/")
            connect |= {"user": found_user or user, "password": found_password or password}
        connect["dsn"] = rest
    connect |= connect_args or {}
    return {name: value for name, value in connect.items() if value not in (None, "")}


def place(connect: Mapping[str, Any]) -> str:
    """Where the arguments lead, without names of users and passwords."""
    if "dsn" in connect:
        dsn = str(connect["dsn"]).strip()
        if not dsn.startswith("("):
            return dsn.partition("?")[0].rpartition("@")[2]
        found = {name.lower(): value for name, value in re.findall(r"\(\s*(\w+)\s*=\s*([^()\s]+)\s*\)", dsn)}
        return f"{found.get('host', '')}:{found.get('port', _PORT)}/{found.get('service_name', found.get('sid', ''))}"
    if "host" in connect:
        name = connect.get("service_name") or connect.get("sid") or ""
        return f"{connect['host']}:{connect.get('port', _PORT)}/{name}"
    return "a database of connect_args"


def _of_url(url: str | URL) -> dict[str, Any]:
    found = read_url(url, "not a URL like oracle://user:password@host:1521/service")
    if found.drivername not in NAMES:
        raise ValueError(f"{found.drivername!r} is no scheme of Oracle over python-oracledb: one of {', '.join(NAMES)}")
    query: dict[str, Any] = dict(found.query)
    connect = {name: query.pop(name) for name in _TEXTS & query.keys()}
    for name in _NUMBERS.keys() & query.keys():
        try:
            connect[name] = _NUMBERS[name](str(query.pop(name)))
        except ValueError:
            raise ValueError(f"{name} in the URL is no number") from None
    for name in query.keys() & set(_FLAGS):
        connect[name] = str(query.pop(name)).lower() in ("1", "true", "yes", "on")
    if query:
        raise ValueError(f"the URL has an option that python-oracledb does not know: {', '.join(sorted(query))}")
    if found.username:
        connect["user"] = found.username
    if found.password:
        connect["password"] = str(found.password)
    if "wallet_location" in connect:
        connect.setdefault("config_dir", connect["wallet_location"])
    if not found.host:
        if "dsn" not in connect:
            raise ValueError("the URL names no host; a name of tnsnames.ora is written oracle://user:password@name")
        return connect
    names = [name for name in (found.database, connect.get("service_name"), connect.get("sid")) if name]
    if len(names) > 1:
        raise ValueError("the URL names the service twice: after the slash, or as ?service_name=, or a ?sid=")
    if not names and found.port is None:
        connect["dsn"] = found.host
        return connect
    connect |= {"host": found.host, "port": found.port or _PORT}
    if found.database:
        connect["service_name"] = found.database
    if "wallet_location" in connect:
        connect.setdefault("protocol", "tcps")
    return connect
