"""Copying a thread: its older checkpoints first, where nobody looks, then one record with which all of it is there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Literal, NamedTuple

from locus_store.backends.objects import finding, names
from locus_store.backends.objects.formats import Checkpoint, Parent, Record, State
from locus_store.backends.objects.names import COPIED, Place
from locus_store.backends.objects.parallel import AT_ONCE, in_parallel
from locus_store.backends.objects.removing import when_removed
from locus_store.backends.objects.sweeping import sweep_folder
from locus_store.backends.objects.thread import Thread, new_mark
from locus_store.backends.objects.values import Values, all_values, copy_values
from locus_store.backends.objects.view import Overtaken, View
from locus_store.core import frames, payloads
from locus_store.core.driver import Key
from locus_store.core.errors import BackendError, CorruptCheckpointError
from locus_store.core.frames import DamagedError, ThreadName, UnknownFormatError

Answer = Literal["copied", "missing", "exists"]


class _Source(NamedTuple):
    """What is to be copied, as it was at one moment.

    Attributes:
        positions: The checkpoints, the newest first.
    """

    view: View
    state: State
    positions: Sequence[int]
    values: Values


async def clone(source: Thread, dest: Thread, *, upto: int | None, overwrite: bool, now: int) -> Answer:
    """See `Driver.clone`. What a copier that died has left is swept when it is old enough."""
    for attempt in count():
        try:
            found = await _source(source, upto, now)
            if found is None:
                return "missing"
            view = await when_removed(dest, await dest.newest_to_write(), now)
            if not overwrite and _has_checkpoints(view, now):
                return "exists"
            return await _copy(source, found, dest, view, overwrite=overwrite, now=now)
        except Overtaken:
            await source.again(attempt)
    raise AssertionError


def _has_checkpoints(view: View, now: int) -> bool:
    return view.alive(now) is not None and view.record is not None and view.record.checkpoint is not None


async def _source(source: Thread, upto: int | None, now: int) -> _Source | None:
    view = await source.newest_to_write()
    if view.alive(now) is None:
        return None
    view, positions, _ = await finding.positions_now(source, view)
    state = view.alive(now)
    if state is None:
        return None
    if upto is not None:
        low, high = 0, len(positions)
        while low < high:
            middle = (low + high) // 2
            if (await _read(source, view, positions[middle], whole=False)).version > upto:
                low = middle + 1
            else:
                high = middle
        positions = positions[low:]
    if not positions:
        return None
    return _Source(view, state, positions, await all_values(source, state.life))


async def _read(thread: Thread, view: View, position: int, *, whole: bool) -> Checkpoint:
    return _checkpoint(await _record(thread, view, position, whole=whole))


def _checkpoint(record: Record) -> Checkpoint:
    assert record.checkpoint is not None
    return record.checkpoint


async def _record(thread: Thread, view: View, position: int, *, whole: bool) -> Record:
    try:
        found = await thread.record(view.place(position), whole=whole)
    except (DamagedError, UnknownFormatError) as e:
        raise CorruptCheckpointError(thread.key.thread_id, None, f"it cannot be copied: {e}") from e
    if found is None or found[0].checkpoint is None:
        raise Overtaken(None)
    return found[0]


async def _copy(source: Thread, found: _Source, dest: Thread, view: View, *, overwrite: bool, now: int) -> Answer:
    token = names.token(now)
    life = names.token(now)
    made: dict[int, Checkpoint] = {}  # by position in the source, so that parents can be told from them
    oldest_first = [*reversed(found.positions)]
    head_at = oldest_first.pop()
    staged: list[str] = []

    async def copy(position: int, record: Record) -> None:
        place = Place.of(COPIED + _checkpoint(record).version, token)
        keys = dest.folder.at(place), dest.folder.id_at(_checkpoint(record).checkpoint_id, place)
        staged.extend(keys)
        await dest.port.put(keys[0], record.dump())
        await dest.port.put(keys[1], b"%d" % now)
        made[position] = _checkpoint(record)

    try:
        for i in range(0, len(oldest_first), AT_ONCE):
            batch = oldest_first[i : i + AT_ONCE]
            records = await in_parallel([_record(source, found.view, p, whole=True) for p in batch])
            made |= {p: _checkpoint(r) for p, r in zip(batch, records, strict=True)}
            copies = [_moved(source, dest, r, made) for r in records]
            await in_parallel([copy(p, r) for p, r in zip(batch, copies, strict=True)])
        head = _moved(source, dest, await _record(source, found.view, head_at, whole=True), made)
        if found.values:
            values = _rebound(source, dest, found.values)
            staged.append(dest.folder.value(life, 1))
            await copy_values(dest, life, values)
    except BaseException:
        with suppress(BackendError):  # a sweep finds it later
            await dest.port.delete(staged)
        raise
    # From here on the copy may be there, even if this fails.
    part = token if oldest_first else None
    done = await _appear(dest, view, head, found.state, part, life, overwrite=overwrite, now=now)
    if not done:
        await dest.port.delete(staged)
    return "copied" if done else "exists"


async def _appear(
    dest: Thread,
    view: View,
    head: Record,
    source: State,
    part: str | None,
    life: str,
    *,
    overwrite: bool,
    now: int,
) -> bool:
    """The one step; False if the destination has come into being meanwhile."""
    attempt = 0
    while True:
        try:
            if view.record is None:
                view = await dest.begin(now)
            before = view.state if view.state and not view.state.gone else None
            living = view.alive(now)
            state = State(
                names.token(now),
                life,
                view.next,
                _checkpoint(head).version,
                max(now, living.updated_at + 1) if living else now,
                new_mark(),
                source.expires_at,
                part=part,
            )
            after = await _append(dest, view, replace(head, state=state), before, now)
        except Overtaken as e:
            view = await when_removed(dest, await dest.go_on(attempt, e), now)
            attempt += 1
            if not overwrite and _has_checkpoints(view, now):
                return False
            continue
        if view.number:
            with suppress(BackendError):  # it does not count any more and is swept later
                await sweep_folder(dest, after, now, dead=before)
        return True


async def _append(dest: Thread, view: View, record: Record, before: State | None, now: int) -> View:
    """Add the record of a copy to the log of the destination, after what says where it is."""
    [marker] = dest.marker(record.state)
    announced = dest.folder.id_at(_checkpoint(record).checkpoint_id, Place.of(view.next, None))
    await dest.port.put(announced, b"%d" % now)
    await dest.port.put(marker, dest.key.thread_id.encode())
    try:
        return await dest.append(view, record, dest.marker(before) if before else [])
    except Overtaken:
        await dest.port.delete([marker])
        raise


def _moved(source: Thread, dest: Thread, record: Record, made: dict[int, Checkpoint]) -> Record:
    """A record as it is to be in the destination.

    Args:
        source: Where it is from.
        dest: Where it goes.
        record: The record, with its document.
        made: What is copied as well, by its position in the source.
    """
    checkpoint = _checkpoint(record)
    parent = checkpoint.parent
    if parent is not None:
        copied = made.get(parent.position)
        parent = Parent(COPIED + copied.version, parent.checkpoint_id) if copied else None
    checkpoint = replace(checkpoint, parent=parent)
    codec = dest.shelf.codec
    if codec is None or not codec.bound:
        return replace(record, checkpoint=checkpoint)
    names_of = _name(source.key), _name(dest.key)
    payload, blocks = record.document()
    block = payloads.rebind(blocks[0], codec, *names_of) if blocks else None
    return Record.pack(checkpoint, record.state, frames.rebind_one(payload, codec, *names_of), block or b"")


def _rebound(source: Thread, dest: Thread, values: Values) -> Values:
    codec = dest.shelf.codec
    if codec is None or not codec.bound:
        return values
    return {key: frames.rebind_one(value, codec, _name(source.key), _name(dest.key)) for key, value in values.items()}


def _name(key: Key) -> ThreadName:
    return ThreadName(*key)
