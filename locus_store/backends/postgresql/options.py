"""From a URL as people write it to what asyncpg takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL

from locus_store.sql.addresses import read_url

NAMES = ("postgresql", "postgres", "postgresql+asyncpg")
"""The schemes that are understood."""

_CONNECT_TIMEOUT = 10.0
_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "timeout": float,
    "command_timeout": float,
    "statement_cache_size": int,
    "max_cached_statement_lifetime": int,
    "max_cacheable_statement_size": int,
}


def address(url: URL | str, connect_args: Mapping[str, Any] | None) -> tuple[URL, dict[str, Any]]:
    """The URL for SQLAlchemy, and the arguments for ``asyncpg.connect``.

    Of libpq's parameters ``sslmode``, ``application_name`` and ``connect_timeout`` are translated; all others are
    asyncpg's own.

    Raises:
        ValueError: It is no URL of a PostgreSQL database. The message does not repeat it, for the password's sake.
    """
    found = read_url(url, "not a URL like postgresql://user:password@host:5432/database")
    if found.drivername not in NAMES:
        raise ValueError(f"{found.drivername!r} is no scheme of PostgreSQL over asyncpg: one of {', '.join(NAMES)}")
    query = dict(found.query)
    connect: dict[str, Any] = {"timeout": _CONNECT_TIMEOUT}
    if "sslmode" in query:
        connect["ssl"] = query.pop("sslmode")
    if "connect_timeout" in query:
        query["timeout"] = query.pop("connect_timeout")
    for name in _NUMBERS.keys() & query.keys():
        try:
            connect[name] = _NUMBERS[name](str(query.pop(name)))
        except ValueError:
            raise ValueError(f"{name} in the URL is no number") from None
    connect |= connect_args or {}
    if "application_name" in query:
        settings = {"application_name": query.pop("application_name"), **connect.get("server_settings", {})}
        connect["server_settings"] = settings
    return found.set(drivername="postgresql+asyncpg", query=query), connect


def place(url: URL) -> str:
    """Where a URL leads, without names of users and passwords."""
    return f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"
