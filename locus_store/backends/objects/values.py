"""Keyed values of a thread: a log of their own, one object for what was stored in one step.

Each object holds what is to be put, or, if it is a summary, all that is there: then those before it do not count, and
are deleted. A slow writer may create one of these once more: so whoever has created one looks for a summary after it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from locus_store.backends.objects import names
from locus_store.backends.objects.formats import Record, State
from locus_store.backends.objects.names import Place
from locus_store.backends.objects.parallel import in_parallel
from locus_store.backends.objects.port import ObjectExistsError, all_listed
from locus_store.backends.objects.removing import remove_thread, when_removed
from locus_store.backends.objects.sweeping import sweep_folder
from locus_store.backends.objects.thread import Thread, new_mark
from locus_store.backends.objects.view import Overtaken, View
from locus_store.core.errors import BackendError
from locus_store.core.frames import DamagedError

SUMMARY = 32
"""So many objects are summed up into one."""

Values = dict[tuple[str, str], bytes]


async def put_values(
    thread: Thread, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
) -> None:
    """See `Driver.put_records`."""
    view = await thread.newest_to_write()
    attempt = 0
    while True:
        try:
            view = await when_removed(thread, view, now)
            view = await _living(thread, view, now, expires_at, make=bool(items))
            break
        except Overtaken as e:
            view = await thread.go_on(attempt, e)
            attempt += 1
    state = view.alive(now)
    if state is None or not items:
        return
    data = _dump([(scope, name, payload) for name, payload in items], keep=keep, summary=False)
    numbers = await _numbers(thread, state.life)
    number = max(numbers, default=0)
    for attempt in count():
        number += 1
        try:
            await _create(thread, thread.folder.value(state.life, number), data)
        except ObjectExistsError:
            pass
        else:
            after = await _summary_after(thread, state.life, number)
            if after is None:
                break
            number = after
        await thread.again(attempt)
    if len(numbers) >= SUMMARY:
        with suppress(BackendError):  # the values are stored; the next one sums up
            await sum_up(thread, state.life)


async def _living(thread: Thread, view: View, now: int, expires_at: int | None, *, make: bool) -> View:
    """The thread, made if it is not there, and with that expiry."""
    state = view.alive(now)
    if state is None:
        if not make:
            return view
        if view.record is None:
            view = await thread.begin(now)
        after = await thread.append(view, Record(State.new(now, view.next, expires_at), None))
        if view.number:
            with suppress(BackendError):  # what is left of a life that is over is swept later
                await sweep_folder(thread, after, now, dead=view.state)
                await thread.port.delete(thread.marker(view.state) if view.state else [])
        return after
    if state.expires_at == expires_at and view.number:
        return view
    record = await thread.copy_of_head(view)
    head = record.checkpoint.checkpoint_id if record.checkpoint else None
    changed = replace(
        state,
        write=names.token(now),
        mark=state.mark and new_mark(),
        expires_at=expires_at,
        hides=frozenset([view.number] if view.number else []),
    )
    announced = {marker: thread.key.thread_id.encode() for marker in thread.marker(changed)}
    if head is not None:
        announced[thread.folder.id_at(head, Place.of(view.next, None))] = b"%d" % now
    await thread.announce(view, announced)
    after = await thread.append(view, replace(record, state=changed))
    with suppress(BackendError):  # it does not count any more and is swept later
        old = await thread.keys_at([(Place.of(view.number, None), head)] if view.number else [])
        await thread.port.delete([*old, *thread.marker(state)])
        thread.mark_clean(after)
    return after


async def values(thread: Thread, scope: str | None, now: int) -> list[tuple[str, str, bytes]]:
    """See `Driver.records`."""
    view = await thread.newest_to_write()
    state = view.alive(now)
    if state is None:
        return []
    found, _ = await _read(thread, state.life)
    rows = [(s, name, payload) for (s, name), payload in found.items() if scope is None or s == scope]
    return sorted(rows, key=lambda row: row[0])


async def drop_values(thread: Thread, scope: str | None, now: int) -> int:
    """See `Driver.drop_records`."""
    view = await thread.newest_to_write()
    for attempt in count():
        state = view.alive(now)
        if state is None:
            return 0
        found, numbers = await _read(thread, state.life)
        left = {key: payload for key, payload in found.items() if scope is not None and key[0] != scope}
        try:
            if not left and view.record is not None and view.record.checkpoint is None:
                await remove_thread(thread, view, now)
            elif len(left) < len(found):
                number = await _replace(thread, state.life, left, numbers)
                if await _summary_after(thread, state.life, number) is not None:
                    await thread.again(attempt)
                    continue
        except Overtaken as e:
            view = await thread.go_on(attempt, e)
            continue
        except ObjectExistsError:
            await thread.again(attempt)
            continue
        return len(found) - len(left)
    raise AssertionError


async def copy_values(dest: Thread, life: str, found: Values) -> None:
    """Store values in a life of a thread that has not begun."""
    rows = [(scope, name, payload) for (scope, name), payload in found.items()]
    await dest.port.put(dest.folder.value(life, 1), _dump(rows, keep=False, summary=True))


async def all_values(thread: Thread, life: str) -> Values:
    """All values of a life."""
    return (await _read(thread, life))[0]


async def _numbers(thread: Thread, life: str) -> list[int]:
    listed = await all_listed(thread.port, thread.folder.values_of(life))
    return [names.number_of(o.key) for o in listed]


async def _read(thread: Thread, life: str) -> tuple[Values, list[int]]:
    """All values, in the order in which their keys came, and the numbers of the objects that they are in."""
    for attempt in count():
        numbers = sorted(await _numbers(thread, life))
        read = await in_parallel([thread.port.get(thread.folder.value(life, n)) for n in numbers])
        found: Values = {}
        missing = False
        for one in read:
            if one is None:
                missing = True
                continue
            rows, keep, summary = _load(one.data)
            if summary:
                found, missing = {}, False
            for scope, name, payload in rows:
                if not (keep and (scope, name) in found):
                    found[scope, name] = payload
        if not missing:
            return found, numbers
        await thread.again(attempt)
    raise AssertionError


async def sum_up(thread: Thread, life: str) -> None:
    """Make one object of all."""
    found, numbers = await _read(thread, life)
    with suppress(ObjectExistsError):  # somebody stored more; another time
        await _replace(thread, life, found, numbers)


async def _summary_after(thread: Thread, life: str, number: int) -> int | None:
    """The highest number if a summary comes after an object, which may not have seen it; otherwise None."""
    later = [n for n in await _numbers(thread, life) if n > number]
    for one in await in_parallel([thread.port.get(thread.folder.value(life, n)) for n in later]):
        if one is None or _load(one.data)[2]:
            return max(later)
    return None


async def _replace(thread: Thread, life: str, left: Values, numbers: Sequence[int]) -> int:
    """Put a summary in the place of all objects; its number.

    Raises:
        ObjectExistsError: Somebody stored more.
    """
    rows = [(scope, name, payload) for (scope, name), payload in left.items()]
    number = max(numbers, default=0) + 1
    await _create(thread, thread.folder.value(life, number), _dump(rows, keep=False, summary=True))
    with suppress(BackendError):  # they do not count any more
        await thread.port.delete([thread.folder.value(life, n) for n in numbers])
    return number


async def _create(thread: Thread, key: str, data: bytes) -> None:
    """Create an object, unless there is one; an earlier attempt whose answer was lost is none.

    Raises:
        ObjectExistsError: It is somebody else's.
    """
    try:
        await thread.create(key, data)
    except ObjectExistsError:
        found = await thread.port.get(key)
        if found is None or found.data != data:
            raise


def _dump(rows: Sequence[tuple[str, str, bytes]], *, keep: bool, summary: bool) -> bytes:
    fields = {
        "write": new_mark(),
        "keep": keep,
        "summary": summary,
        "rows": [[scope, name, base64.b64encode(payload).decode()] for scope, name, payload in rows],
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return b"1%08x%s" % (zlib.crc32(text), text)


def _load(data: bytes) -> tuple[list[tuple[str, str, bytes]], bool, bool]:
    text = data[9:]
    if data[:1] != b"1" or data[1:9] != b"%08x" % zlib.crc32(text):
        raise DamagedError("an object with keyed values is damaged")
    fields = json.loads(text)
    rows = [(scope, name, base64.b64decode(payload)) for scope, name, payload in fields["rows"]]
    return rows, fields["keep"], fields["summary"]
