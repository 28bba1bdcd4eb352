"""All that is stored of a thread's documents, as a search reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, select

from locus_store.core.driver import Contents, ContentsRow, Key
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, THREADS, alive, as_number, named

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

_ATTEMPTS = 5

_THREAD = select(THREADS.c.id, THREADS.c.epoch, as_number(THREADS.c.updated_at)).where(
    named(), alive(), THREADS.c.head_version > 0
)
_ROWS = select(
    CHECKPOINTS.c.checkpoint_id,
    CHECKPOINTS.c.version,
    CHECKPOINTS.c.own_block,
    CHECKPOINTS.c.ranges,
    CHECKPOINTS.c.payload,
).where(CHECKPOINTS.c.thread == bindparam("of_thread"))
_BLOCKS = select(BLOCKS.c.payload).where(BLOCKS.c.thread == bindparam("of_thread")).order_by(BLOCKS.c.block_number)
_EPOCH = select(THREADS.c.epoch).where(THREADS.c.id == bindparam("of_thread"))


def contents(connection: Connection, dialect: Dialect, key: Key, now: int) -> Contents | None:
    """See `Driver.contents`.

    Without a snapshot over all statements it starts again if entries were removed meanwhile. Where that happens each
    time, what is left of them is as good: what other checkpoints hold is still there.
    """
    place = {"tenant": key.tenant, "name": key.thread_id, "now": now}
    attempt = 1
    while True:
        row = connection.execute(_THREAD, place).first()
        if row is None:
            return None
        thread, epoch, updated_at = row
        of_thread = {"of_thread": thread}
        rows = [ContentsRow(*found) for found in connection.execute(_ROWS, of_thread)]
        blocks = [piece for (piece,) in connection.execute(_BLOCKS, of_thread)]
        if not dialect.snapshot_reads and attempt < _ATTEMPTS:
            after = connection.execute(_EPOCH, of_thread).first()
            if after is None or after[0] != epoch:
                attempt += 1
                continue
        return Contents(updated_at, rows, blocks)
