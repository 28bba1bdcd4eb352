"""Where the checkpoints of a thread are: all of them, or the one with an id."""

from __future__ import annotations

from collections.abc import Container

from locus_store.backends.objects import names
from locus_store.backends.objects.formats import State
from locus_store.backends.objects.names import COPIED, Place
from locus_store.backends.objects.port import PAGE, all_listed
from locus_store.backends.objects.thread import Thread
from locus_store.backends.objects.view import Found, Overtaken, View
from locus_store.core.errors import CorruptCheckpointError
from locus_store.core.frames import DamagedError, UnknownFormatError


async def positions(thread: Thread, view: View, most: int | None = None) -> tuple[list[int], bool]:
    """Where a living thread's checkpoints are, the newest first, and whether these are all.

    Args:
        thread: The thread.
        view: As it is.
        most: How many are enough.

    Raises:
        Overtaken: It has changed since.
    """
    now, found, complete = await positions_now(thread, view, most)
    if now.number != view.number:
        raise Overtaken(now)
    return found, complete


async def positions_now(thread: Thread, view: View, most: int | None = None) -> tuple[View, list[int], bool]:
    """Like `positions`, but of the thread as the listing shows it, whatever it has become.

    One listing shows both the newest record and where the checkpoints are that were there with it, so that whoever only
    reads need not wait until nobody writes.

    Args:
        thread: The thread.
        view: As it was.
        most: How many are enough.

    Returns:
        The thread as it is now, perhaps deleted or expired; where its checkpoints are; whether these are all.

    Raises:
        Overtaken: The newest record that is listed is gone already, or cannot be read.
    """
    numbers: set[int] = {view.number, *view.listed}
    after: str | None = None
    while True:
        state = view.state
        assert state is not None
        enough = _enough(state, most)
        page = await thread.port.list(thread.folder.log, after=after, limit=enough and min(enough, PAGE))
        listed = [names.number_of(o.key) for o in page.objects]
        if max(listed, default=0) > view.number:
            later = await thread.view_at(listed[0], tuple(listed[:2]))
            if later is None or later.state is None:
                raise Overtaken(None)
            view, state, numbers = later, later.state, {later.number}
            enough = _enough(state, most)
        numbers.update([n for n in listed if n not in state.removed])
        if not page.more or (enough is not None and len(numbers) >= enough):
            break
        after = page.objects[-1].key
    found = {n for n in numbers if n >= state.first and n not in state.removed}
    if not page.more and state.part is not None:
        copied = await all_listed(thread.port, thread.folder.part(state.part))
        found.update([COPIED + names.number_of(o.key) for o in copied])
    found.update([p for p in state.swaps if not page.more or p > min(numbers)])
    if view.record is not None and view.record.checkpoint is None:
        found.discard(view.number)
    return view, sorted(found - state.hides, reverse=True), not page.more


def _enough(state: State, most: int | None) -> int | None:
    """How many records hold so many checkpoints at least: one may hold none, and some may be hidden."""
    return None if most is None else most + len(state.hides) + 1


async def places_of(thread: Thread, checkpoint_id: str) -> list[Place]:
    """Where a checkpoint may be."""
    listed = await all_listed(thread.port, thread.folder.ids_of(checkpoint_id))
    return [Place.parse(o.key.rpartition("/")[2]) for o in listed]


async def find(thread: Thread, view: View, checkpoint_id: str, not_at: Container[Place] = ()) -> Found | None:
    """A checkpoint of a living thread by its id, without its document.

    Args:
        thread: The thread.
        view: As it is.
        checkpoint_id: Its id.
        not_at: Where it is known not to be.
    """
    state, record = view.state, view.record
    assert state is not None
    assert record is not None
    if record.checkpoint is not None and record.checkpoint.checkpoint_id == checkpoint_id:
        return Found(view.number, Place.of(view.number, None), record)
    for place in await places_of(thread, checkpoint_id):
        if place in not_at or not view.counts(place):
            continue
        try:
            found = await thread.record(place)
        except (DamagedError, UnknownFormatError) as e:
            raise CorruptCheckpointError(thread.key.thread_id, checkpoint_id, str(e)) from e
        if found and found[0].checkpoint and found[0].checkpoint.checkpoint_id == checkpoint_id:
            position = next((p for p, t in state.swaps.items() if t == place.token), 0) or place.position
            return Found(position, place, found[0])
    return None


async def is_there(thread: Thread, view: View, position: int) -> bool:
    """Whether a position of a living thread still has its checkpoint."""
    state = view.state
    assert state is not None
    if position in state.swaps or (position in view.listed and view.counts(Place.of(position, state.part))):
        return True
    if position < 0 and state.part is None:
        return False
    place = Place.of(position, state.part)
    return view.counts(place) and await thread.port.get(thread.folder.at(place), end=1) is not None
