"""MySQL 8.0 and newer, MariaDB 10.5 and newer: only SQL that both have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any
from typing import cast as cast_type

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    CursorResult,
    Executable,
    LargeBinary,
    Select,
    bindparam,
    cast,
    collate,
    func,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.dialects.mysql import CHAR, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from locus_store.core.driver import Key, Plan, PutResult, Stored
from locus_store.core.errors import BackendError, PayloadTooLargeError, TransactionConflictError
from locus_store.core.frames import Codec
from locus_store.core.patterns import Pattern
from locus_store.sql.dialects.base import Dialect, Kind
from locus_store.sql.statements import (
    BLOCKS,
    CHECKPOINTS,
    LOCK_THREAD,
    SEE_THREAD,
    THREADS,
    ThreadRow,
    alive,
    named,
)

# Numbers of errors of the server (from 1000) and of its clients (from 2000).
_UNDONE = {1020, 1213, 1412, 1614, 1615, 3058}
_DUPLICATE = {1062, 1586}
_REFERENCED = {1217, 1451}
_BUSY = {1205, 3572}
_GONE = {1040, 1042, 1043, 1044, 1045, 1047, 1049, 1053, 1077, 1079, 1080, 1129, 1130, 1152, 1158, 1159, 1160, 1161} | {
    1184,
    1203,
    1226,
    1698,
    1862,
    1927,
    2002,
    2003,
    2005,
    2006,
    2012,
    2013,
    2026,
    2055,
    2059,
    4031,
}
NO_SCHEMA = {1054, 1146}
MAY_NOT = {1142, 1227, 1370}
"""What a user is told who may not make tables."""

_QUOTES_VALUES = {1062, 1064, 1292, 1366, 1586}
"""Errors whose text repeats a part of the statement or of a row."""
_TOO_LARGE = 1153

_ESCAPE = "!"
"""A backslash would depend on sql_mode."""

_NO_BACKSLASH_ESCAPES = 512
"""In the status that the server sends with each answer."""

_ESCAPED = b"\0\n\r\x1a\"'\\"
_AROUND = 16 * 1024
"""Bytes of a statement beside its large values, at most."""


def root(error: BaseException) -> BaseException:
    """The driver's own error inside SQLAlchemy's wrapper."""
    return (error.orig if isinstance(error, DBAPIError) else None) or error


def number(error: BaseException) -> int | None:
    """The number of an error, or None if it has none."""
    found = root(error).args[:1]
    return found[0] if found and isinstance(found[0], int) and found[0] >= 1000 else None


class MySQLDialect(Dialect):
    """What MySQL and MariaDB do in their own way.

    Own transactions are READ COMMITTED: every statement sees what was committed before it, and a thread's row can be
    locked without its neighbourhood.
    """

    names = frozenset({"mysql", "mariadb"})
    # max_allowed_packet may be 1 GB at most, and what is sent as text is escaped.
    max_piece = 500_000_000

    def __init__(self) -> None:
        self._packet: int | None = None
        self._joining: Dialect | None = None

    def joining(self) -> Dialect:
        """See `Dialect.joining`."""
        if self._joining is None:
            self._joining = JoinedMySQLDialect()
        return self._joining

    def check_connection(self, connection: Connection) -> None:
        """See `Dialect.check_connection`.

        asyncmy writes values into statements and escapes them by backslashes, whatever the session says of those.
        """
        if connection.dialect.driver == "asyncmy":
            driver: Any = connection.connection.driver_connection
            if driver.server_status & _NO_BACKSLASH_ESCAPES:
                raise BackendError(
                    "the session's sql_mode has NO_BACKSLASH_ESCAPES, under which asyncmy does not escape bytes "
                    "safely; take it out of the sql_mode of this engine's connections"
                )

    # -------------------------------------------------------------------------------------------------------- errors

    def lacks_schema(self, error: BaseException) -> bool:
        """See `Dialect.lacks_schema`."""
        return number(error) in NO_SCHEMA

    def classify(self, error: BaseException) -> Kind:
        """See `Dialect.classify`; by the server's numbers, and by the driver's own classes for what has none."""
        cause = root(error)
        code = number(cause)
        if code is not None:
            return _kind(code)
        if isinstance(error, PoolTimeoutError):
            return Kind.BUSY
        if isinstance(cause, OSError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
            return Kind.GONE
        # A driver's own complaint without a number: not connected, closed while it was read, packets out of order.
        names = {c.__name__ for c in type(cause).__mro__}
        return Kind.GONE if names & {"InterfaceError", "InternalError"} else Kind.OTHER

    def translate(self, error: BaseException) -> BackendError:
        """See `Dialect.translate`; without what the server quotes of a statement or a row."""
        found = super().translate(error)
        cause = root(error)
        code = number(cause)
        if code is not None:
            text = str(cause.args[1]) if len(cause.args) > 1 else ""
            if code in _QUOTES_VALUES:
                text = re.sub(r"'.*", "…", text, flags=re.S)
            if code == _TOO_LARGE:
                text += "; raise max_allowed_packet on the server, or save less at once"
            kind = self.classify(error)
            said = f"{type(cause).__name__}: ({code}) {text}"
            if kind not in (Kind.OTHER, Kind.REFERENCED):
                said = f"{self.meaning(kind, error)}: {said}"
            found = type(found)(None, said) if kind is Kind.REFERENCED else type(found)(said)
        found.__cause__ = cause
        return found

    # ------------------------------------------------------------------------------------------------------- writing

    def check_size(self, connection: Connection, *values: bytes | None) -> None:
        """See `Dialect.check_size`; values are sent as text, in which some bytes take two."""
        if self._packet is None:
            self._packet = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
        limit = self._packet - _AROUND
        given = [value for value in values if value is not None]
        if 2 * sum(map(len, given)) > limit:
            size = sum(len(value) + sum(map(value.count, _ESCAPED)) for value in given)
            if size > limit:
                raise PayloadTooLargeError(size, limit)

    def insert_thread(self, connection: Connection, values: Mapping[str, Any]) -> int | None:
        """See `Dialect.insert_thread`.

        How many rows were inserted says nothing under the flags that SQLAlchemy sets, so the row is looked at: the
        epoch tells whose it is. On conflict the INSERT locks the row as LOCK_THREAD does; an INSERT that fails would
        share it with others that failed, and then each would wait for the other.
        """
        connection.execute(_INSERT_THREAD, dict(values))
        row = connection.execute(LOCK_THREAD, {"tenant": values["tenant"], "name": values["thread_id"]}).first()
        return int(row.id) if row is not None and row.epoch == values["epoch"] else None

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, connection: Connection, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
        """See `Dialect.get`; one statement, so that no removal comes between."""
        place: dict[str, Any] = {"tenant": key.tenant, "name": key.thread_id, "now": now}
        if checkpoint_id is None:
            rows = connection.execute(_GET_HEAD, place).all()
        else:
            rows = connection.execute(_GET_BY_ID, place | {"checkpoint": checkpoint_id}).all()
        if not rows:
            return None
        (_, payload, *checkpoint), *blocks = sorted(rows, key=itemgetter(0))
        found_id, version, stamp, epoch, own_block, ranges = checkpoint
        return Stored(found_id, version, stamp, epoch, own_block, ranges, payload, [block[1] for block in blocks])

    def matches(self, column: ColumnElement[str]) -> ColumnElement[bool]:
        """See `Dialect.matches`; as text, for among bytes a wildcard would stand for one byte."""
        return _text(column).like(_text(bindparam("pattern", type_=LargeBinary)), escape=_ESCAPE)

    def pattern_text(self, pattern: Pattern) -> Any:
        """See `Dialect.pattern_text`; in bytes, so that the connection's character set does not matter."""
        return pattern.like(_ESCAPE).encode()


