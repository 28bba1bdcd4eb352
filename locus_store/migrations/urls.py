"""The URL of the database to migrate, and the driver that does it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from locus_store.sql.addresses import read_url
from locus_store.sql.client_parameters import MYSQL_CLIENT, ORACLE_CLIENT, POSTGRESQL_CLIENT, SCHEMA_OPTIONS

ENVIRONMENT = "LOCUS_STORE_URL"
DEFAULT = "sqlite:///locus_store.db"

_BACKENDS = {"postgres": "postgresql"}
# A file needs no event loop; for the servers, these are the drivers that this package installs.
_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+aiosqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mariadb+asyncmy",
    "oracle": "oracle+oracledb_async",
    "oracle+oracledb": "oracle+oracledb_async",
}
_CLIENTS = {
    "sqlite+pysqlite": POSTGRESQL_CLIENT,
    "postgresql+asyncpg": POSTGRESQL_CLIENT,
    "mysql+asyncmy": MYSQL_CLIENT,
    "mariadb+asyncmy": MYSQL_CLIENT,
    "oracle+oracledb_async": ORACLE_CLIENT,
}


def database_url(arguments: Mapping[str, str]) -> URL:
    """The URL of ``-x url=…``, else that of the environment, else a SQLite file in the working folder.

    Args:
        arguments: What the command line's ``-x`` said.

    Raises:
        ValueError: It is no URL of a relational database.
    """
    return engine_url(arguments.get("url") or os.environ.get(ENVIRONMENT) or DEFAULT)


def schema_in(arguments: Mapping[str, str]) -> str | None:
    """The schema that the URL's own options name, or None."""
    text = arguments.get("url") or os.environ.get(ENVIRONMENT) or DEFAULT
    try:
        query = make_url(text).query
    except ArgumentError:
        return None
    return next((str(query[name]) for name in SCHEMA_OPTIONS if name in query), None)


def engine_url(text: str) -> URL:
    """`text` as SQLAlchemy takes it, with the driver that is used for migrating.

    Raises:
        ValueError: It is no URL of a relational database. The message does not repeat it, for it may hold a password.
    """
    url = read_url(
        text,
        "not the URL of a relational database; it looks like sqlite:///file.db or "
        "postgresql://user:password@host/database",
    )
    backend, _, driver = url.drivername.partition("+")
    name = _BACKENDS.get(backend, backend) + (f"+{driver}" if driver else "")
    url = url.set(drivername=_DRIVERS.get(name, name))
    # The URL of a store may carry the store's own options, which no client knows.
    client = _CLIENTS.get(url.drivername)
    if client is not None:
        url = url.difference_update_query([name for name in url.query if name not in client])
    if url.drivername == "postgresql+asyncpg" and "sslmode" in url.query:
        # libpq's word for it.
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": url.query["sslmode"]})
    if url.drivername == "oracle+oracledb_async":
        url = _oracle(url)
    return url


def _oracle(url: URL) -> URL:
    """What follows the slash is a service here, as in a store's URL, and no SID; a wallet needs TLS."""
    query: dict[str, Any] = dict(url.query)
    service = url.database or query.pop("service_name", None)
    wallet = query.get("wallet_location")
    if wallet:
        query.setdefault("config_dir", wallet)
    if url.host and service:
        tls = "tcps://" if wallet or query.pop("protocol", "tcp") == "tcps" else ""
        query["dsn"] = f"{tls}{url.host}:{url.port or 1521}/{service}"
        return URL.create(url.drivername, url.username, url.password, query=query)
    if url.host and "sid" in query:
        url = url.set(database=str(query.pop("sid")))
    return url.set(query=query)
