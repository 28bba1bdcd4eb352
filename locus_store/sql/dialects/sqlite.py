"""SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, exc, update

from locus_store.core.driver import Key
from locus_store.core.patterns import Pattern, Wildcard
from locus_store.sql.dialects.base import INSERT_THREAD, Dialect, Kind, root
from locus_store.sql.search.sqlite import SQLITE_INDEX
from locus_store.sql.statements import THREADS, ThreadRow

_KINDS = {
    sqlite3.SQLITE_BUSY: Kind.BUSY,
    sqlite3.SQLITE_LOCKED: Kind.BUSY,
    sqlite3.SQLITE_PROTOCOL: Kind.BUSY,
    sqlite3.SQLITE_CANTOPEN: Kind.GONE,
    sqlite3.SQLITE_IOERR: Kind.GONE,
}
_DUPLICATES = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
# ON DELETE RESTRICT is a trigger within SQLite.
_REFERENCED = (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, sqlite3.SQLITE_CONSTRAINT_TRIGGER)
_BE_THE_WRITER = update(THREADS).where(THREADS.c.id == -1).values(version=0)
_LITERAL = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


class SQLiteDialect(Dialect):
    """SQLite 3.31 and later.

    There is one writer at a time, so no rows are locked. A host's own transaction that has read before it writes may be
    refused at once, because a foreign commit came between: `TransactionConflictError`.
    """

    names = frozenset({"sqlite"})
    # SQLite's own limit is 1,000,000,000 bytes for a value and for a row together.
    max_piece = 999_000_000
    snapshot_reads = True
    index = SQLITE_INDEX

    def joining(self) -> Dialect:
        """See `Dialect.joining`."""
        return HOST_SQLITE

    def in_autocommit(self, connection: Connection) -> bool:
        """See `Dialect.in_autocommit`; a host may begin transactions by a hook, so writers look if one has begun."""
        return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"

    def lacks_schema(self, error: BaseException) -> bool:
        """See `Dialect.lacks_schema`; there is no code of its own for it."""
        found = error.orig if isinstance(error, exc.DBAPIError) else error
        return str(found).startswith(("no such table", "no such column"))

    def may_not_write(self, error: BaseException | None) -> bool:
        """See `Dialect.may_not_write`."""
        code = None if error is None else getattr(root(error), "sqlite_errorcode", None)
        return code is not None and code & 0xFF == sqlite3.SQLITE_READONLY

    def classify(self, error: BaseException) -> Kind:
        """See `Dialect.classify`."""
        found = error.orig if isinstance(error, exc.DBAPIError) else error
        code = getattr(found, "sqlite_errorcode", None)
        if code is None:
            return super().classify(error)
        if code in _DUPLICATES:
            return Kind.DUPLICATE
        if code in _REFERENCED and "FOREIGN KEY" in str(found):
            return Kind.REFERENCED
        if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
            return Kind.RETRYABLE
        return _KINDS.get(code & 0xFF, Kind.OTHER)

    def lock_thread(self, connection: Connection, key: Key) -> ThreadRow | None:
        """See `Dialect.lock_thread`.

        A statement that writes nothing makes this transaction the writer, also on a host's connection whose driver
        begins transactions at the first write only: what was read before that could be old already.
        """
        connection.execute(_BE_THE_WRITER)
        return super().lock_thread(connection, key)

    def insert_thread(self, connection: Connection, values: Mapping[str, Any]) -> int | None:
        """See `Dialect.insert_thread`; the writer is alone, so no other can have been first."""
        return int(connection.execute(INSERT_THREAD, dict(values)).lastrowid)

    def matches(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """See `Dialect.matches`. LIKE takes ASCII letters of either case for equal here, GLOB does not."""
        return column.op("GLOB", is_comparison=True)(bindparam("pattern"))

    def pattern_text(self, pattern: Pattern) -> str:
        """See `Dialect.pattern_text`."""
        return "".join([t.value if isinstance(t, Wildcard) else t.translate(_LITERAL) for t in pattern.tokens])


class HostSQLiteDialect(SQLiteDialect):
    """SQLite on a connection whose transactions begin as the host has set it up: perhaps at the first write only."""

    snapshot_reads = False

    def lock_thread(self, connection: Connection, key: Key) -> ThreadRow | None:
        """See `Dialect.lock_thread`."""
        row = super().lock_thread(connection, key)
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            raise ValueError("the connection is in autocommit; a save needs one with transactions")
        return row


SQLITE = SQLiteDialect()
HOST_SQLITE = HostSQLiteDialect()
