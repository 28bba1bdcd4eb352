"""Saving, and removing checkpoints: what is looked at, and what follows from it; `committing` writes it."""

from __future__ import annotations

from dataclasses import replace

from locus_store.backends.opensearch.committing import Committer, Step, new_thread
from locus_store.backends.opensearch.names import checkpoint_name, pack_terms
from locus_store.backends.opensearch.reading import (
    DisturbedError,
    Seen,
    checkpoints,
    find,
)
from locus_store.backends.opensearch.removing import Removal
from locus_store.backends.opensearch.searching import add_texts
from locus_store.backends.opensearch.slots import Change, slot_source
from locus_store.backends.opensearch.thread import Checkpoint, Thread
from locus_store.core import frames
from locus_store.core.driver import Conflict, Dropped, Exists, Key, NoParent, Plan, PutResult, Saved, Stale
from locus_store.core.ids import new_epoch, new_stamp


class Saver(Committer):
    """The primitives that give a thread a new slot."""

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
