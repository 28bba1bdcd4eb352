"""The documents of a thread, as they are in the index.

    t-<hash>            the thread: its counters, its head, and where its checkpoints and blocks are; what it says is so
    <life>-<slot>       a slot: what one save or one removal added, created once, under the next number
    n-<hash>            a name: in which slot the checkpoint with an id is; a hint, which may be wrong
    <life>-r-<hash>     records: those of one scope
    <life>-l            a life: that documents of a thread's life are there, so that `vacuum` finds what nobody needs

A **life** is a random name for one thread from its first save to its deletion. All but the thread's own document carry
it, so a thread is gone, whole, when that one document is. ``data`` holds what is small and ``body`` what is not;
neither is indexed. The other fields are for searching, and no name of a field comes from outside.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from locus_store.backends.opensearch.runs import Runs
from locus_store.core import clock
from locus_store.core.driver import Info, Key
from locus_store.core.references import References

Source = dict[str, Any]

SMALL = {"excludes": ["body", "words"]}
"""What of a document is read where its payloads are not wanted."""


def _hash(*parts: str) -> str:
    digest = blake2b(digest_size=20)
    for part in parts:
        data = part.encode()
        digest.update(b"%d " % len(data) + data)
    return digest.hexdigest()


def thread_name(key: Key) -> str:
    """The id of a thread's document."""
    return f"t-{_hash(*key)}"


def slot_name(life: str, slot: int) -> str:
    """The id of a slot's document."""
    return f"{life}-{slot}"


def checkpoint_name(key: Key, checkpoint_id: str) -> str:
    """The id of the document that says where a checkpoint is."""
    return f"n-{_hash(*key, checkpoint_id)}"


def records_name(life: str, scopes: str, scope: str) -> str:
    """The id of the document that holds the records of a scope."""
    return f"{life}-r-{_hash(scopes, scope)}"


def life_name(life: str) -> str:
    """The id of the document that says that a life has begun."""
    return f"{life}-l"


def pack(data: bytes) -> str:
    """Bytes as JSON has them."""
    return b2a_base64(data, newline=False).decode()


def unpack(text: str) -> bytes:
    """The bytes again."""
    return a2b_base64(text)


def pack_terms(terms: tuple[bytes, ...] | list[bytes]) -> list[str]:
    """Digests as they are searched for."""
    return [term.hex() for term in terms]


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


@dataclass(frozen=True, slots=True)
class Change:
    """What one slot does to a thread: all that is needed to go on from the state before it.

    Attributes:
        prev: The mark of the slot before; on any other state the change must not be made.
        mark: Its own mark.
        gone: Versions of checkpoints that go.
        freed: Numbers of blocks that go.
        added: Whether the slot adds a checkpoint.
        block: The number of the block that it adds, 0 if none.
        head: The head after it where that is not the checkpoint that the slot adds.
        cleaning: What is to be done afterwards.
    """

    prev: str
    mark: str
    epoch: int
    updated_at: int
    expires_at: int | None
    oldest_at: int
    gone: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()
    block: int = 0
    head: Checkpoint | None = None
    cleaning: Cleaning | None = None

    def dump(self) -> Source:
        """As JSON has it."""
        return {
            "prev": self.prev,
            "mark": self.mark,
            "epoch": self.epoch,
            "updated": self.updated_at,
            "expires": self.expires_at,
            "oldest": self.oldest_at,
            "gone": list(self.gone),
            "freed": list(self.freed),
            "block": self.block,
            "head": self.head and [self.head.dump(), list(self.head.terms)],
            "cleaning": self.cleaning and self.cleaning.dump(),
        }

    @classmethod
    def load(cls, stored: Source) -> Change:
        """Read what `dump` gave."""
        return cls(
            stored["prev"],
            stored["mark"],
            stored["epoch"],
            stored["updated"],
            stored["expires"],
            stored["oldest"],
            tuple(stored["gone"]),
            tuple(stored["freed"]),
            stored["block"],
            stored["head"] and Checkpoint.load(*stored["head"]),
            Cleaning.load(stored["cleaning"]),
        )

    def apply(self, thread: Thread, added: Checkpoint | None) -> Thread:
        """The thread after the change.

        Args:
            thread: The thread before.
            added: The checkpoint that the slot adds, or puts in place of one with the same version.
        """
        slot = thread.slot + 1
        live = thread.live.minus(self.gone)
        blocks = thread.blocks.minus(self.freed)
        head = self.head or thread.head
        version = thread.version
        if added is not None:
            live = live.plus(added.version, slot)
            version = max(version, added.version)
            if live.last() == added.version:
                head = added
        if self.block:
            blocks = blocks.plus(self.block, slot)
        return replace(
            thread,
            slot=slot,
            mark=self.mark,
            epoch=self.epoch,
            version=version,
            block_count=max(thread.block_count, self.block),
            updated_at=self.updated_at,
            expires_at=self.expires_at,
            head=head,
            live=live,
            blocks=blocks,
            oldest_at=self.oldest_at,
            cleaning=self.cleaning,
        )


def slot_source(
    thread: Thread, slot: int, change: Change, added: Checkpoint | None, payload: bytes | None, block: bytes | None
) -> Source:
    """A slot's document.

    Args:
        thread: Its thread.
        slot: Its number.
        change: What it does.
        added: The checkpoint that it adds.
        payload: The checkpoint's payload.
        block: The payload of its block.
    """
    data: Source = {"slot": slot, "cleaned": 0, "change": change.dump()}
    body: Source = {}
    found: Source = {
        "kind": "event",
        "tenant": thread.key.tenant,
        "thread_id": thread.key.thread_id,
        "life": thread.life,
        "slot": slot,
        "at": clock.system_clock(),
        "data": data,
        "body": body,
    }
    if added is not None and payload is not None:
        found["kind"] = "checkpoint"
        data["checkpoint"] = added.dump()
        body["payload"] = pack(payload)
        if added.terms:
            found["terms"] = list(added.terms)
    if block is not None:
        body["block"] = pack(block)
    return found


def checkpoint_in(source: Source) -> Checkpoint | None:
    """The checkpoint that is in a slot's document, if there is one."""
    stored = source["data"].get("checkpoint")
    return None if stored is None else Checkpoint.load(stored, source.get("terms"))
