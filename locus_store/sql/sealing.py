"""Sealing: joining the small blocks before a save into one row, so that a load reads fewer of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Connection, bindparam, delete, func, select, update

from locus_store.core.driver import Key
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.payloads import join
from locus_store.sql.statements import BLOCKS

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

EVERY = 50
"""The save that gets a version divisible by this joins the blocks before it."""
_LOOK_BACK = 64
_FEWEST = 10
_SMALL = 64 * 1024
_TOGETHER = 1024 * 1024

_OF_THREAD = BLOCKS.c.thread == bindparam("of_thread")
_SIZES = (
    select(BLOCKS.c.block_number, BLOCKS.c.last_number, func.length(BLOCKS.c.payload, type_=BigInteger))
    .where(_OF_THREAD, BLOCKS.c.block_number > bindparam("after"))
    .order_by(BLOCKS.c.block_number)
)
_RUN = _OF_THREAD & (BLOCKS.c.block_number >= bindparam("low")) & (BLOCKS.c.block_number <= bindparam("high"))
_PAYLOADS = select(BLOCKS.c.payload).where(_RUN).order_by(BLOCKS.c.block_number)
_DELETE_RUN = delete(BLOCKS).where(_RUN)
_JOIN = (
    update(BLOCKS)
    .where(_OF_THREAD, BLOCKS.c.block_number == bindparam("number"))
    .values(last_number=bindparam("new_last"), payload=bindparam("joined"))
)


def seal(connection: Connection, dialect: Dialect, key: Key) -> int:
    """Join runs of small blocks near the end of a thread; returns how many rows went.

    The entries stay what they are and where they are, so nothing is decoded and the epoch stays as it is.
    """
    thread = dialect.lock_thread(connection, key)
    if thread is None:
        return 0
    sizes = connection.execute(_SIZES, {"of_thread": thread.id, "after": thread.block_count - _LOOK_BACK}).all()
    gone = 0
    for run in _runs([(first, last, size) for first, last, size in sizes]):
        low, high = run[0][0], run[-1][0]
        span = {"of_thread": thread.id, "low": low, "high": high}
        try:
            joined = join([piece for (piece,) in connection.execute(_PAYLOADS, span)])
        except (DamagedError, UnknownFormatError):
            continue  # each stays by itself, so that what is wrong with one is not wrong with all
        connection.execute(_DELETE_RUN, span | {"low": low + 1})
        connection.execute(_JOIN, {"of_thread": thread.id, "number": low, "new_last": run[-1][1], "joined": joined})
        gone += len(run) - 1
    return gone


def _runs(sizes: list[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Runs of neighbours that are small one by one and together."""
    runs: list[list[tuple[int, int, int]]] = [[]]
    total = 0
    for block in sizes:
        first, _, size = block
        if runs[-1] and (first != runs[-1][-1][1] + 1 or total + size > _TOGETHER):
            runs.append([])
            total = 0
        if size < _SMALL:
            runs[-1].append(block)
            total += size
        elif runs[-1]:
            runs.append([])
            total = 0
    return [run for run in runs if len(run) >= _FEWEST]
