"""Going through a whole tenant: old checkpoints, expired threads, and what nothing refers to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from locus_store.backends.objects import finding, names
from locus_store.backends.objects.names import Marker, Tenant
from locus_store.backends.objects.parallel import AT_ONCE, in_parallel
from locus_store.backends.objects.port import ObjectPort, all_listed
from locus_store.backends.objects.removing import finish_removing, remove, remove_thread
from locus_store.backends.objects.sweeping import UNFINISHED, garbage
from locus_store.backends.objects.thread import Thread
from locus_store.backends.objects.values import sum_up
from locus_store.backends.objects.view import Overtaken, Shelf, View
from locus_store.core.driver import Key, Trimmed
from locus_store.core.frames import DamagedError, UnknownFormatError


class _Done(NamedTuple):
    """What was done to one thread, and the mark that its marker has; None if that cannot be told."""

    removed: int
    mark: str | None


async def trim(shelf: Shelf, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
    """See `Driver.trim`."""
    keys = Tenant(shelf.prefix, tenant)
    markers = [(o.key, keys.parse_marker(o.key)) for o in await all_listed(shelf.port, keys.markers)]
    removed = 0
    marks: dict[str, str | None] = {}
    batch: list[tuple[str, list[str]]] = []

    async def sweep() -> None:
        nonlocal removed
        names_of = [name for name, _ in batch]
        done = await in_parallel(
            [_trim_thread(_thread(shelf, tenant, n), k, older_than, keep_last, now) for n, k in batch]
        )
        removed += sum(one.removed for one in done)
        marks.update(zip(names_of, [one.mark for one in done], strict=True))
        batch.clear()

    async for name, objects in _by_thread(shelf.port, keys):
        batch.append((name, objects))
        if len(batch) == AT_ONCE:
            await sweep()
    await sweep()
    useless = [key for key, marker in markers if _is_false(marker, marks, now)]
    probes = names.probes(shelf.prefix)
    listed = [o.key for o in await all_listed(shelf.port, probes)]
    useless += [key for key in listed if names.time_of(key[len(probes) :]) < now - UNFINISHED]
    await shelf.port.delete(useless)
    return Trimmed(removed, 0)


def _thread(shelf: Shelf, tenant: str, name: str) -> Thread:
    return Thread(shelf, Key(tenant, names.decode(name) or name), name)


def _is_false(marker: Marker, marks: dict[str, str | None], now: int) -> bool:
    """Whether a marker is no thread's, and of no save that is under way."""
    return marks.get(marker.thread, "") not in (marker.mark, None) and marker.updated_at < now - UNFINISHED


async def _by_thread(port: ObjectPort, keys: Tenant) -> AsyncIterator[tuple[str, list[str]]]:
    """The objects of each thread of a tenant."""
    name: str | None = None
    found: list[str] = []
    after: str | None = None
    while True:
        page = await port.list(keys.threads, after=after)
        for one in page.objects:
            if keys.thread_of(one.key) != name:
                if name is not None:
                    yield name, found
                name, found = keys.thread_of(one.key), []
            found.append(one.key)
        if not page.more:
            break
        after = page.objects[-1].key
    if name is not None:
        yield name, found


async def _trim_thread(thread: Thread, keys: Sequence[str], older_than: int, keep_last: int, now: int) -> _Done:
    view = await thread.newest()
    attempt = removed = 0
    while True:
        try:
            removed, view = await _step(thread, view, older_than, keep_last, now)
            break
        except Overtaken as e:
            view = await thread.go_on(attempt, e)
            attempt += 1
    if view.damage is not None:
        return _Done(0, None)
    await thread.port.delete(await garbage(thread, view, keys, now))
    state = view.alive(now)
    if state and sum(key.startswith(thread.folder.values_of(state.life)) for key in keys) > 1:
        await sum_up(thread, state.life)
    return _Done(removed, state.mark if state else "")


async def _step(thread: Thread, view: View, older_than: int, keep_last: int, now: int) -> tuple[int, View]:
    """Removes what is too old; how many checkpoints went, and how the thread is then."""
    state = view.state
    if state is None or view.record is None:
        return 0, view
    if state.gone:
        if names.time_of(state.write) < now - UNFINISHED:
            await finish_removing(thread, view, now)
        return 0, await thread.newest()
    positions = (await finding.positions(thread, view))[0]
    if not view.alive(now) or await _is_empty(thread, view, now):
        await remove_thread(thread, view, now)
        return len(positions), await thread.newest()
    old = await _older(thread, view, positions[keep_last:], older_than)
    if not old:
        return 0, view
    await remove(thread, view, dict.fromkeys(old), now)
    return len(old), await thread.newest()


async def _is_empty(thread: Thread, view: View, now: int) -> bool:
    """Whether a thread was made for something that did not come, and will not."""
    assert view.state is not None
    assert view.record is not None
    if view.record.checkpoint is not None or names.time_of(view.state.write) >= now - UNFINISHED:
        return False
    return not (await thread.port.list(thread.folder.values_of(view.state.life), limit=1)).objects


async def _older(thread: Thread, view: View, positions: Sequence[int], than: int) -> Sequence[int]:
    """Those whose checkpoints were made before a time; they stand in the order of their times."""
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high) // 2
        try:
            found = await thread.record(view.place(positions[middle]))
        except (DamagedError, UnknownFormatError):
            return positions[high:]
        if found is None or found[0].checkpoint is None:
            raise Overtaken(None)
        if found[0].checkpoint.created_at < than:
            high = middle
        else:
            low = middle + 1
    return positions[low:]
