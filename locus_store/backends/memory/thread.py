"""One thread in memory, and what a save does to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from locus_store.core import frames, payloads
from locus_store.core.driver import Conflict, Exists, Info, NoParent, Plan, PutResult, Saved, Stale
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, References, unreferenced


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, as `Plan` and `Stored` have it."""

    checkpoint_id: str
    version: int
    parent_version: int | None
    stamp: bytes
    own_block: int
    first_block: int
    last_block: int
    ranges: bytes
    payload: bytes
    metadata: bytes | None
    terms: frozenset[bytes]
    size: int
    created_at: int

    def references(self) -> References:
        """What it refers to."""
        return References.parse(self.own_block, self.ranges)


@dataclass(slots=True)
class Thread:
    """A thread; without checkpoints it exists for its records only.

    Attributes:
        checkpoints: By version, ascending.
        versions: The version that each checkpoint id has.
        blocks: Payloads by number, ascending.
        records: By scope and key, in the order of first insertion.
    """

    epoch: int = field(default_factory=new_epoch)
    version: int = 0
    block_count: int = 0
    updated_at: int = 0
    expires_at: int | None = None
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    blocks: dict[int, bytes] = field(default_factory=dict)
    records: dict[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return next(reversed(self.checkpoints.values()), None)

    def find(self, checkpoint_id: str | None) -> Checkpoint | None:
        """A checkpoint by id, the newest without one."""
        if checkpoint_id is None:
            return self.head
        version = self.versions.get(checkpoint_id)
        return None if version is None else self.checkpoints[version]

    def newest_first(self) -> Iterator[Checkpoint]:
        """All checkpoints."""
        return reversed(self.checkpoints.values())

    def remove(self, versions: Iterable[int]) -> list[References]:
        """Take checkpoints out; returns what they referred to."""
        gone = [self.checkpoints.pop(v) for v in versions]
        for checkpoint in gone:
            del self.versions[checkpoint.checkpoint_id]
        return [c.references() for c in gone]

    def release(self, dropped: Sequence[References], codec: Codec | None, name: ThreadName) -> int:
        """Take the entries that only these referred to out of the blocks; returns how many blocks went whole."""
        if not dropped:
            return 0
        kept = [c.references() for c in self.checkpoints.values()]
        lost = unreferenced(dropped, kept)
        changes: dict[int, bytes | None] = {}
        for first, last in lost.blocks():
            for number in range(first, last + 1):
                if number in self.blocks:
                    try:
                        left = payloads.strip(self.blocks[number], lost, codec, name)
                    except frames.DamagedError:
                        # It cannot be rewritten. Whole it can go, if nothing else needs it; else it stays as it is.
                        needed = any(a <= number <= b for a, b in EntrySet.of(kept).blocks())
                        left = self.blocks[number] if needed else None
                    if left is not self.blocks[number]:
                        changes[number] = left
        for number, left in changes.items():
            if left is None:
                del self.blocks[number]
            else:
                self.blocks[number] = left
        if changes:
            self.epoch = new_epoch()
        return sum(left is None for left in changes.values())

    def info(self, thread_id: str, checkpoint: Checkpoint) -> Info:
        """A checkpoint as a listing shows it."""
        parent = None if checkpoint.parent_version is None else self.checkpoints.get(checkpoint.parent_version)
        return Info(
            thread_id,
            checkpoint.checkpoint_id,
            checkpoint.version,
            parent.checkpoint_id if parent else None,
            checkpoint.created_at,
            checkpoint.metadata,
            checkpoint.size,
            self.updated_at,
        )

    def copy(self) -> Thread:
        """A copy that shares nothing that changes."""
        return replace(
            self,
            checkpoints=dict(self.checkpoints),
            versions=dict(self.versions),
            blocks=dict(self.blocks),
            records=dict(self.records),
        )


def put(thread: Thread, plan: Plan, codec: Codec | None, name: ThreadName) -> PutResult:
    """Save into a thread; unless the answer is `Saved`, the thread is as before."""
    old, head = thread.find(plan.checkpoint_id), thread.head
    if old and old.stamp == plan.stamp:
        return Saved(old.version, thread.epoch, old.own_block)
    actual = head.version if head else 0
    if plan.expected_version not in (None, actual):
        return Conflict(actual)
    if old and plan.if_exists == "error":
        return Exists()
    parent = head if plan.parent is None else thread.find(plan.parent)
    if plan.parent is not None and parent is None:
        return NoParent()
    if plan.base is not None:
        base = thread.checkpoints.get(plan.base.version)
        if base is None or (base.stamp, thread.epoch) != plan.base[1:]:
            return Stale()

    dropped: list[References] = []
    thread.updated_at = max(plan.now, thread.updated_at + 1)
    thread.expires_at = plan.expires_at
    in_place = old if plan.if_exists == "in_place" else None
    if old and in_place:
        dropped.append(old.references())
    elif old:
        dropped += thread.remove([old.version])
    if not in_place:
        thread.version += 1
    own = 0
    if plan.block is not None:
        thread.block_count += 1
        own = thread.block_count
        thread.blocks[own] = frames.numbered(own, plan.block)
    new = Checkpoint(
        plan.checkpoint_id,
        in_place.version if in_place else thread.version,
        in_place.parent_version if in_place else _parent_version(parent, old),
        plan.stamp,
        own,
        plan.low or own,
        max(plan.high or 0, own),
        plan.ranges,
        plan.payload,
        plan.metadata,
        frozenset(plan.terms),
        plan.size,
        in_place.created_at if in_place else thread.updated_at,
    )
    thread.checkpoints[new.version] = new
    thread.versions[new.checkpoint_id] = new.version
    if plan.keep is not None:
        dropped += thread.remove([v for v in list(thread.checkpoints)[: -plan.keep] if v != new.version])
    thread.release(dropped, codec, name)
    return Saved(new.version, thread.epoch, own)


def _parent_version(parent: Checkpoint | None, old: Checkpoint | None) -> int | None:
    """The parent of a new checkpoint that replaces ``old``; one that would be its own parent keeps its former one."""
    if parent and parent is old:
        return old.parent_version
    return parent.version if parent else None


def rebind(thread: Thread, codec: Codec, source: ThreadName, dest: ThreadName) -> None:
    """Encode all of a thread's frames anew for another thread."""
    thread.blocks = {n: payloads.rebind(p, codec, source, dest) for n, p in thread.blocks.items()}
    thread.checkpoints = {
        v: replace(c, payload=frames.rebind_one(c.payload, codec, source, dest)) for v, c in thread.checkpoints.items()
    }
    thread.records = {r: frames.rebind_one(p, codec, source, dest) for r, p in thread.records.items()}
