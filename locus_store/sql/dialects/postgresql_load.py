"""PostgreSQL's load in one statement.

It answers with a row for the checkpoint, which has the number 0, and one for each block of its span. An array of all
blocks in one row would cost the server four times as much.

A server that has not counted its tables yet takes two indexes that begin with the same column for equally good, keeps
that opinion in a prepared statement, and may walk all threads of a tenant for each load. So each look-up is written as
a range with an order, which only one index has.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    bindparam,
    func,
    literal_column,
    null,
    select,
    true,
    union_all,
)

from locus_store.core.driver import Stored
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, THREADS, alive

_ONE: ColumnElement[int] = literal_column("1", BigInteger)
_NEEDED = ("thread", "version", "checkpoint_id", "stamp", "own_block", "first_block", "last_block", "ranges", "payload")
_SHOWN = ("checkpoint_id", "version", "stamp", "epoch", "own_block", "ranges", "payload")
_number = itemgetter(0)


def stored(rows: Sequence[Any]) -> Stored | None:
    """What the rows of a load say."""
    if not rows:
        return None
    checkpoint, *blocks = sorted(rows, key=_number)
    _, found_id, version, stamp, epoch, own_block, ranges, payload = checkpoint
    return Stored(found_id, version, stamp, epoch, own_block, ranges, payload, [row[-1] for row in blocks])


def _just(column: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[bool]:
    """That a column has a value, as a range."""
    return (column >= value) & (column <= value)


def _load(by_id: bool) -> CompoundSelect[Any]:
    thread = (
        select(THREADS.c.id, THREADS.c.epoch, THREADS.c.head_version)
        .where(THREADS.c.tenant == bindparam("tenant"), _just(THREADS.c.thread_id, bindparam("name")), alive())
        .order_by(THREADS.c.thread_id)
        .limit(_ONE)
        .subquery("t")
    )
    by = CHECKPOINTS.c.checkpoint_id if by_id else CHECKPOINTS.c.version
    checkpoint = (
        select(*[CHECKPOINTS.c[name] for name in _NEEDED])
        .where(
            CHECKPOINTS.c.thread == thread.c.id, _just(by, bindparam("checkpoint") if by_id else thread.c.head_version)
        )
        .order_by(by)
        .limit(_ONE)
        .lateral("c")
    )
    found = select(checkpoint, thread.c.epoch).select_from(thread.join(checkpoint, true())).cte("found")
    # A block that was joined with others may begin before the span. Its number is looked up first, which keeps the
    # scan bounded at both ends.
    below = BLOCKS.alias("below")
    lowest = (
        select(func.max(below.c.block_number))
        .where(below.c.thread == found.c.thread, below.c.block_number <= found.c.first_block)
        .correlate(found)
        .scalar_subquery()
    )
    span = (
        select(BLOCKS.c.block_number, BLOCKS.c.payload)
        .where(
            BLOCKS.c.thread == found.c.thread,
            BLOCKS.c.block_number >= lowest,
            BLOCKS.c.block_number <= found.c.last_block,
        )
        .order_by(BLOCKS.c.block_number)
        .correlate(found)
        .lateral("b")
    )
    return union_all(
        select(literal_column("0", BigInteger), *[found.c[name] for name in _SHOWN]),
        select(span.c.block_number, *[null() for _ in _SHOWN[1:]], span.c.payload).select_from(
            found.join(span, true())
        ),
    )


LOAD_HEAD = _load(by_id=False)
LOAD_BY_ID = _load(by_id=True)
