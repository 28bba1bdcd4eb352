"""Oracle's load in one statement, which sees one state of the tables whatever others do meanwhile.

It answers with one row for each value that may be large: the checkpoint's ranges and its payload, which have the
numbers -1 and 0, and the blocks of its span. The rows are sorted here: no LOB takes part in a sort of the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Select,
    bindparam,
    func,
    literal_column,
    select,
    union_all,
)

from locus_store.core.driver import Stored
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, THREADS, alive, named

_RANGES, _PAYLOAD = -1, 0
_IN_THREAD = THREADS.join(CHECKPOINTS, CHECKPOINTS.c.thread == THREADS.c.id)


def stored(rows: Sequence[Any]) -> Stored | None:
    """What the rows of a load say."""
    if not rows:
        return None
    found_id, version, stamp, epoch, own_block, _, _ = rows[0]
    pieces = {number: piece for *_, number, piece in rows}
    ranges, payload = pieces.pop(_RANGES), pieces.pop(_PAYLOAD)
    return Stored(
        found_id, version, stamp, epoch, own_block, ranges, payload, [pieces[number] for number in sorted(pieces)]
    )


def _load(which: ColumnElement[bool]) -> CompoundSelect[Any]:
    def rows(number: ColumnElement[int], piece: ColumnElement[bytes]) -> Select[Any]:
        return select(
            CHECKPOINTS.c.checkpoint_id,
            CHECKPOINTS.c.version,
            CHECKPOINTS.c.stamp,
            THREADS.c.epoch,
            CHECKPOINTS.c.own_block,
            number.label("piece_number"),
            piece.label("piece"),
        ).where(named(), alive(), which)

    # A block that was joined with others may begin before the span. Its number is looked up first, which keeps the
    # scan bounded at both ends.
    below = BLOCKS.alias("below")
    lowest = (
        select(func.max(below.c.block_number))
        .where(below.c.thread == CHECKPOINTS.c.thread, below.c.block_number <= CHECKPOINTS.c.first_block)
        .correlate(CHECKPOINTS)
        .scalar_subquery()
    )
    return union_all(
        rows(literal_column(str(_RANGES), BigInteger), CHECKPOINTS.c.ranges).select_from(_IN_THREAD),
        rows(literal_column(str(_PAYLOAD), BigInteger), CHECKPOINTS.c.payload).select_from(_IN_THREAD),
        rows(BLOCKS.c.block_number, BLOCKS.c.payload)
        .select_from(_IN_THREAD.join(BLOCKS, BLOCKS.c.thread == CHECKPOINTS.c.thread))
        .where(BLOCKS.c.block_number >= lowest, BLOCKS.c.block_number <= CHECKPOINTS.c.last_block),
    )


LOAD_HEAD = _load(CHECKPOINTS.c.version == THREADS.c.head_version)
LOAD_BY_ID = _load(CHECKPOINTS.c.checkpoint_id == bindparam("checkpoint"))
