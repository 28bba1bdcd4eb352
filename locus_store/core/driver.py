"""The driver's side of a backend: a handful of primitives over checked ids and bytes.

A driver never sees a document. The rules that hold for every primitive:

- It is **atomic**: after a crash, a lost connection or a cancelled call, all of it is there or none of it.
- It is safe to call from several tasks and, where the storage is shared, from several processes.
- A thread whose ``expires_at`` is at or before the ``now`` of the call **does not exist**: no read sees it, and a `put`
  removes what is left of it and makes it anew.
- Versions and block numbers begin at 1 and are never given out twice in the life of a thread. A thread exists (for
  everything but records) while it has a checkpoint; when its last checkpoint goes, all of it goes, records included.
- ``updated_at`` of a thread never goes back: a write sets it to ``max(now, updated_at + 1)``, and ``created_at`` of a
  new checkpoint is that same value. All times are microseconds since 1970 in UTC, from the caller's clock.
- The **epoch** of a thread is a random number (`ids.new_epoch`), drawn when the thread is made, and drawn anew in the
  same step whenever entries of blocks are removed (and only then).
- A driver whose ``capabilities.incremental`` is false gets plans that name no base: block and payload are the whole
  document. No checkpoint refers to what another one stored, so its threads keep their epoch.
- An outage raises `BackendUnavailableError` (or another `BackendError`); it never looks like a missing thread.

What a removal must do with blocks is in `references`: `unreferenced` says what nothing refers to any more, `strip`
takes it out of a block's payload.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from locus_store.core.capabilities import Capabilities
from locus_store.core.errors import UnsupportedOperationError
from locus_store.core.words import Query

IfExists = Literal["newest", "in_place", "error"]


class Key(NamedTuple):
    """Names one thread."""

    tenant: str
    thread_id: str


class Base(NamedTuple):
    """The checkpoint that a save was planned on; the store checks all three."""

    version: int
    stamp: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One save, ready to be written.

    Attributes:
        checkpoint_id: The id of the checkpoint.
        fresh_id: True if this process has just drawn the id at random, so that it cannot be in use.
        stamp: 16 random bytes of this save. A row with this id *and* stamp is this very save, made by an earlier
            attempt whose answer was lost: the driver then answers with that row.
        parent: The id of the parent as named by the caller, or None for the head that the store finds.
        base: What the save reuses blocks of, or None if it reuses none.
        expected_version: The version the head must have (0: no such thread), or None.
        block: The payload of this save's own block **without the number in front** (`frames.numbered` puts it there),
            or None if the save adds no entries.
        low: The lowest older block that is reused, or None.
        high: The highest older block that is reused, or None.
        ranges: The text of the ranges column (`references.References.parse` reads it). 0 in it is the own block.
        payload: The rest of the document, a frame.
        metadata: The metadata as encoded text, or None.
        terms: Digests of 16 bytes by which the metadata is found; empty without metadata.
        size: Bytes that this save stores.
        now: The time of the call, in microseconds.
        expires_at: When the thread expires from now on, in microseconds, or None for never.
        keep: How many of the newest checkpoints stay; older ones are removed in the same step. None keeps all.
        texts: The searchable texts of block and payload, each once; empty unless the driver `indexes_texts`.
    """

    checkpoint_id: str
    fresh_id: bool
    stamp: bytes
    parent: str | None
    base: Base | None
    expected_version: int | None
    if_exists: IfExists
    block: bytes | None
    low: int | None
    high: int | None
    ranges: bytes
    payload: bytes
    metadata: bytes | None
    terms: tuple[bytes, ...]
    size: int
    now: int
    expires_at: int | None
    keep: int | None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """The save is durable.

    Attributes:
        version: The version the checkpoint has.
        epoch: The thread's epoch after the save.
        block: The number of the save's own block, 0 if it added none.
    """

    version: int
    epoch: int
    block: int


class Stale(NamedTuple):
    """Nothing was written: the base is gone, has another stamp, or the epoch changed."""


class Conflict(NamedTuple):
    """Nothing was written: the head's version is not the expected one."""

    actual: int


class Exists(NamedTuple):
    """Nothing was written: ``if_exists="error"`` and the id is in use."""


