"""Reading one thread: documents and listings of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from locus_store.backends.objects import finding
from locus_store.backends.objects.formats import OWN, Checkpoint, Record
from locus_store.backends.objects.names import Place, decode, number_of
from locus_store.backends.objects.parallel import AT_ONCE, beside, both, in_parallel
from locus_store.backends.objects.port import all_listed
from locus_store.backends.objects.thread import Thread
from locus_store.backends.objects.view import BEHIND, Overtaken, Sightings, View
from locus_store.core.driver import Info, Stored
from locus_store.core.frames import DamagedError, UnknownFormatError


async def get(thread: Thread, checkpoint_id: str | None, now: int) -> Stored | None:
    """See `Driver.get`: a listing and a read, each with another one beside it for a checkpoint that is named."""
    found = await (_newest(thread, now) if checkpoint_id is None else _named(thread, checkpoint_id, now, whole=True))
    if found is None:
        return None
    view, record, _ = found
    checkpoint, state = record.checkpoint, view.state
    if checkpoint is None:
        return None
    payload, blocks = await beside(checkpoint.payload + checkpoint.block, record.document)
    return Stored(
        checkpoint.checkpoint_id,
        checkpoint.version,
        checkpoint.stamp,
        state.epoch if state else 0,
        OWN if checkpoint.block else 0,
        checkpoint.ranges,
        payload,
        blocks,
    )


async def _newest(thread: Thread, now: int) -> tuple[View, Record, Place] | None:
    view = await thread.newest(whole=True)
    if view.damage is not None:
        raise view.damage
    if view.alive(now) is None or view.record is None:
        return None
    return view, view.record, Place.of(view.number, None)


async def _named(thread: Thread, checkpoint_id: str, now: int, *, whole: bool) -> tuple[View, Record, Place] | None:
    """A checkpoint by its id, with the thread as it was then.

    What says that the thread is there and what says where the checkpoint is are read side by side, and so may be of
    two moments; if they do not fit together, both are read again, until the thread is seen not to have changed.
    """
    sightings = Sightings()
    for attempt in count():
        listing = thread.port.list(thread.folder.log, limit=2)
        page, places = await both(listing, finding.places_of(thread, checkpoint_id))
        if not places:
            return None
        reads = in_parallel([_read(thread, place, whole=whole) for place in places])
        view, read = await both(thread.as_of(page.objects), reads)
        if view is not None:
            if view.damage is None and view.alive(now) is None:
                return None
            for place, record in zip(places, read, strict=True):
                if view.damage is None and not view.counts(place):
                    continue
                if isinstance(record, Exception):
                    raise record
                if record is not None and record.checkpoint and record.checkpoint.checkpoint_id == checkpoint_id:
                    return view, record, place
        times = sightings.add(number_of(page.objects[0].key) if view is None else view.number)
        # Between the first and the last of three that are the same nothing was added: the second one's places hold.
        if times >= (BEHIND if view is None else 3):
            return None
        await thread.again(attempt)
    raise AssertionError


async def _read(thread: Thread, place: Place, *, whole: bool) -> Record | DamagedError | UnknownFormatError | None:
    try:
        found = await thread.record(place, whole=whole)
    except (DamagedError, UnknownFormatError) as e:
        return e
    return found[0] if found else None


async def info(thread: Thread, checkpoint_id: str | None, now: int) -> Info | None:
    """See `Driver.info`."""
    if checkpoint_id is None:
        view = await thread.newest()
        if view.damage is not None:
            return next(iter(await infos(thread, None, 1, now)), None)
        return await info_of_head(thread, view, now)
    try:
        found = await _named(thread, checkpoint_id, now, whole=False)
    except (DamagedError, UnknownFormatError):
        everything = await infos(thread, None, None, now)
        return next((i for i in everything if i.checkpoint_id == checkpoint_id), None)
    if found is None or found[1].checkpoint is None:
        return None
    return await _info(thread, found[0], found[1].checkpoint)


async def info_of_head(thread: Thread, view: View, now: int) -> Info | None:
    """The newest checkpoint without its document; None if there is none."""
    if view.alive(now) is None or view.record is None or view.record.checkpoint is None:
        return None
    return await _info(thread, view, view.record.checkpoint)


async def _info(thread: Thread, view: View, checkpoint: Checkpoint) -> Info:
    parent, state = checkpoint.parent, view.state
    there = parent is not None and state is not None and await finding.is_there(thread, view, parent.position)
    return checkpoint.info(
        thread.key.thread_id, parent_is_there=there, updated_at=state.updated_at if state else checkpoint.created_at
    )


async def infos(thread: Thread, before: int | None, limit: int | None, now: int) -> list[Info]:
    """See `Driver.infos`."""
    return [info for info, _ in await checkpoints(thread, before, limit, now)]


async def checkpoints(
    thread: Thread, before: int | None, limit: int | None, now: int, *, view: View | None = None
) -> list[tuple[Info, frozenset[bytes]]]:
    """Checkpoints, newest first, with the terms of their metadata; `AT_ONCE` headers at a time."""
    for attempt in count():
        view = view or await thread.newest()
        if view.damage is not None:
            return await _of_a_damaged_thread(thread, view, before, limit)
        if view.alive(now) is None or limit == 0:
            return []
        try:
            return await _checkpoints(thread, view, before, limit, now)
        except Overtaken:
            view = None
        await thread.again(attempt)
    raise AssertionError


async def _checkpoints(
    thread: Thread, view: View, before: int | None, limit: int | None, now: int
) -> list[tuple[Info, frozenset[bytes]]]:
    most = None if before is not None or limit is None else limit + 1
    view, positions, complete = await finding.positions_now(thread, view, most)
    state = view.alive(now)
    if state is None:
        return []
    start = 0 if before is None else await _first_below(thread, view, positions, before)
    wanted = positions[start:][:limit]
    read: list[Record | DamagedError | UnknownFormatError] = []
    for i in range(0, len(wanted), 8 * AT_ONCE):
        read += await in_parallel([_header(thread, view, p) for p in wanted[i : i + 8 * AT_ONCE]])
    there = set(positions)
    found: list[tuple[Info, frozenset[bytes]]] = []
    names: dict[int, str] | None = None
    for position, one in zip(wanted, read, strict=True):
        if isinstance(one, Record) and one.checkpoint is not None:
            parent = one.checkpoint.parent
            known = parent is None or complete or parent.position >= positions[-1]
            is_there = parent is not None and (
                parent.position in there if known else await finding.is_there(thread, view, parent.position)
            )
            shown = one.checkpoint.info(thread.key.thread_id, parent_is_there=is_there, updated_at=state.updated_at)
            found.append((shown, frozenset(one.checkpoint.terms)))
        else:
            names = names if names is not None else await _ids_by_position(thread, view)
            version = found[-1][0].version - 1 if found else state.last_version
            found.append((_damaged(thread, names.get(position, "?"), version, state.updated_at), frozenset()))
    return found


async def _header(thread: Thread, view: View, position: int) -> Record | DamagedError | UnknownFormatError:
    if position == view.number and view.record is not None:
        return view.record
    found = await _read(thread, view.place(position), whole=False)
    if found is None:
        raise Overtaken(None)
    return found


async def _first_below(thread: Thread, view: View, positions: Sequence[int], version: int) -> int:
    """Where the checkpoints with lower versions begin."""
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high) // 2
        found = await _header(thread, view, positions[middle])
        if not isinstance(found, Record) or found.checkpoint is None:
            # No version can be read there: look at the ones after it, one by one.
            headers = await in_parallel([_header(thread, view, p) for p in positions])
            versions = [h.checkpoint.version if isinstance(h, Record) and h.checkpoint else None for h in headers]
            return next((i for i, v in enumerate(versions) if v is not None and v < version), len(positions))
        if found.checkpoint.version < version:
            high = middle
        else:
            low = middle + 1
    return low


def _damaged(thread: Thread, checkpoint_id: str, version: int, time: int) -> Info:
    """What can be told of a checkpoint whose header cannot be read."""
    return Info(thread.key.thread_id, checkpoint_id, version, None, time, None, 0, time)


async def _ids_by_position(thread: Thread, view: View) -> dict[int, str]:
    found: dict[int, str] = {}
    for one in await all_listed(thread.port, thread.folder.ids):
        _, name, place = thread.folder.parse(one.key)
        if place is not None and place.kind != "x" and (view.state is None or view.counts(place)):
            found[place.position] = decode(name) or name
    return found


async def _of_a_damaged_thread(
    thread: Thread, view: View, before: int | None, limit: int | None
) -> list[tuple[Info, frozenset[bytes]]]:
    """What can be told of a thread whose newest record cannot be read: that there are these checkpoints."""
    names = await _ids_by_position(thread, view)
    numbers = [p for p in sorted(names, reverse=True) if 0 < p <= view.number]
    headers = await in_parallel([_read(thread, Place.of(p, None), whole=False) for p in numbers])
    found: list[tuple[Info, frozenset[bytes]]] = []
    for position, one in zip(numbers, headers, strict=True):
        if isinstance(one, Record) and one.checkpoint is not None:
            shown = one.checkpoint.info(
                thread.key.thread_id, parent_is_there=False, updated_at=one.checkpoint.created_at
            )
            found.append((shown, frozenset(one.checkpoint.terms)))
        elif isinstance(one, DamagedError | UnknownFormatError):
            found.append((_damaged(thread, names[position], position, 0), frozenset()))
    return [f for f in found if before is None or f[0].version < before][:limit]
