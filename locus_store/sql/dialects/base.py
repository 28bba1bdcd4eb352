"""The dialect object: all that the store does differently on different databases."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from enum import Enum
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, exc, insert

from locus_store.core.driver import Key, Plan, PutResult, Stored
from locus_store.core.errors import (
    BackendError,
    BackendUnavailableError,
    ReferencedError,
    StoreBusyError,
    TransactionConflictError,
)
from locus_store.core.frames import Codec
from locus_store.core.patterns import Pattern
from locus_store.sql import reading, writing
from locus_store.sql.search.index import WordIndex
from locus_store.sql.statements import LOCK_THREAD, THREADS, ThreadRow

INSERT_THREAD = insert(THREADS)


class Kind(Enum):
    """What an error of the database means for the caller."""

    RETRYABLE = "the transaction was undone because of another one"
    DUPLICATE = "a row with this key is there"
    REFERENCED = "rows of other tables point at what would be removed"
    BUSY = "a lock was not free in time"
    GONE = "the database cannot be reached, or the connection was lost"
    OTHER = "anything else"


def root(error: BaseException) -> BaseException:
    """The driver's own error inside SQLAlchemy's wrapper and adapter."""
    found = (error.orig if isinstance(error, exc.DBAPIError) else None) or error
    adapted = type(found).__module__.startswith("sqlalchemy.dialects.")
    return (found.__cause__ if adapted else None) or found


class Dialect:
    """A database as SQL's standard has it; subclasses say what theirs does otherwise.

    All methods work inside the caller's transaction: they never commit, roll back or set a savepoint.

    Attributes:
        names: What SQLAlchemy calls the databases that it is for.
        max_piece: Bytes that one value may have, or None for no limit.
        snapshot_reads: All statements of one read transaction see the same state.
        exact_patterns: `matches` decides exactly as `Pattern.regex` does.
        index: How words are found, or None where they are not.
    """

    names: frozenset[str] = frozenset()
    max_piece: int | None = None
    snapshot_reads = False
    exact_patterns = True
    index: WordIndex | None = None

    def joining(self) -> Dialect:
        """The dialect for a transaction that the caller began, with whatever isolation the caller wants."""
        joining = copy(self)
        joining.snapshot_reads = False
        return joining

    # -------------------------------------------------------------------------------------------------------- errors

    def in_autocommit(self, connection: Connection) -> bool:
        """Whether each statement on a caller's connection is a transaction of its own."""
        asked = connection.get_execution_options().get("isolation_level")
        if asked is not None:
            return bool(asked == "AUTOCOMMIT")
        # What an engine was made with can be asked for only in later releases of SQLAlchemy.
        detect = getattr(connection.dialect, "detect_autocommit_setting", None)
        return detect is not None and bool(detect(connection.connection.dbapi_connection))

    def lacks_schema(self, error: BaseException) -> bool:
        """Whether the database said that a table or column is not there."""
        return False

    def may_not_write(self, error: BaseException | None) -> bool:
        """Whether the database refused a write because this user, this session or all of it may only read."""
        return False

    def classify(self, error: BaseException) -> Kind:
        """What an error of the driver, or SQLAlchemy's wrapper of one, means."""
        if isinstance(error, exc.TimeoutError):
            return Kind.BUSY
        if isinstance(error, exc.IntegrityError):
            return Kind.DUPLICATE
        if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
            return Kind.GONE
        if isinstance(error, exc.OperationalError | exc.InterfaceError | OSError):
            return Kind.GONE
        return Kind.OTHER

    def meaning(self, kind: Kind, error: BaseException) -> str:
        """What happened, for people."""
        if kind is not Kind.BUSY:
            return str(kind.value)
        if isinstance(error, exc.TimeoutError):
            return "no connection of the pool was free in time"
        return (
            f"{kind.value}; if this very task has an open transaction that wrote there, nothing but its end frees the "
            "lock: save through backend.bind(…) in that transaction, or after it"
        )

    def translate(self, error: BaseException) -> BackendError:
        """The error for the caller; its cause is the driver's own error, and no payload is in it."""
        kind = self.classify(error)
        cause = (error.orig if isinstance(error, exc.DBAPIError) else None) or error
        message = f"{self.meaning(kind, error)}: {type(cause).__name__}: {cause}"
        found: BackendError
        if kind is Kind.RETRYABLE:
            found = TransactionConflictError(message)
        elif kind is Kind.REFERENCED:
            found = ReferencedError(None, f"{type(cause).__name__}: {cause}")
        elif kind is Kind.BUSY:
            found = StoreBusyError(message)
        elif kind is Kind.GONE:
            found = BackendUnavailableError(message)
        else:
            found = BackendError(f"{type(cause).__name__}: {cause}")
        found.__cause__ = cause
        return found

    # ------------------------------------------------------------------------------------------------------- writing

    def check_connection(self, connection: Connection) -> None:
        """Return if statements mean on a host's connection what they say; it asks the server once, if ever.

        Raises:
            BackendError: They do not; the message says what to change.
        """

    def writer(self, connection: Connection) -> Connection:
        """The connection as the functions that write must be given it."""
        return connection

    def check_size(self, connection: Connection, *values: bytes | None) -> None:
        """Return if one statement can carry these values beside what is small.

        Raises:
            PayloadTooLargeError: It cannot.
        """

    def put(self, connection: Connection, key: Key, plan: Plan, codec: Codec | None) -> PutResult:
        """A whole save, `Driver.put`."""
        return writing.put(connection, self, key, plan, codec)

    def lock_thread(self, connection: Connection, key: Key) -> ThreadRow | None:
        """The thread's row, which no other writer can have until this transaction ends; expired ones included.

        Every writer calls it before it reads anything else.
        """
        row = connection.execute(LOCK_THREAD, {"tenant": key.tenant, "name": key.thread_id}).first()
        return None if row is None else ThreadRow._make(row)

    def insert_thread(self, connection: Connection, values: Mapping[str, Any]) -> int | None:
        """Make a thread's row unless it is there; returns its id, or None if another writer made it first.

        An error must not end the transaction here; where it does, the database has an INSERT that does nothing on
        conflict.
        """
        try:
            made = connection.execute(INSERT_THREAD, dict(values)).inserted_primary_key
        except exc.IntegrityError:
            return None
        return None if made is None else int(made[0])

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, connection: Connection, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
        """A whole load, `Driver.get`."""
        return reading.get(connection, self, key, checkpoint_id, now)

    def matches(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether a column matches the parameter ``pattern``, which `pattern_text` made."""
        return column.like(bindparam("pattern"), escape="\\")

    def pattern_text(self, pattern: Pattern) -> str:
        """A pattern in the language of `matches`."""
        return pattern.like()
