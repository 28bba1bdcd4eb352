"""Copying a thread inside the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import BigInteger, Connection, Insert, Select, Table, Update, bindparam, func, insert, select, update

from locus_store.core import frames, payloads
from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError, TransactionConflictError, UnsupportedFormatError
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import Range, References
from locus_store.sql import removal
from locus_store.sql.removal import Loss
from locus_store.sql.statements import (
    BLOCKS,
    CHECKPOINTS,
    RECORDS,
    SEE_THREAD,
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
_LAST_COPIED = select(func.max(BLOCKS.c.last_number)).where(BLOCKS.c.thread == _SOURCE, BLOCKS.c.block_number <= _HIGH)
_NO_BLOCK = 2**62
"""Above all numbers of blocks."""
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


class _Bound(NamedTuple):
    """A table whose payloads are bound to the thread's name.

    Attributes:
        read: A page of them in the copy.
        check: A page of those that are copied, in the source.
        write: Replaces one.
        rebind: Binds one to another name.
    """

    read: Select[Any]
    check: Select[Any]
    write: Update
    rebind: Callable[[bytes, Codec, ThreadName, ThreadName], bytes]


def _page(table: Table, number: str, of_thread: Any, *conditions: Any) -> Select[Any]:
    """Some payloads in the order of a number, after the last one seen."""
    column = table.c[number]
    where = [table.c.thread == of_thread, column > bindparam("after"), *conditions]
    return select(column, table.c.payload).where(*where).order_by(column).limit(_PAGE)


def _bound(table: Table, number: str, rebind: Callable[..., bytes], *copied: Any) -> _Bound:
    found = (table.c.thread == _DEST) & (table.c[number] == bindparam("of_row"))
    write = update(table).where(found).values(payload=bindparam("bound"))
    return _Bound(_page(table, number, _DEST), _page(table, number, _SOURCE, *copied), write, rebind)


_BOUND = [
    _bound(CHECKPOINTS, "id", frames.rebind_one, CHECKPOINTS.c.version <= _UPTO),
    _bound(RECORDS, "id", frames.rebind_one),
    _bound(BLOCKS, "block_number", payloads.rebind, BLOCKS.c.block_number <= _HIGH),
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
        if there is not None and not there.expired(now):
            if there.head_version and not overwrite:
                return "exists"
            moment = there.next_moment(now)
        # What is damaged is found before anything is written, so that an error leaves the destination as it was.
        lost = _later_entries(connection, thread, source, version, high, codec)
        if there is not None:
            removal.erase(connection, there.id)
        copy = _insert(connection, dialect, thread, dest, version, moment, now)
        if copy is not None:
            _fill(connection, thread, copy, source, dest, version, high, lost, codec)
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
    lost: Sequence[Loss],
    codec: Codec | None,
) -> None:
    both = {"source": thread.id, "dest": copy}
    connection.execute(_COPY_CHECKPOINTS, both | {"upto": version})
    connection.execute(_COPY_TERMS, both | {"upto": version})
    connection.execute(_COPY_BLOCKS, both | {"high": high})
    connection.execute(_COPY_RECORDS, both)
    # The copied bytes are still bound to the source's name, and so is what is left of blocks.
    removal.take_out(connection, copy, lost)
    if codec is not None and codec.bound:
        _rebind(connection, copy, codec, source, dest)
    block_count = connection.execute(_LAST_NUMBER, {"dest": copy}).scalar_one_or_none() or 0
    connection.execute(_SET_BLOCK_COUNT, {"of_thread": copy, "new_block_count": max(block_count, high)})


def _later_entries(
    connection: Connection, thread: ThreadRow, source: Key, version: int, high: int, codec: Codec | None
) -> list[Loss]:
    """What only later checkpoints refer to in the blocks that are copied."""
    if version == thread.head_version:
        return []
    rows = connection.execute(_LATER, {"source": thread.id, "upto": version})
    later: dict[int, References] = {v: read_references(source, own, ranges) for v, own, ranges in rows}
    # A block that was joined with later ones is copied whole; those behind it are not.
    copied = connection.execute(_LAST_COPIED, {"source": thread.id, "high": high}).scalar_one_or_none() or high
    behind = References({number: [Range(copied + 1, _NO_BLOCK)] for one in later.values() for number in one.lists})
    return removal.losses(connection, thread.id, source, later, [behind], codec)


def check_rebinding(connection: Connection, source: Key, dest: Key, upto: int | None, codec: Codec) -> None:
    """Return if all that a copy takes can be bound to the name of the copy; reads only.

    Where a caller's transaction goes on after an error, a copy that fails half-way must not have begun.
    """
    thread = connection.execute(SEE_THREAD, {"tenant": source.tenant, "name": source.thread_id}).first()
    if thread is None:
        return
    last = thread.head_version if upto is None else upto
    _, high = connection.execute(_EXTENT, {"source": thread.id, "upto": last}).one()
    place = {"source": thread.id, "upto": last, "high": high or 0}
    for kind in _BOUND:
        for _ in _rebound(connection, kind.check, kind.rebind, place, codec, source, dest):
            pass


def _rebind(connection: Connection, copy: int, codec: Codec, source: Key, dest: Key) -> None:
    for kind in _BOUND:
        for number, bound in _rebound(connection, kind.read, kind.rebind, {"dest": copy}, codec, source, dest):
            connection.execute(kind.write, {"dest": copy, "of_row": number, "bound": bound})


def _rebound(
    connection: Connection,
    read: Select[Any],
    rebind: Callable[[bytes, Codec, ThreadName, ThreadName], bytes],
    place: Mapping[str, int],
    codec: Codec,
    source: Key,
    dest: Key,
) -> Iterator[tuple[int, bytes]]:
    after = 0
    while True:
        rows: Sequence[Any] = connection.execute(read, {**place, "after": after}).all()
        for number, payload in rows:
            try:
                yield number, rebind(payload, codec, ThreadName(*source), ThreadName(*dest))
            except frames.UnknownFormatError as e:
                raise UnsupportedFormatError(source.thread_id, None, f"it cannot be copied: {e}") from e
            except ValueError as e:
                raise CorruptCheckpointError(source.thread_id, None, f"it cannot be copied: {e}") from e
        if len(rows) < _PAGE:
            break
        after = rows[-1][0]
