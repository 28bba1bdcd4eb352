"""Reading: whole checkpoints with their blocks, and listings that read no payloads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, case, exists, func, select
from sqlalchemy.sql.selectable import FromClause

from locus_store.core import patterns
from locus_store.core.driver import Info, Key, Stored
from locus_store.core.patterns import Wildcard
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, TERMS, THREADS, alive, as_number, chunks, named

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

# ---------------------------------------------------------------------------------------------------- one, with blocks

_IN_THREAD = THREADS.join(CHECKPOINTS, CHECKPOINTS.c.thread == THREADS.c.id)
_BY_ID = CHECKPOINTS.c.checkpoint_id == bindparam("checkpoint")
_IS_HEAD = CHECKPOINTS.c.version == THREADS.c.head_version

_WHOLE = (
    select(
        THREADS.c.id,
        THREADS.c.epoch,
        CHECKPOINTS.c.checkpoint_id,
        CHECKPOINTS.c.version,
        CHECKPOINTS.c.stamp,
        CHECKPOINTS.c.own_block,
        CHECKPOINTS.c.first_block,
        CHECKPOINTS.c.last_block,
        CHECKPOINTS.c.ranges,
        CHECKPOINTS.c.payload,
    )
    .select_from(_IN_THREAD)
    .where(named(), alive())
)
_WHOLE_HEAD = _WHOLE.where(_IS_HEAD)
_WHOLE_BY_ID = _WHOLE.where(_BY_ID)

_at_or_below = BLOCKS.alias("at_or_below")
_LOW = bindparam("low", type_=BigInteger)
_SPAN = (
    # The lowest block may be joined with others and begin before ``low``. Looking its number up first keeps the scan
    # bounded at both ends; a condition on last_number alone would begin at the thread's first block.
    select(BLOCKS.c.payload)
    .where(
        BLOCKS.c.thread == bindparam("of_thread"),
        BLOCKS.c.block_number <= bindparam("high"),
        BLOCKS.c.block_number
        >= func.coalesce(
            select(func.max(_at_or_below.c.block_number))
            .where(_at_or_below.c.thread == bindparam("of_thread"), _at_or_below.c.block_number <= _LOW)
            .scalar_subquery(),
            _LOW,
            type_=BigInteger,
        ),
        BLOCKS.c.last_number >= _LOW,
    )
    .order_by(BLOCKS.c.block_number)
)
_SPAN_IF_UNCHANGED = _SPAN.where(
    exists().where(THREADS.c.id == bindparam("of_thread"), THREADS.c.epoch == bindparam("epoch")),
    exists().where(
        CHECKPOINTS.c.thread == bindparam("of_thread"),
        CHECKPOINTS.c.version == bindparam("at"),
        CHECKPOINTS.c.stamp == bindparam("stamp"),
    ),
)


def get(connection: Connection, dialect: Dialect, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
    """See `Driver.get`.

    Without a snapshot over both statements, the second one answers only if the checkpoint and the thread's epoch are
    still those of the first; a checkpoint that uses blocks has at least one, so no row means: start again. Where the
    first finds what it found before, nobody has changed it: the blocks are lost.
    """
    statement = _WHOLE_HEAD if checkpoint_id is None else _WHOLE_BY_ID
    place = {"tenant": key.tenant, "name": key.thread_id, "now": now, "checkpoint": checkpoint_id}
    if checkpoint_id is None:
        del place["checkpoint"]
    before: tuple[object, ...] = ()
    while True:
        row = connection.execute(statement, place).first()
        if row is None:
            return None
        thread, epoch, found_id, version, stamp, own_block, low, high, ranges, payload = row
        blocks: list[bytes] = []
        if high:
            span = {"of_thread": thread, "low": low, "high": high}
            if dialect.snapshot_reads:
                blocks = [piece for (piece,) in connection.execute(_SPAN, span)]
            else:
                span |= {"epoch": epoch, "at": version, "stamp": stamp}
                blocks = [piece for (piece,) in connection.execute(_SPAN_IF_UNCHANGED, span)]
                if not blocks and (thread, epoch, version, stamp) != before:
                    before = thread, epoch, version, stamp
                    continue
        return Stored(found_id, version, stamp, epoch, own_block, ranges, payload, blocks)


# ------------------------------------------------------------------------------------------------------------ listings

_parent = CHECKPOINTS.alias("parent")


def _infos(source: FromClause) -> Select[Any]:
    """The columns of `Info`, in its order."""
    with_parent = source.outerjoin(
        _parent, (_parent.c.thread == CHECKPOINTS.c.thread) & (_parent.c.version == CHECKPOINTS.c.parent_version)
    )
    return select(
        THREADS.c.thread_id,
        CHECKPOINTS.c.checkpoint_id,
        CHECKPOINTS.c.version,
        _parent.c.checkpoint_id,
        as_number(CHECKPOINTS.c.created_at),
        CHECKPOINTS.c.metadata,
        CHECKPOINTS.c.stored_size,
        as_number(THREADS.c.updated_at),
    ).select_from(with_parent)


_LISTED = [
    CHECKPOINTS.c[name]
    for name in ("thread", "checkpoint_id", "version", "parent_version", "created_at", "metadata", "stored_size")
]
# A number that says how many is sent as one of 64 bits: people ask for 2**40 when they mean all.
_COUNT = bindparam("count", type_=BigInteger)
_SKIPPED = bindparam("skipped", type_=BigInteger)

_INFO = _infos(_IN_THREAD).where(named(), alive())
_INFO_HEAD = _INFO.where(_IS_HEAD)
_INFO_BY_ID = _INFO.where(_BY_ID)


def info(connection: Connection, key: Key, checkpoint_id: str | None, now: int) -> Info | None:
    """See `Driver.info`."""
    place = {"tenant": key.tenant, "name": key.thread_id, "now": now}
    if checkpoint_id is None:
        row = connection.execute(_INFO_HEAD, place).first()
    else:
        row = connection.execute(_INFO_BY_ID, place | {"checkpoint": checkpoint_id}).first()
    return None if row is None else Info(*row)


@cache
def _list_infos(paged: bool, limited: bool) -> Select[Any]:
    """The page is taken before anything is joined to it, so that a short one is short work in a long thread."""
    thread = select(THREADS.c.id).where(named(), alive()).scalar_subquery()
    rows = select(CHECKPOINTS).where(CHECKPOINTS.c.thread == thread).order_by(CHECKPOINTS.c.version.desc())
    if paged:
        rows = rows.where(CHECKPOINTS.c.version < bindparam("before"))
    page = (rows.limit(_COUNT) if limited else rows).with_only_columns(*_LISTED).subquery()
    # A checkpoint's parent is the one before it, nearly always: no look-up for those that are on the page.
    previous = {
        name: func.lead(page.c[name]).over(order_by=page.c.version.desc()) for name in ("version", "checkpoint_id")
    }
    looked_up = (
        select(_parent.c.checkpoint_id)
        .where(_parent.c.thread == page.c.thread, _parent.c.version == page.c.parent_version)
        .scalar_subquery()
    )
    parent = case((previous["version"] == page.c.parent_version, previous["checkpoint_id"]), else_=looked_up)
    return (
        select(
            THREADS.c.thread_id,
            page.c.checkpoint_id,
            page.c.version,
            parent,
            as_number(page.c.created_at),
            page.c.metadata,
            page.c.stored_size,
            as_number(THREADS.c.updated_at),
        )
        .select_from(page.join(THREADS, THREADS.c.id == page.c.thread))
        .order_by(page.c.version.desc())
    )


def infos(connection: Connection, key: Key, before: int | None, limit: int | None, now: int) -> list[Info]:
    """See `Driver.infos`."""
    place: dict[str, Any] = {"tenant": key.tenant, "name": key.thread_id, "now": now}
    if before is not None:
        place["before"] = before
    if limit is not None:
        place["count"] = limit
    statement = _list_infos(before is not None, limit is not None)
    return [Info(*row) for row in connection.execute(statement, place)]


_JOINED = 8
"""So many terms are joined, which lets the database begin with a rare one; any others are counted."""


@cache
def _find(joined: int, counted: int, newest_only: bool, one_thread: bool, limited: bool) -> Select[Any]:
    source: FromClause = _IN_THREAD
    for i in range(joined):
        # Terms count only with their checkpoint: the join is by version, which a replaced checkpoint gave up.
        term = TERMS.alias(f"term_{i}")
        source = source.join(
            term,
            (term.c.thread == CHECKPOINTS.c.thread)
            & (term.c.version == CHECKPOINTS.c.version)
            & (term.c.term == bindparam(f"digest_{i}", type_=TERMS.c.term.type)),
        )
    statement = _infos(source).where(THREADS.c.tenant == bindparam("tenant"), THREADS.c.head_version > 0, alive())
    for i in range(counted):
        among = bindparam(f"digests_{i}", type_=TERMS.c.term.type, expanding=True)
        here = (
            select(func.count())
            .where(TERMS.c.thread == CHECKPOINTS.c.thread, TERMS.c.version == CHECKPOINTS.c.version)
            .where(TERMS.c.term.in_(among))
            .scalar_subquery()
        )
        statement = statement.where(here == bindparam(f"count_{i}", type_=BigInteger))
    if newest_only:
        statement = statement.where(_IS_HEAD)
    if one_thread:
        statement = statement.where(THREADS.c.thread_id == bindparam("name"))
    statement = statement.order_by(THREADS.c.updated_at.desc(), THREADS.c.thread_id, CHECKPOINTS.c.version.desc())
    if limited:
        statement = statement.limit(_COUNT)
    return statement.offset(_SKIPPED)


def find(
    connection: Connection,
    tenant: str,
    terms: Sequence[bytes],
    thread_id: str | None,
    newest_only: bool,
    limit: int | None,
    offset: int,
    now: int,
) -> list[Info]:
    """See `Driver.find`."""
    digests = list(dict.fromkeys(terms))
    place: dict[str, Any] = {f"digest_{i}": digest for i, digest in enumerate(digests[:_JOINED])}
    counted = list(chunks(digests[_JOINED:]))
    for i, chunk in enumerate(counted):
        place |= {f"digests_{i}": chunk, f"count_{i}": len(chunk)}
    place |= {"tenant": tenant, "now": now, "skipped": offset}
    if thread_id is not None:
        place["name"] = thread_id
    if limit is not None:
        place["count"] = limit
    joined = min(len(digests), _JOINED)
    statement = _find(joined, len(counted), newest_only, thread_id is not None, limit is not None)
    return [Info(*row) for row in connection.execute(statement, place)]


# -------------------------------------------------------------------------------------------------------------- threads


@cache
def _list_threads(dialect: Dialect, literal: bool, prefixed: bool, matched: bool, limited: bool) -> Select[Any]:
    statement = (
        select(THREADS.c.thread_id, as_number(THREADS.c.updated_at))
        .where(THREADS.c.tenant == bindparam("tenant"), THREADS.c.head_version > 0, alive())
        .order_by(THREADS.c.updated_at.desc(), THREADS.c.thread_id)
    )
    if literal:
        statement = statement.where(THREADS.c.thread_id == bindparam("name"))
    if prefixed:
        statement = statement.where(
            THREADS.c.thread_id >= bindparam("prefix"), THREADS.c.thread_id < bindparam("past_prefix")
        )
    if matched:
        statement = statement.where(dialect.matches(THREADS.c.thread_id))
        if not dialect.exact_patterns:
            return statement
    if limited:
        statement = statement.limit(_COUNT)
    return statement.offset(_SKIPPED)


def threads(
    connection: Connection, dialect: Dialect, tenant: str, pattern: str, limit: int | None, offset: int, now: int
) -> list[tuple[str, int]]:
    """See `Driver.threads`."""
    wanted = patterns.parse(pattern)
    place: dict[str, Any] = {"tenant": tenant, "now": now}
    literal, past_prefix = wanted.literal, _past(wanted.prefix)
    prefixed = literal is None and past_prefix is not None
    matched = literal is None and wanted.tokens not in ((Wildcard.RUN,), (wanted.prefix, Wildcard.RUN))
    if literal is None and wanted.prefix and past_prefix is None:
        matched = True
    if literal is not None:
        place["name"] = literal
    if prefixed:
        place |= {"prefix": wanted.prefix, "past_prefix": past_prefix}
    if matched:
        place["pattern"] = dialect.pattern_text(wanted)
    in_database = dialect.exact_patterns or not matched
    if in_database:
        place["skipped"] = offset
        if limit is not None:
            place["count"] = limit
    statement = _list_threads(dialect, literal is not None, prefixed, matched, limit is not None)
    rows = connection.execute(statement, place)
    if in_database:
        return [(name, moment) for name, moment in rows]
    fits = wanted.regex().fullmatch
    found = ((name, moment) for name, moment in rows if fits(name))
    return list(islice(found, offset, None if limit is None else offset + limit))


def _past(prefix: str) -> str | None:
    """The least text that is greater than all that begin with the prefix, or None."""
    while prefix and prefix[-1] == "\U0010ffff":
        prefix = prefix[:-1]
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)
