"""Changing a thread: a slot's document is created under the next number, then the thread's own document says that it
is there.

Of two writers who want the same number one gets it; the other finishes what that one began, and looks again. Who dies
in between has reserved a number, no more: the next writer finishes it for them. What was planned on a state that is no
longer so, because the index was put back from a snapshot, is thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from locus_store.backends.opensearch.layout import (
    Change,
    Checkpoint,
    Source,
    Thread,
    checkpoint_in,
    checkpoint_name,
    life_name,
    pack_terms,
    slot_name,
    slot_source,
    thread_name,
)
from locus_store.backends.opensearch.reading import (
    DisturbedError,
    Recent,
    Seen,
    checkpoints,
    find,
    forget_wrong,
    name_source,
    read,
)
from locus_store.backends.opensearch.removing import Removal, Remover
from locus_store.backends.opensearch.runs import Runs
from locus_store.backends.opensearch.searching import add_texts
from locus_store.backends.opensearch.wire import Act, Found, Wire
from locus_store.core import clock, frames
from locus_store.core.driver import Conflict, Dropped, Exists, Key, NoParent, Plan, PutResult, Saved, Stale
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


class Saver:
    """The primitives that give a thread a new slot.

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
        change = Change.load(stored)
        if change.prev != seen.thread.mark:
            await self.wire.put(Act("delete", there.id, seen=there))
            return
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

    # ---------------------------------------------------------------------------------------------------- saving

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        remembered = self.recent.take(key)
        while True:
            seen = remembered or await self.settled(key)
            try:
                step = await self._decide(key, plan, seen)
            except DisturbedError:
                remembered = None
                continue
            if not isinstance(step, Step):
                if remembered is None:
                    return step
                remembered = None  # what is remembered is not enough to refuse
                continue
            remembered = None
            made = await self.commit(seen, step)
            if made is not None:
                await self._afterwards(made)
                assert step.added is not None
                return Saved(step.added.version, step.change.epoch, step.change.block)

    async def _afterwards(self, made: Seen) -> None:
        cleaned = await self.remover.clean(made) if made.thread.cleaning is not None else made
        if cleaned is not None:
            self.recent.keep(cleaned)

    async def _decide(self, key: Key, plan: Plan, seen: Seen | None) -> PutResult | Step:
        live = seen.thread if seen and not seen.thread.expired(plan.now) else None
        old = None if live is None or plan.fresh_id else await self._checkpoint(live, plan.checkpoint_id)
        if live and old and old.stamp == plan.stamp:
            return Saved(old.version, live.epoch, old.own_block)
        head = live.head if live else None
        actual = head.version if head else 0
        if plan.expected_version not in (None, actual):
            return Conflict(actual)
        if old and plan.if_exists == "error":
            return Exists()
        parent = head
        if plan.parent is not None:
            parent = await self._checkpoint(live, plan.parent) if live else None
            if parent is None:
                return NoParent()
        if plan.base is not None and not (live and await self._is_there(live, plan)):
            return Stale()
        return await self._step(live or new_thread(key), plan, old, parent)

    async def _checkpoint(self, thread: Thread, checkpoint_id: str) -> Checkpoint | None:
        if thread.head is not None and thread.head.checkpoint_id == checkpoint_id:
            return thread.head
        name = await self.wire.get(checkpoint_name(thread.key, checkpoint_id))
        slot = await find(self.wire, thread, checkpoint_id, name.source if name else None)
        return None if slot is None else (await checkpoints(self.wire, thread, [slot]))[0]

    async def _is_there(self, thread: Thread, plan: Plan) -> bool:
        base = plan.base
        assert base is not None
        if base.epoch != thread.epoch:
            return False
        if thread.head is not None and thread.head.version == base.version:
            return thread.head.stamp == base.stamp
        slot = thread.live.slot(base.version)
        if slot is None:
            return False
        [found] = await checkpoints(self.wire, thread, [slot])
        return found.stamp == base.stamp

    async def _step(self, thread: Thread, plan: Plan, old: Checkpoint | None, parent: Checkpoint | None) -> Step:
        in_place = old if plan.if_exists == "in_place" else None
        own = thread.block_count + 1 if plan.block is not None else 0
        updated_at = max(plan.now, thread.updated_at + 1)
        if in_place or (parent and old and parent.version == old.version):
            assert old is not None
            parent_version, parent_id = old.parent_version, old.parent_id
        else:
            parent_version, parent_id = (parent.version, parent.checkpoint_id) if parent else (None, None)
        added = Checkpoint(
            plan.checkpoint_id,
            in_place.version if in_place else thread.version + 1,
            plan.stamp,
            parent_version,
            parent_id,
            in_place.created_at if in_place else updated_at,
            plan.metadata,
            tuple(pack_terms(plan.terms)),
            plan.size,
            own,
            plan.low or own,
            max(plan.high or 0, own),
            plan.ranges.decode(),
        )
        gone = [old.version] if old and not in_place else []
        if plan.keep is not None:
            versions = [v for v, _ in thread.live.pairs() if v not in gone and v != added.version] + [added.version]
            versions.sort()
            gone += [v for v in versions[: -plan.keep] if v != added.version]
        change = Change(
            thread.mark,
            plan.stamp.hex(),
            thread.epoch,
            updated_at,
            plan.expires_at,
            thread.oldest_at if thread.live.count() else added.created_at,
            block=own,
        )
        if gone or in_place:
            removal = await self.remover.plan(thread, gone, replaced=in_place.version if in_place else None, new=added)
            change = _with(change, removal, thread)
            if not thread.live.minus(gone).count():
                change = replace(change, oldest_at=added.created_at)
        block = None if plan.block is None else frames.numbered(own, plan.block)
        source = slot_source(thread, thread.slot + 1, change, added, plan.payload, block)
        add_texts(source, plan.texts, self.remover.codec)
        return Step(thread, change, added, source)

    # -------------------------------------------------------------------------------------------------- removing

    async def drop(self, key: Key, checkpoint_ids: list[str] | None, now: int) -> Dropped:
        """See `Driver.drop`."""
        self.recent.take(key)
        while True:
            seen = await self.settled(key)
            if seen is None:
                return Dropped(0, None, None)
            thread = seen.thread
            count = 0 if thread.expired(now) else thread.live.count()
            if checkpoint_ids is None or (thread.expired(now) and not count):
                if checkpoint_ids is not None:
                    return Dropped(0, None, None)
                if await self.remover.end(seen):
                    return Dropped(count, thread.epoch if count else None, None)
                continue
            if not count:
                return Dropped(0, None, None)
            try:
                versions = await self._versions(thread, checkpoint_ids)
                if not versions:
                    return Dropped(0, thread.epoch, thread.epoch)
                dropped = await self.drop_versions(seen, versions)
            except DisturbedError:
                continue
            if dropped is not None:
                return dropped[0]

    async def drop_versions(self, seen: Seen, versions: list[int]) -> tuple[Dropped, int] | None:
        """Remove checkpoints; also says how many blocks went. None if somebody else was faster."""
        thread = seen.thread
        if len(versions) == thread.live.count():
            done = await self.remover.end(seen)
            return (Dropped(len(versions), thread.epoch, None), thread.blocks.count()) if done else None
        removal = await self.remover.plan(thread, versions)
        change = _with(
            Change(
                thread.mark,
                new_stamp().hex(),
                thread.epoch,
                thread.updated_at,
                thread.expires_at,
                thread.oldest_at,
            ),
            removal,
            thread,
        )
        step = Step(thread, change, None, slot_source(thread, thread.slot + 1, change, None, None, None))
        made = await self.commit(seen, step)
        if made is None:
            return None
        await self._afterwards(made)
        return Dropped(len(versions), thread.epoch, change.epoch), len(removal.freed)

    async def _versions(self, thread: Thread, checkpoint_ids: list[str]) -> list[int]:
        found: set[int] = set()
        wanted = list(dict.fromkeys(checkpoint_ids))
        names = await self.wire.get_several([(checkpoint_name(thread.key, one), True) for one in wanted])
        for one, name in zip(wanted, names, strict=True):
            slot = await find(self.wire, thread, one, name.source if name else None)
            if slot is not None:
                [version] = [v for v, s in thread.live.pairs() if s == slot]
                found.add(version)
        return sorted(found)


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


def _with(change: Change, removal: Removal, thread: Thread) -> Change:
    """A change that also removes."""
    return replace(
        change,
        epoch=new_epoch() if removal.changes_blocks else change.epoch,
        oldest_at=change.oldest_at if removal.oldest_at is None else removal.oldest_at,
        gone=removal.gone,
        freed=removal.freed,
        head=removal.head,
        cleaning=replace(removal.cleaning, by=thread.slot + 1),
    )
