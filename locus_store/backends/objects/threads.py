"""Listing a tenant's threads, by markers whose keys sort by time; what is shown is checked with the threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple

from locus_store.backends.objects import names
from locus_store.backends.objects.names import Marker, Tenant
from locus_store.backends.objects.parallel import AT_ONCE, in_parallel
from locus_store.backends.objects.reading import checkpoints, info_of_head
from locus_store.backends.objects.thread import Thread
from locus_store.backends.objects.view import Shelf, View
from locus_store.core import patterns
from locus_store.core.driver import Info, Key


class _Marked(NamedTuple):
    """A marker of a thread that may be there."""

    marker: Marker
    key: str
    thread_id: str


class Listed(NamedTuple):
    """A thread that is there."""

    thread: Thread
    view: View
    updated_at: int


async def threads(
    shelf: Shelf, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
) -> list[tuple[str, int]]:
    """See `Driver.threads`.

    Threads that are passed over are counted by their markers. So where a writer died, pages may overlap until a sweep;
    none is missed.
    """
    found: list[tuple[str, int]] = []
    if limit == 0:
        return found
    async for one in living(shelf, tenant, pattern, now, skip=offset):
        found.append((one.thread.key.thread_id, one.updated_at))
        if limit is not None and len(found) >= limit:
            break
    return found


async def find(
    shelf: Shelf,
    tenant: str,
    terms: Sequence[bytes],
    *,
    thread_id: str | None,
    newest_only: bool,
    limit: int | None,
    offset: int,
    now: int,
) -> list[Info]:
    """See `Driver.find`: the headers are gone through, as no index is kept."""
    if limit == 0:
        return []
    wanted = None if limit is None else offset + limit
    found: list[Info] = []
    source = living(shelf, tenant, "*", now) if thread_id is None else _one(shelf, Key(tenant, thread_id), now)
    async for one in source:
        if newest_only:
            checkpoint = one.view.record.checkpoint if one.view.record else None
            if checkpoint is not None and set(checkpoint.terms).issuperset(terms):
                info = await info_of_head(one.thread, one.view, now)
                found += [info] if info else []
        else:
            rows = await checkpoints(one.thread, None, None, now, view=one.view)
            found += [info for info, having in rows if having.issuperset(terms)]
        if wanted is not None and len(found) >= wanted:
            break
    return found[offset:][:limit]


async def _one(shelf: Shelf, key: Key, now: int) -> AsyncIterator[Listed]:
    thread = Thread(shelf, key)
    view = await thread.newest()
    state = view.alive(now)
    if state is not None and view.record is not None and view.record.checkpoint is not None:
        yield Listed(thread, view, state.updated_at)


async def living(shelf: Shelf, tenant: str, pattern: str, now: int, *, skip: int = 0) -> AsyncIterator[Listed]:
    """The threads of a tenant that are there, last write first, then by id.

    Args:
        shelf: Where they are.
        tenant: Whose.
        pattern: What their ids match.
        now: The time of the call.
        skip: How many of the first to pass over, unlooked at.
    """
    parsed = patterns.parse(pattern)
    if parsed.literal == "":
        return  # no thread has an empty name, and no folder either
    if parsed.literal is not None:
        async for one in _one(shelf, Key(tenant, parsed.literal), now):
            if not skip:
                yield one
        return
    matches: Callable[[str], object] = parsed.regex().fullmatch
    passed: set[str] = set()
    order = _Order()
    batch: list[_Marked] = []
    async for marked in _in_order(shelf, tenant, now):
        if not matches(marked.thread_id):
            continue
        if len(passed) < skip and marked.thread_id not in passed:
            passed.add(marked.thread_id)
            continue
        if marked.thread_id not in order.shown:
            batch.append(marked)
        if len(batch) >= AT_ONCE:
            for one in order.take(await _check(shelf, tenant, batch, passed, now)):
                yield one
            batch.clear()
    for one in [*order.take(await _check(shelf, tenant, batch, passed, now)), *order.rest()]:
        yield one


class _Order:
    """Puts threads into the order of their times where a marker ran ahead of its thread.

    Attributes:
        shown: The ids of the threads that were given out.
    """

    def __init__(self) -> None:
        self.shown: set[str] = set()
        self._waiting: dict[str, Listed] = {}

    def take(self, checked: Sequence[tuple[Marker, Listed]]) -> list[Listed]:
        """What can be given out now: a thread waits until all that were written after it are out."""
        found: list[Listed] = []
        for marker, one in checked:
            name = one.thread.key.thread_id
            due = [w for w in self._waiting.values() if w.updated_at > marker.updated_at]
            for other in sorted(due, key=lambda w: -w.updated_at):
                found += self._give(other)
            if one.updated_at < marker.updated_at:
                if name not in self.shown:
                    self._waiting[name] = one
            else:
                found += self._give(one)
        return found

    def rest(self) -> list[Listed]:
        """What still waits."""
        waiting = sorted(self._waiting.values(), key=lambda w: (-w.updated_at, w.thread.key.thread_id))
        return [one for w in waiting for one in self._give(w)]

    def _give(self, one: Listed) -> list[Listed]:
        name = one.thread.key.thread_id
        self._waiting.pop(name, None)
        if name in self.shown:
            return []
        self.shown.add(name)
        return [one]


async def _check(
    shelf: Shelf, tenant: str, batch: Sequence[_Marked], passed: Collection[str], now: int
) -> list[tuple[Marker, Listed]]:
    """The threads of some markers, as far as they are there. One that was passed over counts by its own marker only."""
    found: list[tuple[Marker, Listed]] = []
    looked_at = [Thread(shelf, Key(tenant, marked.thread_id)) for marked in batch]
    views = await in_parallel([thread.newest() for thread in looked_at])
    for marked, thread, view in zip(batch, looked_at, views, strict=True):
        state = view.alive(now)
        if view.damage is not None:
            found.append((marked.marker, Listed(thread, view, marked.marker.updated_at)))
        elif state is None or view.record is None or view.record.checkpoint is None:
            continue
        elif state.mark == marked.marker.mark or thread.key.thread_id not in passed:
            found.append((marked.marker, Listed(thread, view, state.updated_at)))
    return found


async def _in_order(shelf: Shelf, tenant: str, now: int) -> AsyncIterator[_Marked]:
    """The markers that have not expired, by time; those of one moment by the threads' ids."""
    same: list[tuple[Marker, str]] = []
    keys = Tenant(shelf.prefix, tenant)
    after: str | None = None
    while True:
        page = await shelf.port.list(keys.markers, after=after)
        for one in page.objects:
            marker = keys.parse_marker(one.key)
            if marker.expires_at is not None and marker.expires_at <= now:
                continue
            if same and same[0][0].updated_at != marker.updated_at:
                for marked in await _named(shelf, same):
                    yield marked
                same.clear()
            same.append((marker, one.key))
        if not page.more:
            break
        after = page.objects[-1].key
    for marked in await _named(shelf, same):
        yield marked


async def _named(shelf: Shelf, markers: Sequence[tuple[Marker, str]]) -> list[_Marked]:
    """Markers with their threads' ids, sorted by these; an id that does not fit into a key is in the marker."""

    async def read(marker: Marker, key: str) -> _Marked | None:
        known = names.decode(marker.thread)
        if known is None:
            found = await shelf.port.get(key)
            known = found.data.decode() if found else None
        return None if known is None else _Marked(marker, key, known)

    found = await in_parallel([read(*one) for one in markers])
    return sorted([f for f in found if f is not None], key=lambda f: f.thread_id)
