"""From a URL as people write it to what asyncmy takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL

from locus_store.sql.addresses import read_url

NAMES = ("mysql", "mariadb", "mysql+asyncmy", "mariadb+asyncmy")
"""The schemes that are understood."""

CHARSET = "utf8mb4"
_FIXED = {
    "charset": CHARSET,
    # A transaction is begun by a statement where one is wanted; what only reads needs none.
    "autocommit": True,
}
_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"


def address(url: URL | str, connect_args: Mapping[str, Any] | None, lock_timeout: float) -> tuple[URL, dict[str, Any]]:
    """The URL for SQLAlchemy, and the arguments for ``asyncmy.connect``.

    Args:
        url: The database's URL. Its query may hold what SQLAlchemy understands there: ``ssl_ca`` and the like,
            ``connect_timeout``, ``read_timeout``, ``unix_socket``.
        connect_args: More arguments, which win.
        lock_timeout: Seconds that a statement waits for a lock; the server knows whole ones.

    Raises:
        ValueError: It is no URL of a MySQL database, or it changes what the store needs. The message does not repeat
            it, for the password's sake.
    """
    found = read_url(url, "not a URL like mysql://user:password@host:3306/database")
    if found.drivername not in NAMES:
        raise ValueError(f"{found.drivername!r} is no scheme of MySQL over asyncmy: one of {', '.join(NAMES)}")
    arguments = dict(connect_args or {})
    query = dict(found.query)
    for name, wanted in _FIXED.items():
        if query.pop(name, wanted) != wanted or arguments.get(name, wanted) != wanted:
            raise ValueError(f"{name} is {wanted!r} on the connections of this store, and cannot be changed")
    first = [arguments.pop("init_command", None), f"SET SESSION sql_mode = '{_MODE}'", _ISOLATION]
    seconds = max(1, math.ceil(lock_timeout))
    first.append(f"SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}")
    arguments |= _FIXED
    arguments["init_command"] = "; ".join(filter(None, first))
    # MariaDB is spoken to as MySQL is: only what both have is used.
    return found.set(drivername="mysql+asyncmy", query=query), arguments


_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


def place(url: URL) -> str:
    """Where a URL leads, without names of users and passwords."""
    return f"{url.host or 'localhost'}:{url.port or 3306}/{url.database or ''}"


def refuse(charset: str, collation: str | None, autocommit: bool, use_pure: bool | None) -> None:
    """The SDK's parameters for which this store leaves no choice.

    Raises:
        ValueError: One of them asks for something else; the message says why it is as it is.
    """
    if charset.lower() != CHARSET:
        raise ValueError(f"charset={charset!r}: ids are UTF-8 and all else is bytes; leave charset out, or {CHARSET!r}")
    if collation is not None:
        raise ValueError(
            f"collation={collation!r}: ids are compared byte by byte, so that 'Alice' is not 'alice'; leave it out"
        )
    if autocommit:
        raise ValueError("autocommit=True: what a save writes is one transaction; leave it out")
    if use_pure is not None:
        raise ValueError(f"use_pure={use_pure!r}: it belongs to another client; this store uses asyncmy; leave it out")


def refuse_isolation(engine_options: Mapping[str, Any]) -> None:
    """The isolation level of own connections is the store's affair; raises ValueError if there is one."""
    if "isolation_level" in {*engine_options, *engine_options.get("execution_options", {})}:
        raise ValueError("isolation_level: own connections are READ COMMITTED, and cannot be changed; leave it out")
