"""One migration at a time: in the database, and in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import BigInteger, Connection, bindparam, column, func, select, table

from locus_store.core.errors import StoreBusyError

# "locus_st" as a number of 64 bits: whoever migrates our tables in this database holds this advisory lock.
_ADVISORY_KEY = int.from_bytes(b"locus_st", "big")

_PAUSE = 0.01
_process_lock = threading.Lock()
_holder: int | None = None


@contextmanager
def one_in_this_process(connection: Connection) -> Iterator[None]:
    """Held while Alembic runs revisions, for its ``op`` is a global of the process.

    Tasks of one event loop share a thread, so a task that has to wait lets the loop go on.

    Raises:
        StoreBusyError: A task of the loop that this plain call blocks is migrating.
    """
    global _holder
    while not _process_lock.acquire(blocking=False):
        if connection.dialect.is_async:
            driver = connection.connection.dbapi_connection
            driver.run_async(lambda _: asyncio.sleep(_PAUSE))  # type: ignore[union-attr]
        elif _holder == threading.get_ident():
            raise StoreBusyError("a task of this event loop is migrating; await it first")
        else:
            time.sleep(_PAUSE)
    _holder = threading.get_ident()
    try:
        yield
    finally:
        _holder = None
        _process_lock.release()


def lock_database(connection: Connection) -> None:
    """Waits until no other process migrates this database; the lock ends with the connection's transaction.

    Databases that it does not know are not locked.

    Raises:
        ValueError: The connection is in autocommit, where such a lock ends at once.
    """
    lock = _LOCKS.get(connection.dialect.name)
    if lock is not None:
        lock(connection)


def _lock_postgresql(connection: Connection) -> None:
    key = bindparam("key", _ADVISORY_KEY, BigInteger)
    connection.execute(select(func.pg_advisory_xact_lock(key)))
    locks = table("pg_locks", column("pid"), column("locktype"), column("classid"), column("objid"))
    held = select(func.count()).where(
        locks.c.pid == func.pg_backend_pid(),
        locks.c.locktype == "advisory",
        locks.c.classid == bindparam("high", _ADVISORY_KEY >> 32, BigInteger),
        locks.c.objid == bindparam("low", _ADVISORY_KEY & 0xFFFFFFFF, BigInteger),
    )
    if not connection.scalar(held):
        raise ValueError("the connection is in autocommit; migrating needs one with transactions")


def _lock_sqlite(connection: Connection) -> None:
    # In the driver's own mode DDL begins no transaction. One that has begun takes the lock at its first write.
    if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
        connection.exec_driver_sql("BEGIN IMMEDIATE")


_LOCKS: dict[str, Callable[[Connection], None]] = {
    "postgresql": _lock_postgresql,
    "sqlite": _lock_sqlite,
}
