"""Copying a thread inside the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import BigInteger, Connection, Insert, Select, Table, bindparam, func, insert, select, update

from locus_store.core import frames, payloads
from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError, TransactionConflictError, UnsupportedFormatError
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import References
from locus_store.sql import removal
from locus_store.sql.statements import (
    BLOCKS,
    CHECKPOINTS,
    RECORDS,
    TERMS,
    THREADS,
    ThreadRow,
    read_references,
)

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

_ATTEMPTS = 10
_PAGE = 50

_SOURCE = bindparam("source", type_=BigInteger)
_DEST = bindparam("dest", type_=BigInteger)
_UPTO = bindparam("upto", type_=BigInteger)
_HIGH = bindparam("high", type_=BigInteger)

_EXTENT = select(func.max(CHECKPOINTS.c.version), func.max(CHECKPOINTS.c.last_block)).where(
    CHECKPOINTS.c.thread == _SOURCE, CHECKPOINTS.c.version <= _UPTO
)
_LATER = select(CHECKPOINTS.c.version, CHECKPOINTS.c.own_block, CHECKPOINTS.c.ranges).where(
    CHECKPOINTS.c.thread == _SOURCE, CHECKPOINTS.c.version > _UPTO
)
_ID_OF = select(CHECKPOINTS.c.checkpoint_id).where(CHECKPOINTS.c.thread == _SOURCE, CHECKPOINTS.c.version == _UPTO)
_LAST_NUMBER = select(func.max(BLOCKS.c.last_number)).where(BLOCKS.c.thread == _DEST)
_SET_BLOCK_COUNT = (
    update(THREADS).where(THREADS.c.id == bindparam("of_thread")).values(block_count=bindparam("new_block_count"))
)


def _copy(table: Table, *conditions: Any) -> Insert:
    """INSERT … SELECT of all columns but the row's own id, for another thread."""
    columns = [column for column in table.c if column.name != "id"]
    values = [_DEST if column.name == "thread" else column for column in columns]
    rows: Select[Any] = select(*values).where(table.c.thread == _SOURCE, *conditions)
    if "id" in table.c:
        rows = rows.order_by(table.c.id)
    return insert(table).from_select([column.name for column in columns], rows)


_COPY_CHECKPOINTS = _copy(CHECKPOINTS, CHECKPOINTS.c.version <= _UPTO)
_COPY_TERMS = _copy(TERMS, TERMS.c.version <= _UPTO)
_COPY_BLOCKS = _copy(BLOCKS, BLOCKS.c.block_number <= _HIGH)
_COPY_RECORDS = _copy(RECORDS)

_BOUND = [
    (
        select(CHECKPOINTS.c.id, CHECKPOINTS.c.payload)
        .where(CHECKPOINTS.c.thread == _DEST, CHECKPOINTS.c.id > bindparam("after"))
        .order_by(CHECKPOINTS.c.id)
        .limit(_PAGE),
        update(CHECKPOINTS).where(CHECKPOINTS.c.id == bindparam("of_row")).values(payload=bindparam("bound")),
        frames.rebind_one,
    ),
    (
        select(RECORDS.c.id, RECORDS.c.payload)
        .where(RECORDS.c.thread == _DEST, RECORDS.c.id > bindparam("after"))
        .order_by(RECORDS.c.id)
        .limit(_PAGE),
        update(RECORDS).where(RECORDS.c.id == bindparam("of_row")).values(payload=bindparam("bound")),
        frames.rebind_one,
    ),
    (
        select(BLOCKS.c.block_number, BLOCKS.c.payload)
        .where(BLOCKS.c.thread == _DEST, BLOCKS.c.block_number > bindparam("after"))
        .order_by(BLOCKS.c.block_number)
        .limit(_PAGE),
        update(BLOCKS)
        .where(BLOCKS.c.thread == _DEST, BLOCKS.c.block_number == bindparam("of_row"))
        .values(payload=bindparam("bound")),
        payloads.rebind,
    ),
]


