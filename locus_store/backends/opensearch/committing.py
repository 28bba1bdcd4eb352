"""Changing a thread: a slot's document is created under the next number, then the thread's own document says that it
is there.

Of two writers who want the same number one gets it; the other finishes what that one began, and looks again. Who dies
in between has reserved a number, no more: the next writer finishes it for them. What was planned on a state that is no
longer so, because the index was put back from a snapshot, is thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

from locus_store.backends.opensearch.names import Source, checkpoint_name, life_name, slot_name, thread_name
from locus_store.backends.opensearch.reading import (
    Recent,
    Seen,
    forget_wrong,
    name_source,
    read,
)
from locus_store.backends.opensearch.removing import Remover
from locus_store.backends.opensearch.runs import Runs
from locus_store.backends.opensearch.slots import Change, checkpoint_in
from locus_store.backends.opensearch.thread import Checkpoint, Thread
from locus_store.backends.opensearch.wire import Act, Found, Wire
from locus_store.core import clock
from locus_store.core.driver import Key
from locus_store.core.ids import new_epoch, new_stamp


@dataclass(frozen=True, slots=True)
class Step:
    """What is about to be written.

    Attributes:
        before: The thread before it; a new one if there was none.
        change: What it does.
        added: The checkpoint that it adds.
        source: The document of the slot.
    """

    before: Thread
    change: Change
    added: Checkpoint | None
    source: Source

    @property
    def slot(self) -> int:
        """The slot's number."""
        return self.before.slot + 1

    @property
    def after(self) -> Thread:
        """The thread after it."""
        return self.change.apply(self.before, self.added)


def new_thread(key: Key) -> Thread:
    """A thread in which nothing is yet."""
    none = Runs()
    life, mark = new_stamp().hex(), new_stamp().hex()
    return Thread(key, life, 0, mark, new_epoch(), 0, 0, 0, None, None, none, none, "", 0)


def life_source(thread: Thread) -> Source:
    """The document that says that a life has begun."""
    return {
        "kind": "life",
        "tenant": thread.key.tenant,
        "thread_id": thread.key.thread_id,
        "life": thread.life,
        "at": clock.system_clock(),
    }


