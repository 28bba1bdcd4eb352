"""One migration at a time: in the database, and in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    bindparam,
    column,
    func,
    insert,
    literal_column,
    select,
    table,
)
from sqlalchemy.exc import DBAPIError

from locus_store.core.errors import StoreBusyError, TransactionNotAllowedError
from locus_store.sql.schema import VERSION_TABLE
from locus_store.sql.types import ascii_name

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


def commits_ddl(connection: Connection) -> bool:
    """Whether DDL ends a transaction on this database."""
    return connection.dialect.name in ("mysql", "mariadb", "oracle")


def refuse_transaction(connection: Connection) -> None:
    """Returns if migrating would not commit what the caller has done so far.

    Raises:
        TransactionNotAllowedError: The connection is in a transaction that DDL would commit.
    """
    if connection.in_transaction() and commits_ddl(connection):
        raise TransactionNotAllowedError(
            connection.dialect.name,
            "migrating inside a transaction of yours",
            "DDL would commit it there: commit or roll back first, and hand in a connection that is in none",
        )


@contextmanager
def database_lock(connection: Connection, schema: str | None) -> Iterator[None]:
    """Waits until no other process migrates the tables in `schema`, and keeps others waiting.

    The lock ends with the connection's transaction, or at the end of the block where DDL ends transactions; and with
    the connection. Databases that it does not know are not locked.

    Raises:
        ValueError: The connection is in autocommit, where such a lock ends at once.
    """
    lock = _LOCKS.get(connection.dialect.name)
    with nullcontext() if lock is None else lock(connection, schema):
        yield


@contextmanager
def _lock_postgresql(connection: Connection, _schema: str | None) -> Iterator[None]:
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
    yield


@contextmanager
def _lock_sqlite(connection: Connection, _schema: str | None) -> Iterator[None]:
    # In the driver's own mode DDL begins no transaction. One that has begun takes the lock at its first write.
    if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    yield


@contextmanager
def _lock_mysql(connection: Connection, schema: str | None) -> Iterator[None]:
    # A lock of the session, with a name for the whole server that is short enough for any database's.
    place = func.coalesce(bindparam("place", schema, String), func.database())
    name = func.concat("locus_store ", func.md5(place))
    # Asked for again and again, so that no client takes the silence for a lost connection.
    while connection.scalar(select(func.get_lock(name, 2))) != 1:
        pass
    try:
        yield
        # Who comes next must see the rows as well, and not tables without them.
        connection.exec_driver_sql("COMMIT")
    finally:
        # A connection that is lost has no lock any more.
        with suppress(DBAPIError):
            connection.scalar(select(func.release_lock(name)))


@contextmanager
def _lock_oracle(connection: Connection, schema: str | None) -> Iterator[None]:
    """A second session's row that is never committed, in Alembic's table: whoever inserts the same one waits.

    DDL would release a lock of the session that sends it, LOCK TABLE would keep that session's own rows out, and
    DBMS_LOCK has to be granted. The row goes when the second session ends, however it ends.
    """
    notes = _oracle_notes(schema)
    try:
        notes.create(connection)
    except DBAPIError as error:
        if _oracle_code(error) != _NAME_IN_USE:
            raise
    row = insert(notes).inline().values(version_num=literal_column("'migrating'"))
    # A pool of its own: the connection's may be one connection large.
    pool = connection.engine.pool.recreate()
    try:
        second = pool.connect()
        try:
            cursor = second.cursor()
            cursor.execute(str(row.compile(connection)))
            cursor.close()
            yield
            # Who comes next must see the rows as well, and not tables without them.
            connection.exec_driver_sql("COMMIT")
        finally:
            # Without it the server has to find out that the session is gone.
            with suppress(Exception):
                second.rollback()
            second.close()
    finally:
        pool.dispose()


def _oracle_notes(schema: str | None) -> Table:
    number = Column("version_num", ascii_name(32), nullable=False)
    key = PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc")
    return Table(VERSION_TABLE, MetaData(), number, key, schema=schema)


def _oracle_code(error: DBAPIError) -> object:
    return getattr(error.orig.args[0], "code", None) if error.orig is not None and error.orig.args else None


_NAME_IN_USE = 955


def locks_version_table(connection: Connection) -> bool:
    """Whether Alembic's table cannot be removed while `database_lock` is held, for it is what is locked."""
    return connection.dialect.name == "oracle"


_LOCKS: dict[str, Callable[[Connection, str | None], AbstractContextManager[None]]] = {
    "postgresql": _lock_postgresql,
    "sqlite": _lock_sqlite,
    "mysql": _lock_mysql,
    "mariadb": _lock_mysql,
    "oracle": _lock_oracle,
}
