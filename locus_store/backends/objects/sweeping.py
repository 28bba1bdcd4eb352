"""Sweeping: what dead writers left, what has expired, and what is too old."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from locus_store.backends.objects import names
from locus_store.backends.objects.formats import State
from locus_store.backends.objects.names import Place
from locus_store.backends.objects.parallel import in_parallel
from locus_store.backends.objects.port import all_listed
from locus_store.core.frames import DamagedError, UnknownFormatError

if TYPE_CHECKING:
    from locus_store.backends.objects.thread import Thread
    from locus_store.backends.objects.view import View

UNFINISHED = 3_600_000_000
"""Microseconds after which what is not finished is nobody's any more: an hour."""


async def sweep_folder(thread: Thread, view: View, now: int, *, dead: State | None = None) -> None:
    """Delete what does not count in a thread's folder."""
    keys = [o.key for o in await all_listed(thread.port, thread.folder.root)]
    await thread.port.delete(await garbage(thread, view, keys, now, dead=dead))


async def garbage(thread: Thread, view: View, keys: Iterable[str], now: int, *, dead: State | None = None) -> list[str]:
    """Which objects of a thread's folder do not count, and can be of no write that is under way.

    Args:
        thread: The thread.
        view: As it is; deleted, or alive, or without any record.
        keys: All that is in its folder.
        now: The time of the call.
        dead: An earlier state, whose life is over.
    """
    state = view.state
    living = state if state is not None and not state.gone else None
    over = set() if dead is None else {dead.life, dead.part, *dead.swaps.values()}

    def nobodys(token: str) -> bool:
        return token in over or names.time_of(token) < now - UNFINISHED

    there = set(keys)
    found: list[str] = []
    claims: dict[Place, list[str]] = {}
    open_ones: list[str] = []
    for key in there:
        kind, token, place = thread.folder.parse(key)
        if place is None:  # keyed values
            if not (living and token == living.life) and nobodys(token):
                found.append(key)
        elif place.kind == "v" and place.number > view.number:
            if kind == "i":
                open_ones.append(key)
        elif place.kind == "v" and place.number == view.number and kind == "v":
            pass  # the newest record itself
        elif living and kind == "v" and place == ("v", "", 0):
            pass  # the beginning of the log
        elif living and view.counts(place):
            if kind == "i":
                claims.setdefault(place, []).append(key)
        elif place.kind == "v" or (living and place.token == living.part) or nobodys(place.token):
            found.append(key)
    found += [
        key
        for some in await in_parallel(
            [_false(thread, p, c) for p, c in claims.items() if len(c) > 1 or thread.folder.at(p) not in there]
        )
        for key in some
    ]
    found += [
        key
        for key, old in zip(open_ones, await in_parallel([_old(thread, key, now) for key in open_ones]), strict=True)
        if old
    ]
    return found


async def _false(thread: Thread, place: Place, claims: list[str]) -> list[str]:
    """Of the objects that say that a checkpoint of theirs is at a place, those that are wrong."""
    with suppress(DamagedError, UnknownFormatError):
        found = await thread.record(place)
        if found is None:
            return claims
        if found[0].checkpoint is not None:
            right = thread.folder.id_at(found[0].checkpoint.checkpoint_id, place)
            return [key for key in claims if key != right]
    return []


async def _old(thread: Thread, key: str, now: int) -> bool:
    """Whether the save that wrote this before its record has not come about, and will not."""
    found = await thread.port.get(key)
    return found is not None and (not found.data.isdigit() or int(found.data) < now - UNFINISHED)
