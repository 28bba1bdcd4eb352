"""Retention: what `Driver.trim` removes. A read finds the threads that need it, then each is done in one step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BigInteger, BindParameter, Connection, and_, bindparam, delete, exists, func, select, update

from locus_store.core.driver import Key, Trimmed
from locus_store.core.frames import Codec
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, References
from locus_store.sql import removal
from locus_store.sql.removal import Doomed, Loss
from locus_store.sql.statements import (
    BLOCKS,
    CHECKPOINTS,
    TERMS,
    THREADS,
    ThreadRow,
    as_number,
    read_references,
)

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

_PAGE = 100
"""How many threads one read looks at."""

_CREATED_AT = as_number(CHECKPOINTS.c.created_at)
_THREADS = (
    select(
        THREADS.c.id,
        THREADS.c.thread_id,
        as_number(THREADS.c.expires_at),
        select(func.count()).select_from(CHECKPOINTS).where(CHECKPOINTS.c.thread == THREADS.c.id).scalar_subquery(),
        # Within a thread times follow versions, so the lowest version is the oldest.
        select(_CREATED_AT)
        .where(CHECKPOINTS.c.thread == THREADS.c.id)
        .order_by(CHECKPOINTS.c.version)
        .limit(1)
        .scalar_subquery(),
    )
    .where(THREADS.c.tenant == bindparam("tenant"))
    .order_by(THREADS.c.thread_id)
    .limit(_PAGE)
)
# Nothing is greater than an empty text on Oracle, where it is NULL.
_THREADS_AFTER = _THREADS.where(THREADS.c.thread_id > bindparam("after"))
_AMONG: BindParameter[int] = bindparam("rows", type_=BigInteger, expanding=True)
_REFERENCES_OF = select(CHECKPOINTS.c.thread, CHECKPOINTS.c.own_block, CHECKPOINTS.c.ranges).where(
    CHECKPOINTS.c.thread.in_(_AMONG), CHECKPOINTS.c.last_block > 0
)
_NUMBERS_OF = select(BLOCKS.c.thread, BLOCKS.c.block_number, BLOCKS.c.last_number).where(BLOCKS.c.thread.in_(_AMONG))
_HAS_CHECKPOINT = exists().where(and_(CHECKPOINTS.c.thread == TERMS.c.thread, CHECKPOINTS.c.version == TERMS.c.version))
_STRAY_TERMS_OF = select(TERMS.c.thread).where(TERMS.c.thread.in_(_AMONG), ~_HAS_CHECKPOINT).distinct()

_OF_THREAD = CHECKPOINTS.c.thread == bindparam("of_thread")
_NTH_NEWEST = (
    select(CHECKPOINTS.c.version)
    .where(_OF_THREAD)
    .order_by(CHECKPOINTS.c.version.desc())
    .limit(1)
    .offset(bindparam("newer"))
)
_OLD = select(CHECKPOINTS.c.id, CHECKPOINTS.c.version, CHECKPOINTS.c.own_block, CHECKPOINTS.c.ranges).where(
    _OF_THREAD,
    CHECKPOINTS.c.version < bindparam("below"),
    bindparam("older_than", type_=BigInteger) > _CREATED_AT,
)
_DELETE_STRAY_TERMS = delete(TERMS).where(TERMS.c.thread == bindparam("of_thread"), ~_HAS_CHECKPOINT)
_SET_EPOCH = update(THREADS).where(THREADS.c.id == bindparam("of_thread")).values(epoch=bindparam("new_epoch"))


class Candidates(NamedTuple):
    """Threads that need trimming, and where the next page begins (None: there is none)."""

    names: list[str]
    after: str | None


def candidates(
    connection: Connection, tenant: str, older_than: int, keep_last: int, now: int, after: str
) -> Candidates:
    """Look at a page of a tenant's threads, without a lock; ``after`` is empty for the first one."""
    if after:
        rows = connection.execute(_THREADS_AFTER, {"tenant": tenant, "after": after}).all()
    else:
        rows = connection.execute(_THREADS, {"tenant": tenant}).all()
    names = {row: name for row, name, _, _, _ in rows}
    wanted = {
        row
        for row, _, expires_at, count, oldest in rows
        if (expires_at is not None and expires_at <= now)
        or (oldest is not None and oldest < older_than and count > keep_last)
    }
    others = [row for row in names if row not in wanted]
    if others:
        references: dict[int, list[References]] = defaultdict(list)
        for row, own_block, ranges in connection.execute(_REFERENCES_OF, {"rows": others}):
            references[row].append(read_references(Key(tenant, names[row]), own_block, ranges))
        numbers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row, first, last in connection.execute(_NUMBERS_OF, {"rows": others}):
            numbers[row].append((first, last))
        wanted |= {row for row, spans in numbers.items() if _strays(references[row], spans)}
        wanted |= {row for (row,) in connection.execute(_STRAY_TERMS_OF, {"rows": others})}
    return Candidates([name for row, name in names.items() if row in wanted], rows[-1][1] if rows else None)


def trim_thread(
    connection: Connection,
    dialect: Dialect,
    key: Key,
    older_than: int,
    keep_last: int,
    now: int,
    codec: Codec | None,
) -> Trimmed:
    """Trim one thread, as it is now that it is locked."""
    thread = dialect.lock_thread(connection, key)
    if thread is None:
        return Trimmed(0, 0)
    if thread.expired(now):
        count = removal.count_checkpoints(connection, thread.id)
        return Trimmed(count, removal.erase(connection, thread.id))
    dropped, blocks = removal.drop_some(
        connection, key, thread, _old(connection, key, thread, older_than, keep_last), codec
    )
    if dropped.epoch is not None:
        blocks += _sweep(connection, key, thread.id)
    return Trimmed(dropped.count, blocks)


def _old(connection: Connection, key: Key, thread: ThreadRow, older_than: int, keep_last: int) -> list[Doomed]:
    below = thread.head_version + 1
    if keep_last > 0:
        place = {"of_thread": thread.id, "newer": keep_last - 1}
        below = connection.execute(_NTH_NEWEST, place).scalar_one_or_none() or 0
    rows = connection.execute(_OLD, {"of_thread": thread.id, "below": below, "older_than": older_than})
    return [Doomed(row, version, read_references(key, own, ranges)) for row, version, own, ranges in rows]


def _sweep(connection: Connection, key: Key, thread: int) -> int:
    """Remove the blocks and terms of a locked thread that nothing refers to; returns how many blocks."""
    connection.execute(_DELETE_STRAY_TERMS, {"of_thread": thread})
    rows = connection.execute(_REFERENCES_OF, {"rows": [thread]})
    references = [read_references(key, own_block, ranges) for _, own_block, ranges in rows]
    spans = [(first, last) for _, first, last in connection.execute(_NUMBERS_OF, {"rows": [thread]})]
    strays = _strays(references, spans)
    if strays:
        removal.take_out(connection, thread, [Loss(first, None) for first, _ in strays])
        connection.execute(_SET_EPOCH, {"of_thread": thread, "new_epoch": new_epoch()})
    return len(strays)


def _strays(references: Sequence[References], spans: list[tuple[int, int]]) -> list[Any]:
    """The blocks that nothing refers to. Parts of blocks never stay behind: removals take them out themselves."""
    used = EntrySet.of(references).blocks()
    return [(first, last) for first, last in spans if not any(a <= last and first <= b for a, b in used)]
