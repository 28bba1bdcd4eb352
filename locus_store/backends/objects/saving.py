"""A save: one new record. What leads to it is announced before, what it makes useless is deleted after."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field, replace

from locus_store.backends.objects import finding, names
from locus_store.backends.objects.formats import OWN, Checkpoint, Parent, Record, State
from locus_store.backends.objects.names import Place
from locus_store.backends.objects.parallel import beside
from locus_store.backends.objects.removing import when_removed
from locus_store.backends.objects.sweeping import sweep_folder
from locus_store.backends.objects.thread import Thread, new_mark
from locus_store.backends.objects.view import Found, Overtaken, View
from locus_store.core.driver import Conflict, Exists, NoParent, Plan, PutResult, Saved, Stale
from locus_store.core.errors import BackendError


async def save(thread: Thread, plan: Plan) -> PutResult:
    """See `Driver.put`."""
    litter: set[str] = set()
    lost: set[Place] = set()
    view = await thread.newest_to_write()
    attempt = 0
    while True:
        try:
            view = await when_removed(thread, view, plan.now)
            result = await _attempt(thread, view, plan, litter, lost)
            if isinstance(result, View):
                view = result
                continue
        except Overtaken as e:
            place, theirs = Place.of(view.next, None), e.rival.checkpoint if e.rival else None
            if theirs is None:  # what says where an id is may be the other's as well
                litter.difference_update([key for key in litter if key.endswith(f"/{place.text()}")])
            else:
                litter.discard(thread.folder.id_at(theirs.checkpoint_id, place))
            if theirs and theirs.checkpoint_id != plan.checkpoint_id:
                lost.add(place)
            view = await thread.go_on(attempt, e)
            attempt += 1
            continue
        if litter:
            with suppress(BackendError):  # it points nowhere; a later sweep finds it
                await thread.port.delete(sorted(litter))
        return result


@dataclass
class _Step:
    """What a save is going to do.

    Attributes:
        record: The next record.
        announced: Objects that must be there before, by key.
        useless: What can be deleted after, checkpoints with their ids where those are known.
        keys: Other objects that can be deleted as soon as the record is there.
        version: The version that the saved checkpoint has.
    """

    record: Record
    version: int
    announced: dict[str, bytes]
    useless: list[tuple[Place, str | None]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


async def _attempt(
    thread: Thread, view: View, plan: Plan, litter: set[str], lost: Container[Place]
) -> PutResult | View:
    """What came of it; or the thread, if its log had to begin first."""
    state = view.alive(plan.now)
    head = view.record.checkpoint if state and view.record else None
    old = await finding.find(thread, view, plan.checkpoint_id, lost) if state and not plan.fresh_id else None
    replaced = old.record.checkpoint if old else None
    epoch = state.epoch if state else 0
    if replaced and replaced.stamp == plan.stamp:
        return Saved(replaced.version, epoch, OWN if replaced.block else 0)
    actual = head.version if head else 0
    if plan.expected_version not in (None, actual):
        return Conflict(actual)
    if replaced and plan.if_exists == "error":
        return Exists()
    parent: Parent | None = Parent(view.number, head.checkpoint_id) if head else None
    if plan.parent is not None:
        named = await finding.find(thread, view, plan.parent) if state else None
        if named is None:
            return NoParent()
        parent = Parent(named.position, plan.parent)
    if plan.base is not None:
        return Stale()  # nothing can be built on
    if view.record is None:
        return await thread.begin(plan.now)
    if old and replaced and parent and parent.position == old.position:
        parent = replaced.parent

    if old and replaced and plan.if_exists == "in_place" and old.position != view.number:
        step = await _behind_the_head(thread, view, plan, old, replaced)
    else:
        step = await _at_the_head(thread, view, plan, old, parent)
    litter.update(step.announced)
    await thread.announce(view, step.announced)
    after = await thread.append(view, step.record, step.keys)
    litter.difference_update(step.announced)
    with suppress(BackendError):  # the save is done; what is left does not count and is swept later
        await _clean_up(thread, view, after, step, plan.now)
    return Saved(step.version, step.record.state.epoch, OWN if plan.block is not None else 0)


async def _clean_up(thread: Thread, before: View, after: View, step: _Step, now: int) -> None:
    if before.number and before.alive(now) is None:
        dead = before.state
        await sweep_folder(thread, after, now, dead=dead)
    keys = await thread.keys_at(step.useless)
    if keys:
        await thread.port.delete(keys)
    thread.mark_clean(after)


def _next_state(view: View, plan: Plan) -> State:
    """The thread after the save, but for what is removed."""
    state = view.alive(plan.now)
    if state is None:
        state = State.new(plan.now, view.next)
    updated_at = max(plan.now, state.updated_at + 1)
    return replace(
        state, write=names.token(plan.now), mark=new_mark(), updated_at=updated_at, expires_at=plan.expires_at
    )


async def _at_the_head(thread: Thread, view: View, plan: Plan, old: Found | None, parent: Parent | None) -> _Step:
    """A save whose checkpoint is the newest one."""
    state = _next_state(view, plan)
    replaced = old.record.checkpoint if old else None
    if replaced and plan.if_exists == "in_place":
        checkpoint = Checkpoint.of(
            plan, version=replaced.version, parent=replaced.parent, created_at=replaced.created_at
        )
    else:
        state = replace(state, last_version=state.last_version + 1)
        checkpoint = Checkpoint.of(plan, version=state.last_version, parent=parent, created_at=state.updated_at)
    gone: dict[int, str | None] = {old.position: plan.checkpoint_id} if old else {}
    if view.alive(plan.now):
        if plan.keep is not None and view.number:
            others = [p for p in (await finding.positions(thread, view))[0] if p not in gone]
            gone |= dict.fromkeys(others[plan.keep - 1 :])
        if view.number and view.record and view.record.checkpoint is None:
            gone[view.number] = None  # it stood for keyed values only
    return _step(thread, view, await _record(checkpoint, state, plan), checkpoint.version, gone)


async def _behind_the_head(thread: Thread, view: View, plan: Plan, old: Found, replaced: Checkpoint) -> _Step:
    """A save that replaces an older checkpoint in place: its object first, then a record that says so."""
    head = await thread.copy_of_head(view)
    assert head.checkpoint is not None
    token = names.token(plan.now)
    state = _next_state(view, plan)
    state = replace(state, swaps={**state.swaps, old.position: token})
    checkpoint = Checkpoint.of(plan, version=replaced.version, parent=replaced.parent, created_at=replaced.created_at)
    gone: dict[int, str | None] = {view.number: head.checkpoint.checkpoint_id}
    if plan.keep is not None:
        gone |= dict.fromkeys([p for p in (await finding.positions(thread, view))[0][plan.keep :] if p != old.position])
    step = _step(thread, view, replace(head, state=state), replaced.version, gone)
    place = Place.swap(token)
    step.useless.append((old.place, plan.checkpoint_id))
    step.announced[thread.folder.id_at(plan.checkpoint_id, place)] = b"%d" % plan.now
    step.announced[thread.folder.at(place)] = (await _record(checkpoint, state, plan)).dump()
    return step


async def _record(checkpoint: Checkpoint, state: State, plan: Plan) -> Record:
    """A record with the plan's document."""
    size = len(plan.payload) + len(plan.block or b"")
    return await beside(size, lambda: Record.of(checkpoint, state, plan.payload, plan.block))


def _step(thread: Thread, view: View, record: Record, version: int, gone: dict[int, str | None]) -> _Step:
    """What makes a record the next one.

    Args:
        thread: Whose.
        view: The thread as it is.
        record: The record, without what it hides.
        version: The version of what is saved.
        gone: The positions that count no more, with the ids there where those are known.
    """
    assert record.checkpoint is not None
    swaps = {p: token for p, token in record.state.swaps.items() if p not in gone}
    state = replace(record.state, hides=frozenset(gone), swaps=swaps)
    announced = {
        thread.folder.id_at(record.checkpoint.checkpoint_id, Place.of(view.next, None)): b"%d" % state.updated_at,
        **{marker: thread.key.thread_id.encode() for marker in thread.marker(state)},
    }
    useless = [(view.place(p), checkpoint_id) for p, checkpoint_id in gone.items()]
    return _Step(
        replace(record, state=state), version, announced, useless, thread.marker(view.state) if view.state else []
    )
