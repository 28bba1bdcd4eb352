"""Removing: whole threads, some checkpoints of one, and what only they referred to.

What a removal takes out of the blocks is worked out before anything is written, so that an error leaves all as it was.
To be cheap it compares what goes with its neighbours first: they usually hold the same entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, update

from locus_store.core import frames, payloads
from locus_store.core.driver import Dropped, Key
from locus_store.core.errors import UnsupportedFormatError
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, References
from locus_store.sql.statements import (
    BLOCKS,
    CHECKPOINTS,
    RECORDS,
    TERMS,
    THREADS,
    ThreadRow,
    chunks,
    read_references,
)

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

_NEIGHBOURS = 16
"""For so many of the removed checkpoints the neighbours are looked at before all others are."""
_PAYLOADS = 16
"""How many blocks are in memory at a time."""

_REFERENCES = (CHECKPOINTS.c.version, CHECKPOINTS.c.own_block, CHECKPOINTS.c.ranges)
_OF_THREAD = CHECKPOINTS.c.thread == bindparam("of_thread")

_NEWER = (
    select(*_REFERENCES)
    .where(_OF_THREAD, CHECKPOINTS.c.version > bindparam("at"))
    .order_by(CHECKPOINTS.c.version)
    .limit(1)
)
_OLDER = (
    select(*_REFERENCES)
    .where(_OF_THREAD, CHECKPOINTS.c.version < bindparam("at"))
    .order_by(CHECKPOINTS.c.version.desc())
    .limit(1)
)
_TOUCHING = (
    select(*_REFERENCES)
    .where(
        _OF_THREAD,
        CHECKPOINTS.c.version > bindparam("after"),
        CHECKPOINTS.c.last_block >= bindparam("low"),
        CHECKPOINTS.c.first_block <= bindparam("high"),
    )
    .order_by(CHECKPOINTS.c.version)
    .limit(500)
)
_HOLDING = select(func.max(BLOCKS.c.block_number)).where(
    BLOCKS.c.thread == bindparam("of_thread"), BLOCKS.c.block_number <= bindparam("low")
)
_PIECES = (
    select(BLOCKS.c.block_number, BLOCKS.c.last_number, BLOCKS.c.payload)
    .where(
        BLOCKS.c.thread == bindparam("of_thread"),
        BLOCKS.c.block_number >= bindparam("low"),
        BLOCKS.c.block_number <= bindparam("high"),
    )
    .order_by(BLOCKS.c.block_number)
    .limit(_PAYLOADS)
)
_THIS_BLOCK = (BLOCKS.c.thread == bindparam("of_thread")) & (BLOCKS.c.block_number == bindparam("number"))
_DELETE_BLOCK = delete(BLOCKS).where(_THIS_BLOCK)
_REWRITE_BLOCK = update(BLOCKS).where(_THIS_BLOCK).values(payload=bindparam("left"))

_WITH_ID = select(CHECKPOINTS.c.id, *_REFERENCES).where(
    _OF_THREAD, CHECKPOINTS.c.checkpoint_id.in_(bindparam("ids", expanding=True))
)
_DELETE_CHECKPOINT = delete(CHECKPOINTS).where(CHECKPOINTS.c.id == bindparam("of_row"))
_DELETE_CHECKPOINTS = delete(CHECKPOINTS).where(CHECKPOINTS.c.id.in_(bindparam("rows", expanding=True)))
_DELETE_TERMS = delete(TERMS).where(TERMS.c.thread == bindparam("of_thread"), TERMS.c.version == bindparam("at"))
_HEAD = (
    select(CHECKPOINTS.c.version, CHECKPOINTS.c.checkpoint_id)
    .where(_OF_THREAD, CHECKPOINTS.c.version < bindparam("before"))
    .order_by(CHECKPOINTS.c.version.desc())
    .limit(100)
)
_COUNT = select(func.count()).select_from(CHECKPOINTS).where(_OF_THREAD)
_SET_HEAD = (
    update(THREADS)
    .where(THREADS.c.id == bindparam("of_thread"))
    .values(head_version=bindparam("new_head"), head_id=bindparam("new_head_id"), epoch=bindparam("new_epoch"))
)
# What a host's foreign keys may point at goes first: if one forbids that, nothing else has gone yet.
_ERASE_THREAD = delete(THREADS).where(THREADS.c.id == bindparam("of_thread"))
_ERASE = [delete(table).where(table.c.thread == bindparam("of_thread")) for table in (CHECKPOINTS, RECORDS, TERMS)]
_ERASE_BLOCKS = delete(BLOCKS).where(BLOCKS.c.thread == bindparam("of_thread"))


class Doomed(NamedTuple):
    """A checkpoint that is to go."""

    row: int
    version: int
    references: References


class Loss(NamedTuple):
    """A block that loses entries; ``left`` is None if it goes whole."""

    number: int
    left: bytes | None


def drop(
    connection: Connection,
    dialect: Dialect,
    key: Key,
    checkpoint_ids: Sequence[str] | None,
    now: int,
    codec: Codec | None,
) -> Dropped:
    """See `Driver.drop`."""
    thread = dialect.lock_thread(connection, key)
    if thread is None:
        return Dropped(0, None, None)
    if thread.expired(now) or not thread.head_version:
        if checkpoint_ids is None or thread.expired(now):
            erase(connection, thread.id)
        return Dropped(0, None, None)
    if checkpoint_ids is None:
        count = count_checkpoints(connection, thread.id)
        erase(connection, thread.id)
        return Dropped(count, thread.epoch, None)
    doomed = [
        Doomed(row, version, read_references(key, own_block, ranges))
        for ids in chunks(list(dict.fromkeys(checkpoint_ids)))
        for row, version, own_block, ranges in connection.execute(_WITH_ID, {"of_thread": thread.id, "ids": ids})
    ]
    return drop_some(connection, key, thread, doomed, codec)[0]


def drop_some(
    connection: Connection, key: Key, thread: ThreadRow, doomed: Sequence[Doomed], codec: Codec | None
) -> tuple[Dropped, int]:
    """Remove checkpoints of a locked thread; returns also how many blocks went whole."""
    if not doomed:
        return Dropped(0, thread.epoch, thread.epoch), 0
    versions = {d.version for d in doomed}
    head_version, head_id = thread.head_version, thread.head_id
    while head_version in versions:
        rows = connection.execute(_HEAD, {"of_thread": thread.id, "before": head_version}).all()
        if not rows:
            return Dropped(len(doomed), thread.epoch, None), erase(connection, thread.id)
        head_version, head_id = next((row for row in rows if row[0] not in versions), rows[-1])
    lost = losses(connection, thread.id, key, {d.version: d.references for d in doomed}, (), codec)
    delete_checkpoints(connection, thread.id, doomed)
    take_out(connection, thread.id, lost)
    epoch = new_epoch() if lost else thread.epoch
    if (epoch, head_version) != (thread.epoch, thread.head_version):
        connection.execute(
            _SET_HEAD,
            {"of_thread": thread.id, "new_head": head_version, "new_head_id": head_id, "new_epoch": epoch},
        )
    return Dropped(len(doomed), thread.epoch, epoch), sum(loss.left is None for loss in lost)


def erase(connection: Connection, thread: int) -> int:
    """Remove a locked thread with all that belongs to it; returns how many blocks it had."""
    for statement in (_ERASE_THREAD, *_ERASE):
        connection.execute(statement, {"of_thread": thread})
    return connection.execute(_ERASE_BLOCKS, {"of_thread": thread}).rowcount


def count_checkpoints(connection: Connection, thread: int) -> int:
    """How many checkpoints a thread has."""
    return int(connection.execute(_COUNT, {"of_thread": thread}).scalar_one())


def delete_checkpoints(connection: Connection, thread: int, doomed: Sequence[Doomed]) -> None:
    """Remove rows of checkpoints, and their terms.

    It comes before all else that a removal writes: a host's foreign key may forbid it.
    """
    if len(doomed) == 1:
        connection.execute(_DELETE_CHECKPOINT, {"of_row": doomed[0].row})
    else:
        # All of them in one statement: it fails as a whole.
        for some in chunks(doomed):
            connection.execute(_DELETE_CHECKPOINTS, {"rows": [d.row for d in some]})
    delete_terms(connection, thread, [d.version for d in doomed])


def delete_terms(connection: Connection, thread: int, versions: Iterable[int]) -> None:
    """Remove the terms of some versions."""
    places = [{"of_thread": thread, "at": version} for version in versions]
    if places:
        connection.execute(_DELETE_TERMS, places)


def losses(
    connection: Connection,
    thread: int,
    key: Key,
    dropped: Mapping[int, References],
    added: Sequence[References],
    codec: Codec | None,
) -> list[Loss]:
    """What a removal takes out of the blocks; reads only.

    Args:
        connection: Where the thread's row is locked.
        thread: The id of that row.
        key: The thread's name.
        dropped: By version, what refers to nothing any more; their rows may be there or not.
        added: What refers to something from now on.
        codec: What the frames went through.

    Raises:
        UnsupportedFormatError: A newer release wrote a block that must be rewritten.
    """
    gone = _only_in(connection, thread, key, dropped, added)
    if not gone:
        return []
    found: list[Loss] = []
    for first, last in gone.blocks():
        low = connection.execute(_HOLDING, {"of_thread": thread, "low": first}).scalar_one_or_none() or first
        while True:
            rows = connection.execute(_PIECES, {"of_thread": thread, "low": low, "high": last}).all()
            for number, last_number, payload in rows:
                try:
                    left = payloads.strip(payload, gone, codec, ThreadName(*key))
                except frames.UnknownFormatError as e:
                    raise UnsupportedFormatError(key.thread_id, None, f"a block cannot be rewritten: {e}") from e
                except frames.DamagedError:
                    # It cannot be rewritten. Whole it can go, if nothing else needs it; else it stays as it is.
                    span = (number, last_number)
                    left = payload if _touched(connection, thread, key, span, dropped, added) else None
                if left is not payload:
                    found.append(Loss(number, left))
            if len(rows) < _PAYLOADS:
                break
            low = rows[-1][0] + 1
    # A joined block may hold entries of two runs; it is stripped of all of them at once.
    return list(dict(zip([loss.number for loss in found], found, strict=True)).values())


def take_out(connection: Connection, thread: int, lost: Sequence[Loss]) -> None:
    """Write what `losses` found. The caller draws a new epoch if there was anything."""
    for number, left in lost:
        if left is None:
            connection.execute(_DELETE_BLOCK, {"of_thread": thread, "number": number})
        else:
            connection.execute(_REWRITE_BLOCK, {"of_thread": thread, "number": number, "left": left})


def _only_in(
    connection: Connection, thread: int, key: Key, dropped: Mapping[int, References], added: Sequence[References]
) -> EntrySet:
    gone = EntrySet.of(dropped.values()).minus(EntrySet.of(added))
    seen: set[int] = set(dropped)
    for version in sorted(dropped, reverse=True)[:_NEIGHBOURS]:
        for statement in (_NEWER, _OLDER):
            if not gone:
                return gone
            row = connection.execute(statement, {"of_thread": thread, "at": version}).first()
            if row is not None and row[0] not in seen:
                seen.add(row[0])
                gone = gone.minus(EntrySet.of([read_references(key, row[1], row[2])]))
    return _minus_all(connection, thread, key, gone, seen) if gone else gone


def _minus_all(connection: Connection, thread: int, key: Key, gone: EntrySet, seen: Collection[int]) -> EntrySet:
    runs = gone.blocks()
    place = {"of_thread": thread, "after": 0, "low": runs[0][0], "high": runs[-1][1]}
    while gone:
        rows = connection.execute(_TOUCHING, place).all()
        gone = gone.minus(EntrySet.of([read_references(key, own, r) for v, own, r in rows if v not in seen]))
        if len(rows) < 500:
            break
        place["after"] = rows[-1][0]
    return gone


def _touched(
    connection: Connection,
    thread: int,
    key: Key,
    span: tuple[int, int],
    dropped: Mapping[int, References],
    added: Sequence[References],
) -> bool:
    """Whether anything that stays refers to entries between two blocks."""
    place = {"of_thread": thread, "after": 0, "low": span[0], "high": span[1]}
    kept = list(added)
    while True:
        rows = connection.execute(_TOUCHING, place).all()
        kept += [read_references(key, own, r) for version, own, r in rows if version not in dropped]
        if len(rows) < 500:
            break
        place["after"] = rows[-1][0]
    return any(low <= span[1] and high >= span[0] for low, high in EntrySet.of(kept).blocks())