def clone(
    connection: Connection,
    dialect: Dialect,
    source: Key,
    dest: Key,
    upto: int | None,
    overwrite: bool,
    now: int,
    codec: Codec | None,
) -> Literal["copied", "missing", "exists"]:
    """See `Driver.clone`."""
    for _ in range(_ATTEMPTS):
        # In one order, so that two copies in opposite directions wait for each other and do not lock each other out.
        locked = {key: dialect.lock_thread(connection, key) for key in sorted({source, dest})}
        thread, there = locked[source], locked[dest]
        if thread is None or thread.expired(now) or not thread.head_version:
            return "missing"
        last = thread.head_version if upto is None else min(upto, thread.head_version)
        version, high = connection.execute(_EXTENT, {"source": thread.id, "upto": last}).one()
        if version is None:
            return "missing"
        moment = now
        if there is not None:
            if not there.expired(now):
                if there.head_version and not overwrite:
                    return "exists"
                moment = there.next_moment(now)
            removal.erase(connection, there.id)
        copy = _insert(connection, dialect, thread, dest, version, moment, now)
        if copy is not None:
            _fill(connection, thread, copy, source, dest, version, high, codec)
            return "copied"
    raise TransactionConflictError(f"thread {dest.thread_id!r} was made and removed by others {_ATTEMPTS} times")


def _insert(
    connection: Connection, dialect: Dialect, thread: ThreadRow, dest: Key, version: int, moment: int, now: int
) -> int | None:
    head_id = thread.head_id
    if version != thread.head_version:
        head_id = connection.execute(_ID_OF, {"source": thread.id, "upto": version}).scalar_one()
    return dialect.insert_thread(
        connection,
        {
            "tenant": dest.tenant,
            "thread_id": dest.thread_id,
            "version": version,
            "head_version": version,
            "head_id": head_id,
            "block_count": 0,
            "epoch": new_epoch(),
            "created_at": now,
            "updated_at": moment,
            "expires_at": thread.expires_at,
        },
    )


def _fill(
    connection: Connection,
    thread: ThreadRow,
    copy: int,
    source: Key,
    dest: Key,
    version: int,
    high: int,
    codec: Codec | None,
) -> None:
    both = {"source": thread.id, "dest": copy}
    connection.execute(_COPY_CHECKPOINTS, both | {"upto": version})
    connection.execute(_COPY_TERMS, both | {"upto": version})
    connection.execute(_COPY_BLOCKS, both | {"high": high})
    connection.execute(_COPY_RECORDS, both)
    if version != thread.head_version:
        rows = connection.execute(_LATER, {"source": thread.id, "upto": version})
        later: dict[int, References] = {v: read_references(source, own, ranges) for v, own, ranges in rows}
        # The copied bytes are still bound to the source's name.
        removal.take_out(connection, copy, removal.losses(connection, copy, source, later, (), codec))
    if codec is not None and codec.bound:
        _rebind(connection, copy, codec, ThreadName(*source), ThreadName(*dest))
    block_count = connection.execute(_LAST_NUMBER, {"dest": copy}).scalar_one_or_none() or 0
    connection.execute(_SET_BLOCK_COUNT, {"of_thread": copy, "new_block_count": max(block_count, high)})


def _rebind(connection: Connection, copy: int, codec: Codec, source: ThreadName, dest: ThreadName) -> None:
    for read, write, rebind in _BOUND:
        after = 0
        while True:
            rows: Sequence[Any] = connection.execute(read, {"dest": copy, "after": after}).all()
            for row, payload in rows:
                try:
                    bound = rebind(payload, codec, source, dest)
                except frames.UnknownFormatError as e:
                    raise UnsupportedFormatError(source.thread_id, None, f"it cannot be copied: {e}") from e
                except ValueError as e:
                    raise CorruptCheckpointError(source.thread_id, None, f"it cannot be copied: {e}") from e
                connection.execute(write, {"dest": copy, "of_row": row, "bound": bound})
            if len(rows) < _PAGE:
                break
            after = rows[-1][0]
