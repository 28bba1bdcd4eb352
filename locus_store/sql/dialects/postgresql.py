"""PostgreSQL 13 and newer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Text, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from locus_store.core.driver import Key, Stored
from locus_store.core.errors import BackendError, ReferencedError
from locus_store.sql.dialects.base import Dialect, Kind, root
from locus_store.sql.dialects.postgresql_load import LOAD_BY_ID, LOAD_HEAD, stored
from locus_store.sql.search.postgresql import POSTGRESQL_INDEX
from locus_store.sql.statements import THREADS

# SQLSTATE codes.
_UNDONE = {"40001", "40P01"}
_DUPLICATE = {"23505", "23P01"}
_REFERENCED = {"23503", "23001"}
_BUSY = {"55P03"}
_GONE = {"53300", "57P01", "57P02", "57P03", "57P04", "57P05"}
NO_SCHEMA = {"3F000", "42P01", "42703"}
_READ_ONLY = {"25006", "42501"}
_MIXED_UP = {"26000", "42P05", "08P01"}
_NAMELESS = (
    "if a pooler in transaction mode is before the server (PgBouncer), make the engine with connect_args="
    '{"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: ""}'
)
"""What to do where a prepared statement is not there, is there already, or is another one."""


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code of an error, or None if the server did not send one."""
    found = getattr(root(error), "sqlstate", None)
    return found if isinstance(found, str) else None


def quoted(name: str) -> str:
    """A name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


class PostgreSQLDialect(Dialect):
    """What PostgreSQL does in its own way."""

    names = frozenset({"postgresql"})
    # A value has at most 1 GB, a message to the server too, and a save puts a block and a rest into one.
    max_piece = 500_000_000
    index = POSTGRESQL_INDEX

    def lacks_schema(self, error: BaseException) -> bool:
        """See `Dialect.lacks_schema`."""
        return sqlstate(error) in NO_SCHEMA

    def may_not_write(self, error: BaseException | None) -> bool:
        """See `Dialect.may_not_write`."""
        return error is not None and sqlstate(error) in _READ_ONLY

    def classify(self, error: BaseException) -> Kind:
        """See `Dialect.classify`; by SQLSTATE, and by the driver's own classes for what the server did not say."""
        cause = root(error)
        state = sqlstate(cause)
        if state is not None:
            return _kind(state)
        if isinstance(error, PoolTimeoutError):
            return Kind.BUSY
        if isinstance(cause, OSError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
            return Kind.GONE
        # The driver's InterfaceError is a lost connection, but one that is a ValueError too is a wrong argument.
        names = {c.__name__ for c in type(cause).__mro__}
        if names & {"InterfaceError", "InternalClientError"} and not isinstance(cause, ValueError):
            return Kind.GONE
        return Kind.OTHER

    def translate(self, error: BaseException) -> BackendError:
        """See `Dialect.translate`; without the server's DETAIL, which may quote a row."""
        found = super().translate(error)
        cause = root(error)
        if sqlstate(cause) is not None:
            kind = self.classify(error)
            said = f"{type(cause).__name__}: {cause.args[0] if cause.args else ''}"
            if sqlstate(cause) in _MIXED_UP:
                said = f"{said}; {_NAMELESS}"
            if isinstance(found, ReferencedError):
                found = ReferencedError(None, said)
            else:
                found = type(found)(said if kind is Kind.OTHER else f"{self.meaning(kind, error)}: {said}")
        found.__cause__ = cause
        return found

    def insert_thread(self, connection: Connection, values: Mapping[str, Any]) -> int | None:
        """See `Dialect.insert_thread`."""
        made: int | None = connection.execute(_INSERT_THREAD, dict(values)).scalar_one_or_none()
        return made

    def get(self, connection: Connection, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
        """See `Dialect.get`; one statement, so that no seal or removal comes between."""
        place: dict[str, Any] = {"tenant": key.tenant, "name": key.thread_id, "now": now}
        if checkpoint_id is None:
            return stored(connection.execute(LOAD_HEAD, place).all())
        return stored(connection.execute(LOAD_BY_ID, place | {"checkpoint": checkpoint_id}).all())


def _kind(state: str) -> Kind:
    if state in _UNDONE:
        return Kind.RETRYABLE
    if state in _DUPLICATE:
        return Kind.DUPLICATE
    if state in _REFERENCED:
        return Kind.REFERENCED
    if state in _BUSY:
        return Kind.BUSY
    if state in _GONE or state[:2] in ("08", "28") or state == "3D000":
        return Kind.GONE
    return Kind.OTHER


_INSERT_THREAD = (
    insert(THREADS)
    .on_conflict_do_nothing(index_elements=[THREADS.c.tenant, THREADS.c.thread_id])
    .returning(THREADS.c.id)
)

LIMIT_WAITING = select(func.set_config("lock_timeout", bindparam("timeout", type_=Text), True))
"""Sets lock_timeout for the rest of a transaction."""
