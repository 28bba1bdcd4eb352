"""The tables, and what several modules need of them; statements are built once, when a module is imported.

Times are read and written as microseconds. Names of parameters differ from those of the columns that they set, as
SQLAlchemy demands, and are no reserved words, as Oracle demands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import BigInteger, ColumnElement, Table, bindparam, or_, select, type_coerce

from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError
from locus_store.core.references import References
from locus_store.sql.models import Block, Checkpoint, Record, Term, Thread

T = TypeVar("T")

THREADS = cast(Table, Thread.__table__)
CHECKPOINTS = cast(Table, Checkpoint.__table__)
BLOCKS = cast(Table, Block.__table__)
TERMS = cast(Table, Term.__table__)
RECORDS = cast(Table, Record.__table__)

CHUNK = 500
"""How many values one statement names; every database takes a thousand."""


def as_number(column: ColumnElement[Any]) -> ColumnElement[int]:
    """A time, read as the microseconds that are stored."""
    return type_coerce(column, BigInteger)


def alive() -> ColumnElement[bool]:
    """A thread that has not expired at the parameter ``now``."""
    expires_at = as_number(THREADS.c.expires_at)
    return or_(expires_at.is_(None), expires_at > bindparam("now", type_=BigInteger))


def named() -> ColumnElement[bool]:
    """The thread that the parameters ``tenant`` and ``name`` name."""
    return (THREADS.c.tenant == bindparam("tenant")) & (THREADS.c.thread_id == bindparam("name"))


def chunks(values: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """The values in parts that fit one statement."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


class ThreadRow(NamedTuple):
    """What a writer needs to know of a thread."""

    id: int
    version: int
    head_version: int
    head_id: str | None
    block_count: int
    epoch: int
    updated_at: int
    expires_at: int | None

    def expired(self, now: int) -> bool:
        """Whether the thread is gone for a call at this time."""
        return self.expires_at is not None and self.expires_at <= now

    def next_moment(self, now: int) -> int:
        """What ``updated_at`` is after a write at this time. Records alone are no write."""
        return max(now, self.updated_at + 1) if self.head_version else now


SEE_THREAD = select(
    THREADS.c.id,
    THREADS.c.version,
    THREADS.c.head_version,
    THREADS.c.head_id,
    THREADS.c.block_count,
    THREADS.c.epoch,
    as_number(THREADS.c.updated_at),
    as_number(THREADS.c.expires_at),
).where(named())
# On PostgreSQL FOR NO KEY UPDATE: rows of the host's whose foreign keys point at the thread do not wait for savers.
LOCK_THREAD = SEE_THREAD.with_for_update(key_share=True)


def read_references(key: Key, own_block: int, ranges: bytes) -> References:
    """What a checkpoint refers to.

    Raises:
        CorruptCheckpointError: The column is damaged.
    """
    try:
        return References.parse(own_block, ranges)
    except ValueError as e:
        raise CorruptCheckpointError(key.thread_id, None, f"what a checkpoint consists of is damaged: {e}") from e