class Committer:
    """Gives threads new slots, new lives, and back what others began.

    Args:
        wire: Where it is.
        remover: Removes what goes.
        recent: What this process wrote last.
    """

    def __init__(self, wire: Wire, remover: Remover, recent: Recent) -> None:
        self.wire = wire
        self.remover = remover
        self.recent = recent

    # ------------------------------------------------------------------------------------------------- the state

    async def settled(self, key: Key) -> Seen | None:
        """A thread's document, after finishing what others began."""
        while True:
            seen = await read(self.wire, key)
            if seen is None or seen.thread.cleaning is None:
                return seen
            cleaned = await self.remover.clean(seen)
            if cleaned is not None:
                return cleaned

    async def commit(self, seen: Seen | None, step: Step) -> Seen | None:
        """Write a step; None if somebody else was faster, and then nothing of it is there.

        Args:
            seen: The thread's document; None if there is none. It may be another life's, which has expired.
            step: The step.
        """
        if seen is None or seen.thread.life != step.before.life:
            return await self._begin(seen, step)
        slot = slot_name(step.before.life, step.slot)
        done = await self.wire.put_several([*_names(step), Act("create", slot, step.source)])
        if not done[-1]:
            there = await self.wire.get(slot)
            if there is None or there.source["data"].get("change", {}).get("mark") != step.change.mark:
                await self._help(step.before.key, there)
                await self._take_back(step)
                return None
        after = step.after
        source = after.dump()
        place = (await self.wire.put(Act("index", seen.found.id, source, seen.found))).place
        if place is not None:
            return Seen(after, Found(seen.found.id, source, *place))
        return await self._finish(step)

    async def _finish(self, step: Step) -> Seen | None:
        """Have the thread's document tell of a slot that was created, after somebody else has changed it."""
        slot = slot_name(step.before.life, step.slot)
        while True:
            seen = await read(self.wire, step.before.key)
            if seen is not None and seen.thread.life == step.before.life:
                if seen.thread.slot >= step.slot:
                    return seen  # somebody has finished it
                if (seen.thread.slot, seen.thread.mark) == (step.slot - 1, step.change.prev):
                    after = step.change.apply(seen.thread, step.added)
                    source = after.dump()
                    place = (await self.wire.put(Act("index", seen.found.id, source, seen.found))).place
                    if place is not None:
                        return Seen(after, Found(seen.found.id, source, *place))
                    continue
            # The thread that this was for is gone.
            there = await self.wire.get(slot)
            if there is not None and there.source["data"].get("change", {}).get("mark") == step.change.mark:
                await self.wire.put(Act("delete", slot, seen=there))
            await self._take_back(step)
            return None

    async def _take_back(self, step: Step) -> None:
        """Put right, or remove, the names that a step wrote which came to nothing."""
        if not (named := _named(step)):
            return
        seen = await read(self.wire, step.before.key)
        live = seen.thread.live if seen is not None and seen.thread.life == step.before.life else Runs()
        for checkpoint, slot in named:
            if live.slot(checkpoint.version) != slot:
                name = await self.wire.get(checkpoint_name(step.before.key, checkpoint.checkpoint_id))
                if name is not None:
                    await forget_wrong(self.wire, seen and seen.thread, name)

    async def _help(self, key: Key, there: Found | None) -> None:
        """Finish what another writer began, or throw it away if it was for something that is no longer so."""
        seen = await self.settled(key)
        if there is None or seen is None or there.source["life"] != seen.thread.life:
            return
        stored = there.source["data"].get("change")
        if stored is None or there.source["data"]["slot"] != seen.thread.slot + 1:
            return
        if stored.get("prev") != seen.thread.mark:
            await self.wire.put(Act("delete", there.id, seen=there))
            return
        change = Change.load(stored)
        added = checkpoint_in(there.source)
        step = Step(seen.thread, change, added, there.source)
        if names := _names(step):
            await self.wire.put_several(names)
        source = step.after.dump()
        await self.wire.put(Act("index", seen.found.id, source, seen.found))

    async def _begin(self, seen: Seen | None, step: Step) -> Seen | None:
        """Write the first step of a life: its documents first, then the one by which they are there."""
        life = step.before.life
        mine = [
            Act("index", life_name(life), life_source(step.before)),
            Act("create", slot_name(life, step.slot), step.source),
        ]
        await self.wire.put_several(mine)
        return await self.replace_thread(seen, step.after)

    async def replace_thread(self, seen: Seen | None, after: Thread) -> Seen | None:
        """Put a thread whose documents are there in place of none, or of another life's; None if it did not succeed.

        The documents of the life that is over are removed, whichever it is.
        """
        name = thread_name(after.key)
        source = after.dump()
        if seen is None:
            done = await self.wire.put(Act("create", name, source))
        else:
            done = await self.wire.put(Act("index", name, source, seen.found))
        place = done.place
        if place is None:
            now = await read(self.wire, after.key)
            if now is None or now.thread.life != after.life:
                await self.remover.remove_all(after)
                return None
            made = now  # it was this process's own, whose answer was lost
        else:
            made = Seen(after, Found(name, source, *place))
        if seen is not None:
            await self.remover.remove_all(seen.thread)
        return made


def _named(step: Step) -> list[tuple[Checkpoint, int]]:
    """The checkpoints, with their slots, that get a name with a step: those that are not the head, or will not be.

    Where the head is, the thread itself tells, so a checkpoint gets its name from the save after it. Then a save that
    comes to nothing names no checkpoint that was never there.
    """
    before, added = step.before, step.added
    if added is None:
        return []
    head = before.head
    if head is not None and added.version <= head.version:
        return [] if added.version == head.version else [(added, step.slot)]
    slot = None if head is None or head.version in step.change.gone else before.live.slot(head.version)
    return [] if head is None or slot is None else [(head, slot)]


def _names(step: Step) -> list[Act]:
    key = step.before.key
    return [
        Act("index", checkpoint_name(key, one.checkpoint_id), name_source(step.before, one, slot))
        for one, slot in _named(step)
    ]
