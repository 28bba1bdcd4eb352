"""Reading one thread: its own document first, then those of slots, both as they are at this moment.

Nothing is locked. Documents that a later removal has changed, or taken away, say so or are missing; then it is read
again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from locus_store.backends.opensearch.names import SMALL, Source, checkpoint_name, slot_name, thread_name, unpack
from locus_store.backends.opensearch.slots import checkpoint_in
from locus_store.backends.opensearch.thread import Checkpoint, Thread
from locus_store.backends.opensearch.wire import PAGE, Act, Found, Wire
from locus_store.core import clock
from locus_store.core.driver import Info, Key, Stored
from locus_store.core.frames import DamagedError

T = TypeVar("T")

BLOCK = ["data.cleaned", "data.slot", "body.block"]
"""What of a slot is read for its block."""

_ATTEMPTS = 50
_REMEMBERED = 1000
_LARGE = 64 * 1024
_BELIEVED = 60.0


class DisturbedError(Exception):
    """A writer was faster; what was read does not fit together."""


class Seen(NamedTuple):
    """A thread's document as it was read, or written by this process."""

    thread: Thread
    found: Found


class Recent:
    """The threads that this process wrote last, so that the next save need not read them again.

    What is remembered is only believed as far as a compare-and-set proves it, and not for longer than a minute: after
    that an index may have been put back from a snapshot, with the same numbers for other things.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[float, Seen]] = OrderedDict()

    def take(self, key: Key) -> Seen | None:
        """What is remembered of a thread; it is forgotten thereby."""
        at, seen = self._kept.pop(key, (0.0, None))
        return seen if time.monotonic() - at < _BELIEVED else None

    def keep(self, seen: Seen) -> None:
        """Remember a thread, unless that takes much memory."""
        if seen.thread.head is not None and len(seen.thread.head.metadata or b"") > _LARGE:
            return
        self._kept[seen.thread.key] = time.monotonic(), seen._replace(found=seen.found._replace(source={}))
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)


async def read(wire: Wire, key: Key) -> Seen | None:
    """A thread's document."""
    found = await wire.get(thread_name(key))
    return None if found is None else Seen(Thread.load(found.source), found)


async def slots(wire: Wire, thread: Thread, numbers: Sequence[int], fields: Any) -> list[Found]:
    """The documents of some slots, as the thread's document has them.

    Raises:
        DisturbedError: One is missing, or was changed by what the thread's document does not say yet.
    """
    found: list[Found] = []
    for one in await wire.get_several([(slot_name(thread.life, number), fields) for number in numbers]):
        if one is None or one.source["data"]["cleaned"] > thread.slot:
            raise DisturbedError
        found.append(one)
    return found


async def checkpoints(wire: Wire, thread: Thread, numbers: Iterable[int]) -> list[Checkpoint]:
    """The checkpoints in some slots, without their payloads; raises what `slots` does."""
    found = [checkpoint_in(one.source) for one in await slots(wire, thread, list(numbers), SMALL)]
    if None in found:
        raise DisturbedError
    return [one for one in found if one is not None]


async def consistent(
    wire: Wire,
    key: Key,
    now: int,
    action: Callable[[Thread], Awaitable[T]],
    missing: T,
    look: Callable[[], Awaitable[Seen | None]] | None = None,
) -> T:
    """What an action reads of a thread at one moment, or ``missing`` if there is no thread with checkpoints.

    Args:
        wire: Where it is.
        key: The thread.
        now: A thread that has expired by then is missing.
        action: Reads, perhaps more than once.
        missing: The answer without a thread.
        look: Reads the thread's document, if something else is to be read with it.
    """
    before: Found | None = None
    for _ in range(_ATTEMPTS):
        seen = await (read(wire, key) if look is None else look())
        if seen is None or seen.thread.expired(now) or not seen.thread.live.count():
            return missing
        try:
            return await action(seen.thread)
        except DisturbedError:
            if before and (before.seq_no, before.term) == (seen.found.seq_no, seen.found.term):
                break
            before = seen.found
    raise DamagedError("documents are missing that the thread refers to")


async def find(wire: Wire, thread: Thread, checkpoint_id: str, name: Source | None) -> int | None:
    """The slot of a checkpoint, or None.

    Args:
        wire: Where it is.
        thread: The thread.
        checkpoint_id: The checkpoint.
        name: The document that says where it is; it may be wrong, but of those that are not the head none is missing.
    """
    if thread.head is not None and thread.head.checkpoint_id == checkpoint_id:
        return thread.live.slot(thread.head.version)
    if name is None:
        return None
    slot: int = name["data"]["slot"]
    if name["life"] == thread.life and slot in thread.live.slots():
        [there] = await checkpoints(wire, thread, [slot])
        if there.checkpoint_id == checkpoint_id:
            return slot
    # It was overwritten by a save that is not there, or not yet, or that was late.
    newest_first = [slot for _, slot in thread.live.newest_first()]
    for at in range(0, len(newest_first), PAGE):
        page = newest_first[at : at + PAGE]
        for number, checkpoint in zip(page, await checkpoints(wire, thread, page), strict=True):
            if checkpoint.checkpoint_id == checkpoint_id:
                await wire.put(
                    Act("index", checkpoint_name(thread.key, checkpoint_id), name_source(thread, checkpoint, number))
                )
                return number
    return None