class NoParent(NamedTuple):
    """Nothing was written: the parent that the caller named is not in the thread."""


PutResult = Saved | Stale | Conflict | Exists | NoParent


@dataclass(frozen=True, slots=True)
class Info:
    """A checkpoint without its payload.

    Attributes:
        parent: The id of the parent, or None if it has none or the parent is gone. The store keeps the parent's
            *version*; the id is looked up when it is shown.
        created_at: Microseconds since 1970 in UTC.
        metadata: As it was in the plan.
        size: Bytes that the save stored.
        updated_at: When the *thread* was written last, in microseconds.
    """

    thread_id: str
    checkpoint_id: str
    version: int
    parent: str | None
    created_at: int
    metadata: bytes | None
    size: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint as it is stored, in one consistent view.

    Attributes:
        epoch: The thread's epoch.
        own_block: The number of the block that this checkpoint's save added, 0 if none.
        ranges: As it was in the plan.
        payload: As it was in the plan.
        blocks: The payloads of all stored blocks from the lowest to the highest one that the checkpoint refers to, in
            ascending order of number. A block that was joined with others comes whole, once.
    """

    checkpoint_id: str
    version: int
    stamp: bytes
    epoch: int
    own_block: int
    ranges: bytes
    payload: bytes
    blocks: Sequence[bytes]


class ContentsRow(NamedTuple):
    """One checkpoint of `Contents`; the attributes are those of `Stored`."""

    checkpoint_id: str
    version: int
    own_block: int
    ranges: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """All that is stored of a thread's documents, in one consistent view.

    Attributes:
        updated_at: When the thread was written last, in microseconds.
        checkpoints: All of them, but for those that are damaged; in any order.
        blocks: The payloads of all blocks, in ascending order of number.
    """

    updated_at: int
    checkpoints: Sequence[ContentsRow]
    blocks: Sequence[bytes]


class Clue(NamedTuple):
    """Where a search should look.

    Attributes:
        digest: The text in that thread that may match (`texts.digest`), or None for all texts of the thread.
    """

    thread_id: str
    digest: bytes | None


class Clues(NamedTuple):
    """Where a search should look, the most promising places first; ``complete`` if there are no others."""

    found: Sequence[Clue]
    complete: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a removal did.

    Attributes:
        count: Checkpoints removed.
        epoch_before: The thread's epoch before, None if the thread was not there.
        epoch: The epoch after; equal to ``epoch_before`` if no entry was removed; None if the thread is gone.
    """

    count: int
    epoch_before: int | None
    epoch: int | None


class Trimmed(NamedTuple):
    """What a sweep over a tenant removed: checkpoints (expired threads included), and blocks nothing referred to.

    ``skipped`` are the ids of threads that were left as they are, because foreign keys of the host's forbid a removal.
    """

    checkpoints: int
    blocks: int
    skipped: tuple[str, ...] = ()


