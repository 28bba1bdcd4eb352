"""A thread's own document: what it says is so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from locus_store.backends.opensearch.names import Source, pack, unpack
from locus_store.backends.opensearch.runs import Runs
from locus_store.core.driver import Info, Key
from locus_store.core.references import References


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint without its payloads.

    Attributes:
        parent_id: The id that the parent had; whether it is still there, the thread tells.
        first_block: The lowest block that it refers to, 0 if none.
        last_block: The highest one.
    """

    checkpoint_id: str
    version: int
    stamp: bytes
    parent_version: int | None
    parent_id: str | None
    created_at: int
    metadata: bytes | None
    terms: tuple[str, ...]
    size: int
    own_block: int
    first_block: int
    last_block: int
    ranges: str

    def references(self) -> References:
        """What it refers to."""
        return References.parse(self.own_block, self.ranges.encode())

    def dump(self) -> Source:
        """As JSON has it, without the terms."""
        return {
            "id": self.checkpoint_id,
            "version": self.version,
            "stamp": self.stamp.hex(),
            "parent": self.parent_version,
            "parent_id": self.parent_id,
            "created": self.created_at,
            "metadata": None if self.metadata is None else pack(self.metadata),
            "size": self.size,
            "own": self.own_block,
            "first": self.first_block,
            "last": self.last_block,
            "ranges": self.ranges,
        }

    @classmethod
    def load(cls, data: Mapping[str, Any], terms: list[str] | None) -> Checkpoint:
        """Read what `dump` gave."""
        metadata = data["metadata"]
        return cls(
            data["id"],
            data["version"],
            bytes.fromhex(data["stamp"]),
            data["parent"],
            data["parent_id"],
            data["created"],
            None if metadata is None else unpack(metadata),
            tuple(terms or ()),
            data["size"],
            data["own"],
            data["first"],
            data["last"],
            data["ranges"],
        )


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What is still to be done to the documents of slots after a removal; doing it twice does no harm.

    Attributes:
        by: The slot of the save or removal.
        gone: Slots whose checkpoint goes.
        free: Slots whose block goes.
        strip: Slots whose block loses the entries in ``lost``.
        lost: Intervals of entries by list, as `locus_store.core.references.EntrySet` has them.
    """

    by: int
    gone: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    strip: tuple[int, ...] = ()
    lost: tuple[Any, ...] = ()

    def dump(self) -> list[Any]:
        """As JSON has it."""
        return [self.by, list(self.gone), list(self.free), list(self.strip), list(self.lost)]

    @classmethod
    def load(cls, stored: list[Any] | None) -> Cleaning | None:
        """Read what `dump` gave."""
        return None if stored is None else cls(stored[0], *(tuple(part) for part in stored[1:]))


@dataclass(frozen=True, slots=True)
class Thread:
    """What a thread's document says.

    Attributes:
        life: Names its documents.
        slot: The number of the newest slot that counts; what lies above it is not there yet.
        mark: Random, drawn with that slot.
        head: The newest checkpoint.
        live: Checkpoints: the slot of each version.
        blocks: The slot of each block.
        scopes: Random; only records that carry it are there. Empty if there are none.
        oldest_at: When the oldest checkpoint was made.
        touched: Counts changes that are in nothing else.
    """

    key: Key
    life: str
    slot: int
    mark: str
    epoch: int
    version: int
    block_count: int
    updated_at: int
    expires_at: int | None
    head: Checkpoint | None
    live: Runs
    blocks: Runs
    scopes: str
    oldest_at: int
    cleaning: Cleaning | None = None
    touched: int = 0

    def expired(self, now: int) -> bool:
        """Whether the thread is not there any more."""
        return self.expires_at is not None and self.expires_at <= now

    def info(self, checkpoint: Checkpoint) -> Info:
        """A checkpoint as a listing shows it."""
        parent = checkpoint.parent_version
        return Info(
            self.key.thread_id,
            checkpoint.checkpoint_id,
            checkpoint.version,
            checkpoint.parent_id if parent is not None and self.live.slot(parent) is not None else None,
            checkpoint.created_at,
            checkpoint.metadata,
            checkpoint.size,
            self.updated_at,
        )

    def dump(self) -> Source:
        """The thread's document."""
        found: Source = {
            "kind": "thread",
            "tenant": self.key.tenant,
            "thread_id": self.key.thread_id,
            "life": self.life,
            "updated_at": self.updated_at,
            "checkpoints": self.live.count(),
            "oldest_at": self.oldest_at,
            "unfinished": self.cleaning is not None,
            "data": {
                "slot": self.slot,
                "mark": self.mark,
                "epoch": self.epoch,
                "version": self.version,
                "block_count": self.block_count,
                "head": self.head and self.head.dump(),
                "live": self.live.dump(),
                "blocks": self.blocks.dump(),
                "scopes": self.scopes,
                "cleaning": self.cleaning and self.cleaning.dump(),
                "touched": self.touched,
            },
        }
        if self.expires_at is not None:
            found["expires_at"] = self.expires_at
        if self.head is not None and self.head.terms:
            found["terms"] = list(self.head.terms)
        return found

    @classmethod
    def load(cls, source: Source) -> Thread:
        """Read what `dump` gave."""
        data = source["data"]
        return cls(
            Key(source["tenant"], source["thread_id"]),
            source["life"],
            data["slot"],
            data["mark"],
            data["epoch"],
            data["version"],
            data["block_count"],
            source["updated_at"],
            source.get("expires_at"),
            None if data["head"] is None else Checkpoint.load(data["head"], source.get("terms")),
            Runs.load(data["live"]),
            Runs.load(data["blocks"]),
            data["scopes"],
            source["oldest_at"],
            Cleaning.load(data["cleaning"]),
            data["touched"],
        )
