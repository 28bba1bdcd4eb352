"""Whether a record that was created is one of the thread's log.

The place of a record that was removed is free again. A writer that was slow may create there what it takes for the
newest record, when others have gone on from another one long ago: nobody would ever see it. So each record names those
that it goes on from, what was removed stays removed whatever comes to lie there, and whoever created a record looks
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from locus_store.backends.objects import names
from locus_store.backends.objects.formats import State
from locus_store.backends.objects.names import Place
from locus_store.backends.objects.port import Listed
from locus_store.backends.objects.view import BEHIND, Sightings

if TYPE_CHECKING:
    from locus_store.backends.objects.thread import Thread
    from locus_store.backends.objects.view import View


async def was_too_late(thread: Thread, before: View, number: int, state: State) -> tuple[bool, View | None]:
    """Whether a record that was just created is none of the log, and the thread as it is, if that was found out.

    Args:
        thread: The thread.
        before: What the record goes on from.
        number: Its number.
        state: Its state.
    """
    sightings = Sightings()
    for attempt in count():
        listed = (await thread.port.list(thread.folder.log, limit=2)).objects
        newest = max([names.number_of(o.key) for o in listed], default=0)
        if newest < number:  # the listing is behind, or somebody has deleted the thread since
            break
        if newest == number:
            return await _was_deleted(thread, listed, before, state), None
        now = await thread.as_of(listed)
        if now is not None and thread.check(now).state is not None and now.number > number:
            return not _goes_on_from(now, number, state), now
        if sightings.add(newest) == BEHIND:
            break
        await thread.again(attempt)
    return False, None


def _goes_on_from(now: View, number: int, state: State) -> bool:
    """Whether a thread's newest record is one that came after the record of a number and a state."""
    newest = now.state
    assert newest is not None
    back = now.number - number
    if back <= len(newest.recent):
        return newest.recent[-back] == state.short
    return newest.life == state.life and now.counts(Place.of(number, None))


async def _was_deleted(thread: Thread, listed: Sequence[Listed], before: View, state: State) -> bool:
    """Whether what lies below the newest record shows that the thread was deleted meanwhile."""
    if [(names.number_of(o.key), o.etag) for o in listed[1:]] == [(before.number, before.etag)]:
        return False
    if before.number not in state.hides:
        return True
    # Others may have deleted what the newest record hides; but not where the log begins.
    beginning = await thread.record(Place("v", "", 0))
    return beginning is None or beginning[0].state.first > state.first