class Driver(ABC):
    """One way to store threads; see the module's rules."""

    #: What this kind of storage can do.
    capabilities: Capabilities
    #: Bytes that one piece (a block, a rest) may have, or None for no limit.
    max_piece: int | None = None
    #: Whether no primitive ever waits, so that a plain call can run it to its end (bound to something synchronous).
    synchronous: bool = False
    #: For the store's repr: what it is bound to.
    bound_to: str = ""
    #: Whether `put` is to be given the searchable texts of what it stores.
    indexes_texts: bool = False

    @abstractmethod
    async def put(self, key: Key, plan: Plan) -> PutResult:
        """Check, then store block, checkpoint, terms and head; or answer why not and write nothing.

        The order of the checks: an own earlier attempt (same id and stamp) is `Saved` again; then ``expected_version``;
        then an id in use with ``if_exists="error"``; then a named parent; then base and epoch.

        An id in use with ``"newest"`` is replaced: the same row gets the new content, a new version, parent and time
        and becomes the head. With ``"in_place"`` the row keeps version, parent and time (the head stays where it is).
        What only the replaced content referred to is removed in the same step, and so are checkpoints beyond ``keep``.
        The new parent of a replaced checkpoint is the head at that moment, as for any other save; if it is itself the
        head, its former parent.
        """

    @abstractmethod
    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """One checkpoint (None: the head) with its blocks, or None."""

    @abstractmethod
    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        """One checkpoint (None: the head) without payload, or None."""

    @abstractmethod
    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """Checkpoints of a thread, newest version first, only those with a version below ``before``; no payloads."""

    @abstractmethod
    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """``(thread_id, updated_at)`` of threads, last write first, then by thread id; no payloads.

        ``pattern`` is to be read with `patterns.parse`; some id can match it (`Pattern.possible`).
        """

    @abstractmethod
    async def find(
        self,
        tenant: str,
        terms: Sequence[bytes],
        *,
        thread_id: str | None,
        newest_only: bool,
        limit: int | None,
        offset: int,
        now: int,
    ) -> list[Info]:
        """Checkpoints that have all the terms, no payloads.

        With ``newest_only`` only heads are looked at. The order is that of `threads`, within a thread newest first.
        No terms match every checkpoint, those without metadata included.
        """

    @abstractmethod
    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """Remove a thread (None) or some of its checkpoints, with what only they used. Unknown ids are passed over.

        A whole thread goes with its records and its expiry; nothing of it is left. The head goes back to the newest
        checkpoint that is left.
        """

    @abstractmethod
    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """Copy a thread: checkpoints up to version ``upto`` with ids, versions, stamps, times, metadata, terms and
        expiry, the records, and of the blocks what those checkpoints refer to. The destination appears whole or not at
        all, with an epoch of its own, ``updated_at`` of now, and counters that go on after the highest copied number.
        """

    @abstractmethod
    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """Remove checkpoints created before ``older_than``, but never the newest ``keep_last`` of a thread; threads
        that have expired; and blocks, or parts of them, and terms that nothing refers to. Atomic for each thread.
        """

    @abstractmethod
    async def reclaim(self) -> int:
        """Give free space back to the operating system; returns the bytes by which the storage shrank."""

    @abstractmethod
    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """Store small values of a thread under (scope, key). With ``keep`` a value that is there stays, without it is
        replaced. The thread need not have a checkpoint yet.
        """

    @abstractmethod
    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """``(scope, key, payload)`` of one scope or of all, ordered by scope, then by the order of first insertion."""

    @abstractmethod
    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """Remove the records of one scope or of all; returns how many."""

    @abstractmethod
    async def prepare(self) -> None:
        """Make what is missing or old (schema, folders) where that is allowed, and check it; idempotent, safe in
        parallel.
        """

    # What follows is for drivers whose ``capabilities.search`` is true.

    async def contents(self, key: Key, *, now: int) -> Contents | None:
        """All that is stored of a thread's documents, or None if there is no such thread."""
        raise UnsupportedOperationError(type(self).__name__, "search")

    async def clues(self, tenant: str, query: Query, pattern: str, *, limit: int | None, now: int) -> Clues:
        """Where texts may be that match a query: in threads whose ids match a pattern, which is read as in `threads`.

        Everything that was saved before the call is found; what does not match after all does no harm, since
        `contents` is looked at. Without an index these are all threads. Where an index names single texts, there are at
        most ``limit`` of them.
        """
        rows = await self.threads(tenant, pattern, limit=None, offset=0, now=now)
        return Clues([Clue(thread_id, None) for thread_id, _ in rows], complete=True)

    async def enable_search(self, *, allow_plain_text: bool) -> None:
        """Make the index that `clues` needs, for what is stored already too; idempotent. Without one: nothing to do."""
        if not self.capabilities.search:
            raise UnsupportedOperationError(type(self).__name__, "search")

    async def disable_search(self) -> None:
        """Remove the index, if there is one."""
        if not self.capabilities.search:
            raise UnsupportedOperationError(type(self).__name__, "search")

    def bound(self, target: object) -> Driver:
        """A driver whose primitives join the transaction of a session or connection of the caller's.

        It opens, commits, rolls back and retries nothing. Only where ``capabilities.transactions`` says so.
        """
        raise UnsupportedOperationError(type(self).__name__, "bound (transactions)")

    @abstractmethod
    async def aclose(self) -> None:
        """Release every connection, file and thread. The next call opens again; what is in memory only stays."""