def name_source(thread: Thread, checkpoint: Checkpoint, slot: int) -> Source:
    """The document that says where a checkpoint is."""
    return {
        "kind": "name",
        "tenant": thread.key.tenant,
        "thread_id": thread.key.thread_id,
        "life": thread.life,
        "name": checkpoint_name(thread.key, checkpoint.checkpoint_id),
        "at": clock.system_clock(),
        "data": {
            "id": checkpoint.checkpoint_id,
            "slot": slot,
            "first": checkpoint.first_block,
            "last": checkpoint.last_block,
        },
    }


async def forget_wrong(wire: Wire, thread: Thread | None, name: Found) -> bool:
    """Remove a name if no checkpoint has it; one that is somewhere else is put right. Returns whether it went."""
    # If writers are in the way, the name may stay: one too many does no harm.
    with suppress(DisturbedError):
        if thread is None or await find(wire, thread, name.source["data"]["id"], name.source) is None:
            return bool(await wire.put(Act("delete", name.id, seen=name)))
    return False


class Reader:
    """The primitives that read one thread.

    Args:
        wire: Where it is.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def get(self, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
        """See `Driver.get`."""
        thread_and_name = _ThreadAndName(self.wire, key, checkpoint_id)

        async def action(thread: Thread) -> Stored | None:
            head = thread.head
            if head is not None and checkpoint_id in (None, head.checkpoint_id):
                return await self._stored(thread, head.version, (head.first_block, head.last_block))
            name = thread_and_name.name
            if name is None or checkpoint_id is None:
                return None
            span = name["data"]["first"], name["data"]["last"]
            version = thread_and_name.version(thread)
            found = None if version is None else await self._stored(thread, version, span)
            if found is not None and found.checkpoint_id == checkpoint_id:
                return found
            slot = await find(self.wire, thread, checkpoint_id, name)
            if slot is None:
                return None
            [there] = await checkpoints(self.wire, thread, [slot])
            return await self._stored(thread, there.version, (there.first_block, there.last_block))

        return await consistent(self.wire, key, now, action, None, thread_and_name.look)

    async def _stored(self, thread: Thread, version: int, span: tuple[int, int]) -> Stored:
        slot = thread.live.slot(version)
        if slot is None:
            raise DisturbedError
        holders = [s for _, s in thread.blocks.pairs(*span)] if span[1] else []
        others = [s for s in holders if s != slot]
        wanted = [(slot_name(thread.life, slot), True), *((slot_name(thread.life, s), BLOCK) for s in others)]
        found: dict[int, Found] = {}
        for number, one in zip([slot, *others], await self.wire.get_several(wanted), strict=True):
            if one is None or one.source["data"]["cleaned"] > thread.slot:
                raise DisturbedError
            found[number] = one
        checkpoint = checkpoint_in(found[slot].source)
        if checkpoint is None:
            raise DisturbedError
        try:
            return Stored(
                checkpoint.checkpoint_id,
                checkpoint.version,
                checkpoint.stamp,
                thread.epoch,
                checkpoint.own_block,
                checkpoint.ranges.encode(),
                unpack(found[slot].source["body"]["payload"]),
                [unpack(found[s].source["body"]["block"]) for s in holders],
            )
        except (KeyError, ValueError) as e:
            error = DamagedError("a document lacks what belongs into it")
            error.checkpoint_id = checkpoint.checkpoint_id
            raise error from e

    async def info(self, key: Key, checkpoint_id: str | None, now: int) -> Info | None:
        """See `Driver.info`."""
        thread_and_name = _ThreadAndName(self.wire, key, checkpoint_id)

        async def action(thread: Thread) -> Info | None:
            head = thread.head
            if head is not None and checkpoint_id in (None, head.checkpoint_id):
                return thread.info(head)
            if checkpoint_id is None:
                return None
            slot = await find(self.wire, thread, checkpoint_id, thread_and_name.name)
            return None if slot is None else thread.info((await checkpoints(self.wire, thread, [slot]))[0])

        return await consistent(self.wire, key, now, action, None, thread_and_name.look)

    async def infos(self, key: Key, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""

        async def action(thread: Thread) -> list[Info]:
            wanted = [slot for _, slot in thread.live.newest_first(before)][:limit]
            return [thread.info(c) for c in await checkpoints(self.wire, thread, wanted)]

        none: list[Info] = []
        return await consistent(self.wire, key, now, action, none)


class _ThreadAndName:
    """Reads a thread's document and, with it, the one that says where a checkpoint is."""

    def __init__(self, wire: Wire, key: Key, checkpoint_id: str | None) -> None:
        self._wire = wire
        self._key = key
        self._checkpoint_id = checkpoint_id
        self.name: Source | None = None

    async def look(self) -> Seen | None:
        """The thread's document."""
        if self._checkpoint_id is None:
            return await read(self._wire, self._key)
        names = [thread_name(self._key), checkpoint_name(self._key, self._checkpoint_id)]
        thread, name = await self._wire.get_several([(one, True) for one in names])
        self.name = None if name is None else name.source
        return None if thread is None else Seen(Thread.load(thread.source), thread)

    def version(self, thread: Thread) -> int | None:
        """The version in the slot that the name says; it may be that of another checkpoint."""
        if self.name is None or self.name["life"] != thread.life:
            return None
        slot = self.name["data"]["slot"]
        return next((v for v, s in thread.live.pairs() if s == slot), None)
