"""What the listings return: checkpoints without their documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypedDict

from locus_store.core.clock import to_datetime
from locus_store.core.driver import Info
from locus_store.core.errors import CorruptCheckpointError
from locus_store.core.frames import DamagedError
from locus_store.core.metadata import decode_metadata


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint without its document.

    Attributes:
        thread_id: Its thread.
        checkpoint_id: Its id.
        version: Its version, the only order of checkpoints.
        parent: The id of the checkpoint it was made from, or None if there is none or it is gone.
        created_at: When it was saved, in UTC.
        updated_at: When its thread was last written, in UTC.
        metadata: What the save was given, or None.
        size: Bytes that its save stored.
    """

    thread_id: str
    checkpoint_id: str
    version: int
    parent: str | None
    created_at: datetime
    updated_at: datetime
    metadata: dict[Any, Any] | None
    size: int


class CheckpointRow(TypedDict):
    """The same as a dict, as the metadata methods return it."""

    thread_id: str
    checkpoint_id: str
    version: int
    parent: str | None
    created_at: datetime
    updated_at: datetime
    metadata: dict[Any, Any] | None
    size: int


class SearchHit(TypedDict):
    """A text in which all words of a query were found.

    Attributes:
        thread_id: The thread that it is in.
        checkpoint_id: The oldest checkpoint of the thread that holds it.
        score: Above 0 and below 1, the better the higher; the same on every backend.
        fragment: The part of it with what was found, which is between marks.
    """

    thread_id: str
    checkpoint_id: str
    score: float
    fragment: str


class Vacuumed(int):
    """How many checkpoints a vacuum removed; an ``int``.

    Attributes:
        blocks: Blocks removed that nothing referred to any more, beyond those of the checkpoints.
        bytes_freed: Bytes given back to the operating system; 0 unless that was asked for.
        skipped: The ids of threads that were left as they are, because foreign keys of other tables forbid it.
    """

    blocks: int
    bytes_freed: int
    skipped: tuple[str, ...]

    def __new__(cls, checkpoints: int, blocks: int, bytes_freed: int, skipped: tuple[str, ...] = ()) -> Self:
        """Make one."""
        made = super().__new__(cls, checkpoints)
        made.blocks = blocks
        made.bytes_freed = bytes_freed
        made.skipped = skipped
        return made


def to_row(info: Info) -> CheckpointRow:
    """A row for people from what a driver returned.

    Raises:
        CorruptCheckpointError: The stored metadata is damaged.
    """
    try:
        metadata = decode_metadata(info.metadata)
    except DamagedError as e:
        raise CorruptCheckpointError(info.thread_id, info.checkpoint_id, "its metadata is damaged") from e
    return {
        "thread_id": info.thread_id,
        "checkpoint_id": info.checkpoint_id,
        "version": info.version,
        "parent": info.parent,
        "created_at": to_datetime(info.created_at),
        "updated_at": to_datetime(info.updated_at),
        "metadata": metadata,
        "size": info.size,
    }
