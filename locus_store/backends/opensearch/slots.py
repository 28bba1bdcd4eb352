"""Slots: what one save or one removal adds, and what it does to its thread."""

from __future__ import annotations

from dataclasses import dataclass, replace

from locus_store.backends.opensearch.names import Source, pack
from locus_store.backends.opensearch.thread import Checkpoint, Cleaning, Thread
from locus_store.core import clock


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