class JoinedMySQLDialect(MySQLDialect):
    """MySQL and MariaDB in a transaction of the caller's, which is REPEATABLE READ unless the caller chose otherwise.

    There a plain SELECT sees the state of the transaction's first one, however old that is, while an UPDATE or a
    locking SELECT sees what is committed now. So all that a writer reads it reads by locking SELECTs. And a thread that
    changed since is refused: what would be saved could be read by nobody in that transaction.
    """

    def writer(self, connection: Connection) -> Connection:
        """See `Dialect.writer`."""
        return cast_type(Connection, CurrentReads(connection))

    def lock_thread(self, connection: Connection, key: Key) -> ThreadRow | None:
        """See `Dialect.lock_thread`.

        Raises:
            TransactionConflictError: The transaction sees another state of the thread than the newest.
        """
        locked = super().lock_thread(connection, key)
        plain: Connection = getattr(connection, "beneath", connection)
        seen = plain.execute(SEE_THREAD, {"tenant": key.tenant, "name": key.thread_id}).first()
        if (None if seen is None else ThreadRow._make(seen)) != locked:
            raise _changed(key)
        return locked

    def put(self, connection: Connection, key: Key, plan: Plan, codec: Codec | None) -> PutResult:
        """See `Dialect.put`.

        A checkpoint that others deleted leaves no trace on its thread if others still need all that it held. This
        transaction sees it all the same, and would see two under one id.

        Raises:
            TransactionConflictError: The transaction sees another state of that checkpoint than the newest.
        """
        thread = None if plan.fresh_id else self.lock_thread(connection, key)
        if thread is not None:
            plain: Connection = getattr(connection, "beneath", connection)
            place = {"of_thread": thread.id, "checkpoint": plan.checkpoint_id}
            if plain.execute(_SEE_CHECKPOINT, place).first() != connection.execute(_SEE_CHECKPOINT, place).first():
                raise _changed(key)
        return super().put(connection, key, plan, codec)


