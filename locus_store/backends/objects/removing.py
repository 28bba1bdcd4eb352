"""Removing: a record that says what is gone, and only then the objects.

A thread is deleted by a record that says so. From then on there is no such thread; the record itself is deleted last,
so that whoever comes upon it (a second `delete`, a save, a sweep) can finish what was begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from locus_store.backends.objects import finding, names
from locus_store.backends.objects.formats import Record, State
from locus_store.backends.objects.names import Place
from locus_store.backends.objects.parallel import in_parallel
from locus_store.backends.objects.port import PAGE, all_listed
from locus_store.backends.objects.sweeping import garbage
from locus_store.backends.objects.thread import Thread
from locus_store.backends.objects.view import Overtaken, View
from locus_store.core.driver import Dropped
from locus_store.core.errors import BackendError, CorruptCheckpointError
from locus_store.core.frames import DamagedError, UnknownFormatError

NOTHING = Dropped(0, None, None)


async def drop(thread: Thread, checkpoint_ids: Sequence[str] | None, now: int) -> Dropped:
    """See `Driver.drop`."""
    view = await (thread.newest() if checkpoint_ids is None else thread.newest_to_write())
    attempt = 0
    while True:
        try:
            if checkpoint_ids is None:
                return await _drop_thread(thread, view, now)
            state = view.alive(now)
            if state is None or view.record is None or view.record.checkpoint is None:
                return NOTHING
            found = await in_parallel([finding.find(thread, view, one) for one in dict.fromkeys(checkpoint_ids)])
            gone = {f.position: f.record.checkpoint.checkpoint_id for f in found if f and f.record.checkpoint}
            if not gone:
                return Dropped(0, state.epoch, state.epoch)
            whole = await remove(thread, view, gone, now)
            return Dropped(len(gone), state.epoch, None if whole else state.epoch)
        except Overtaken as e:
            view = await thread.go_on(attempt, e)
            attempt += 1


async def _drop_thread(thread: Thread, view: View, now: int) -> Dropped:
    state = view.state
    if view.record is None and view.damage is None:
        return NOTHING
    if state is not None and state.gone:
        await finish_removing(thread, view, now)
        return NOTHING
    count = 0
    if view.alive(now):
        count = len((await finding.positions(thread, view))[0])
    await remove_thread(thread, view, now)
    return Dropped(count, state.epoch, None) if state and count else NOTHING


async def remove_thread(thread: Thread, view: View, now: int) -> None:
    """Delete a thread, and everything that it has.

    Raises:
        Overtaken: Somebody else changed it first.
    """
    state = view.state or State.new(now, view.next)
    after = await thread.append(view, Record(replace(state, write=names.token(now), gone=True), None))
    await finish_removing(thread, after, now)


async def finish_removing(thread: Thread, view: View, now: int) -> None:
    """Delete what there is of a thread whose newest record says that it is gone; that record last."""
    state = view.state
    assert state is not None
    listed = [o.key for o in await all_listed(thread.port, thread.folder.root)]
    # A listing may be behind; and nothing may be left that looks like a thread once the record is not there any more.
    recent = [thread.folder.number(n) for n in range(max(state.first, view.number - PAGE), view.number)]
    last = thread.folder.number(view.number)
    keys = {*recent, *await garbage(thread, view, listed, now, dead=state), *thread.marker(state)} - {last}
    # If somebody else has finished it meanwhile, the same keys may be those of a new thread.
    found = await thread.record(Place.of(view.number, None))
    if found is not None and found[0].state.write == state.write:
        await thread.port.delete(sorted(keys))
        await thread.port.delete([last])
    thread.shelf.hints.forget(thread.folder.root)


async def when_removed(thread: Thread, view: View, now: int) -> View:
    """The thread for a change, when what was left of a deleted one is gone."""
    while view.state is not None and view.state.gone:
        await finish_removing(thread, view, now)
        view = await thread.newest_to_write()
    return view


async def remove(thread: Thread, view: View, gone: Mapping[int, str | None], now: int) -> bool:
    """Remove checkpoints of a living thread; True if the thread went with them.

    Args:
        thread: The thread.
        view: As it is.
        gone: The positions of what goes, with ids where those are known.
        now: The time of the call.

    Raises:
        Overtaken: Somebody else changed it first.
    """
    state = view.state
    assert state is not None
    hidden = dict(gone)
    if view.number in gone:
        left = next((p for p in (await finding.positions(thread, view))[0] if p not in gone), None)
        if left is None:
            await remove_thread(thread, view, now)
            return True
        record = await _read(thread, view, left)
        hidden[left] = None
    else:
        record = await thread.copy_of_head(view)
        hidden[view.number] = None
    assert record.checkpoint is not None
    head = record.checkpoint.checkpoint_id
    hidden = {p: i if i or p in gone else head for p, i in hidden.items()}
    swaps = {p: token for p, token in state.swaps.items() if p not in hidden}
    after = replace(state, write=names.token(now), hides=frozenset(hidden), swaps=swaps)
    await thread.announce(view, {thread.folder.id_at(head, Place.of(view.next, None)): b"%d" % now})
    done = await thread.append(view, replace(record, state=after))
    with suppress(BackendError):  # it is removed; what is left does not count and is swept later
        await thread.port.delete(await thread.keys_at([(view.place(p), i) for p, i in hidden.items()]))
        thread.mark_clean(done)
    return False


async def _read(thread: Thread, view: View, position: int) -> Record:
    """A checkpoint with its document, which becomes the newest one."""
    try:
        found = await thread.record(view.place(position), whole=True)
    except (DamagedError, UnknownFormatError) as e:
        raise CorruptCheckpointError(
            thread.key.thread_id, None, f"the one before it would become the newest, and is damaged: {e}"
        ) from e
    if found is None:
        raise Overtaken(None)
    return found[0]