_SEE_CHECKPOINT = select(CHECKPOINTS.c.id, CHECKPOINTS.c.stamp).where(
    CHECKPOINTS.c.thread == bindparam("of_thread"), CHECKPOINTS.c.checkpoint_id == bindparam("checkpoint")
)


def _changed(key: Key) -> TransactionConflictError:
    return TransactionConflictError(
        f"thread {key.thread_id!r} was changed by others after this transaction had read its first row: roll back and "
        "run the whole transaction again; in READ COMMITTED this does not happen"
    )


class CurrentReads:
    """A connection whose SELECTs see what is committed now, and keep it so until the transaction ends.

    Attributes:
        beneath: The connection itself.
    """

    def __init__(self, connection: Connection) -> None:
        self.beneath = connection

    def execute(self, statement: Executable, *args: Any, **kwargs: Any) -> CursorResult[Any]:
        """As `sqlalchemy.Connection.execute`."""
        if isinstance(statement, Select):
            statement = _current(statement)
        return self.beneath.execute(statement, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@lru_cache(256)
def _current(statement: Select[Any]) -> Select[Any]:
    return statement if statement is LOCK_THREAD else statement.with_for_update(read=True)


def _kind(code: int) -> Kind:
    kinds = ((_UNDONE, Kind.RETRYABLE), (_DUPLICATE, Kind.DUPLICATE), (_REFERENCED, Kind.REFERENCED))
    for codes, kind in (*kinds, (_BUSY, Kind.BUSY), (_GONE, Kind.GONE)):
        if code in codes:
            return kind
    return Kind.OTHER


def _text(value: ColumnElement[Any]) -> ColumnElement[str]:
    return collate(cast(value, CHAR(charset="utf8mb4")), "utf8mb4_bin")


_INSERT_THREAD = insert(THREADS).on_duplicate_key_update(id=THREADS.c.id)


def _get(condition: ColumnElement[bool]) -> CompoundSelect[Any]:
    """A row for the checkpoint, with the number 0, and one for each block of its span, in no order.

    A block that was joined with others may begin before the span; its number is looked up first, which keeps the scan
    bounded at both ends.
    """
    below = BLOCKS.alias("below")
    first = (
        select(func.max(below.c.block_number))
        .where(below.c.thread == CHECKPOINTS.c.thread, below.c.block_number <= CHECKPOINTS.c.first_block)
        .correlate(CHECKPOINTS)
        .scalar_subquery()
    )
    source = THREADS.join(CHECKPOINTS, CHECKPOINTS.c.thread == THREADS.c.id)
    found = [CHECKPOINTS.c.checkpoint_id, CHECKPOINTS.c.version, CHECKPOINTS.c.stamp, THREADS.c.epoch]
    found += [CHECKPOINTS.c.own_block, CHECKPOINTS.c.ranges]
    checkpoint = select(literal_column("0", BigInteger), CHECKPOINTS.c.payload, *found)
    span = source.join(
        BLOCKS,
        (BLOCKS.c.thread == CHECKPOINTS.c.thread)
        & (BLOCKS.c.block_number >= first)
        & (BLOCKS.c.block_number <= CHECKPOINTS.c.last_block),
    )
    blocks = select(BLOCKS.c.block_number, BLOCKS.c.payload, *[null() for _ in found])
    where = (named(), alive(), condition)
    return union_all(checkpoint.select_from(source).where(*where), blocks.select_from(span).where(*where))


_GET_HEAD = _get(CHECKPOINTS.c.version == THREADS.c.head_version)
_GET_BY_ID = _get(CHECKPOINTS.c.checkpoint_id == bindparam("checkpoint"))
