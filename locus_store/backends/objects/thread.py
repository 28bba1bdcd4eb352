"""One thread in the bucket: the newest record of its log, what that says is there, and adding to the log.

Every change of a thread is one new record, created only if nobody else created it first; nothing is ever written over.
The newest record says how the thread is, and holds its newest checkpoint. So one listing finds the newest, whoever
creates the next record was the first to go on from there, and what a record says of older ones (which do not count any
more) is true at once, before they are deleted.

The log of a new thread does not begin with 1: record 0, which holds nothing else, says where, at a number that no
earlier thread of the same id has come to.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from locus_store.backends.objects import formats, names
from locus_store.backends.objects.confirming import was_too_late
from locus_store.backends.objects.formats import FIRST_READ, Record, State
from locus_store.backends.objects.hints import Hint
from locus_store.backends.objects.names import Folder, Place
from locus_store.backends.objects.parallel import both, in_parallel
from locus_store.backends.objects.port import (
    Listed,
    ObjectConflictError,
    ObjectExistsError,
    all_listed,
)
from locus_store.backends.objects.view import BEHIND, Overtaken, Shelf, Sightings, View
from locus_store.core.driver import Key
from locus_store.core.errors import (
    BackendError,
    CorruptCheckpointError,
    PayloadTooLargeError,
    StoreBusyError,
    UnsupportedFormatError,
)
from locus_store.core.frames import DamagedError, UnknownFormatError

TRIES = 8
"""How often a service may answer the creation of an object with a conflict before that is an error."""
ATTEMPTS = 200
"""How often a call begins again at least because others were faster."""
PATIENCE = 30.0
"""Seconds for which it does so at least."""


class Thread:
    """A thread.

    Args:
        shelf: Where it is.
        key: Which one.
        name: Its id as it stands in keys, where only that is known.
    """

    def __init__(self, shelf: Shelf, key: Key, name: str | None = None) -> None:
        self.shelf = shelf
        self.key = key
        self.port = shelf.port
        self.folder = Folder(shelf.prefix, key, name)
        self._began = time.monotonic()

    def marker(self, state: State) -> list[str]:
        """The marker of the thread in a state, if it has one."""
        if not state.mark:
            return []
        return [self.folder.tenant.marker(state.updated_at, state.expires_at, state.mark, self.folder.name)]

    # ------------------------------------------------------------------------------------------------------- reading

    async def newest(self, *, whole: bool = False) -> View:
        """The thread as it is now: a listing and, unless it is as this process knew it, a read.

        Args:
            whole: Whether the newest checkpoint's document is wanted.
        """
        sightings = Sightings()
        for attempt in count():
            listed = (await self.port.list(self.folder.log, limit=2)).objects
            view = await self.as_of(listed, whole=whole)
            if view is not None:
                return view
            if sightings.add(listed[0].key) == BEHIND:
                break
            await self.again(attempt)
        # What is listed is not there, again and again: the listing is behind.
        for one in await all_listed(self.port, self.folder.log):
            view = await self.as_of([one], whole=whole)
            if view is not None:
                return view
        return View(0, None)

    async def as_of(self, listed: Sequence[Listed], *, whole: bool = False) -> View | None:
        """The thread as of the newest record that a listing shows, or that this process has seen already.

        None if that is not there any more.
        """
        hint = self.shelf.hints.get(self.folder.root)
        numbers = tuple(names.number_of(o.key) for o in listed)
        if hint is not None and hint.number > max(numbers, default=0):
            view = await self.view_at(hint.number, (hint.number, *numbers), hint, whole=whole)
            if view is not None:
                return view
            self.shelf.hints.forget(self.folder.root)
        if not numbers:
            return View(0, None)
        if hint is not None and not whole and (hint.number, hint.etag) == (numbers[0], listed[0].etag):
            return View(hint.number, hint.record, numbers, hint.clean, etag=hint.etag)
        view = await self.view_at(numbers[0], numbers, hint, whole=whole)
        return replace(view, etag=listed[0].etag) if view is not None and view.damage is not None else view

    async def view_at(
        self, number: int, listed: tuple[int, ...], hint: Hint | None = None, *, whole: bool = False
    ) -> View | None:
        """The thread as of a record; None if that is not there.

        Args:
            number: The record's number.
            listed: The numbers that a listing showed with it.
            hint: What this process knew of the thread.
            whole: Whether the checkpoint's document is wanted.
        """
        try:
            found = await self.record(Place("v", "", number), whole=whole)
        except (DamagedError, UnknownFormatError) as e:
            return View(number, None, listed, damage=e)
        if found is None:
            return None
        record, etag = found
        clean = hint is not None and (hint.number, hint.etag, hint.clean) == (number, etag, True)
        self.shelf.hints.put(self.folder.root, Hint(number, etag, record, clean))
        return View(number, record, listed, clean, etag=etag)

    async def again(self, attempt: int) -> None:
        """Wait a moment before an attempt is made again, as others were faster.

        Args:
            attempt: How many were made before the one that failed.

        Raises:
            StoreBusyError: They are all the time.
        """
        if attempt >= ATTEMPTS - 1 and time.monotonic() - self._began > PATIENCE:
            raise StoreBusyError(f"thread {self.key.thread_id!r}: others were faster {attempt + 1} times")
        # Whoever waits longer the longer it has waited is overtaken for ever.
        await pause(min(attempt, 3))

    async def newest_to_write(self) -> View:
        """The thread as it is now, for a change.

        Raises:
            CorruptCheckpointError: The newest record cannot be read, so that nothing can be built on it.
        """
        return self.check(await self.newest())

    def check(self, view: View) -> View:
        """Raise unless the record can be read."""
        if isinstance(view.damage, UnknownFormatError):
            raise UnsupportedFormatError(self.key.thread_id, None, str(view.damage)) from view.damage
        if view.damage is not None:
            raise CorruptCheckpointError(
                self.key.thread_id, None, f"{view.damage}; restore the object, or delete the thread"
            ) from view.damage
        return view

    async def record(self, place: Place, *, whole: bool = False) -> tuple[Record, str] | None:
        """What is at a place, with its etag; None if there is nothing.

        Args:
            place: Where to look.
            whole: Whether the document is wanted too.

        Raises:
            DamagedError: It cannot be read.
        """
        key = self.folder.at(place)
        found = await self.port.get(key, end=None if whole else FIRST_READ)
        if found is None:
            return None
        data = found.data
        end = formats.header_end(data)
        if end > len(data) and not whole:
            more = await self.port.get(key, start=len(data), end=end)
            data += more.data if more is not None and more.etag == found.etag else b""
        return formats.load(data, whole=whole), found.etag

    async def copy_of_head(self, view: View) -> Record:
        """The newest record with its document, for one that changes something else.

        Raises:
            Overtaken: It is not the newest any more.
        """
        if view.record is not None and view.record.checkpoint is None:
            return view.record
        found = await self.record(Place.of(view.number, None), whole=True)
        if found is None:
            raise Overtaken(None)
        return found[0]

    # ------------------------------------------------------------------------------------------------------- writing

    async def begin(self, now: int) -> View:
        """Let the log of a thread begin, of which there is no record.

        Raises:
            Overtaken: Somebody else did.
        """
        record = Record(State.new(now, names.number_before_first() + 1), None)
        try:
            etag = await self.create(self.folder.number(0), record.dump())
        except ObjectExistsError:
            raise Overtaken(await self.view_at(0, (0,))) from None
        return View(0, record, (0,), True, etag=etag)

    async def announce(self, view: View, objects: Mapping[str, bytes]) -> None:
        """Write what must be there before the next record, and delete what the newest one hides.

        Args:
            view: The thread.
            objects: By key; they may be there, and point nowhere until the record is.
        """
        puts = [self._put(key, data) for key, data in objects.items()]
        await in_parallel([*puts, self._clean(view)])

    async def _put(self, key: str, data: bytes) -> None:
        await self.port.put(key, data)

    async def append(self, view: View, record: Record, useless: Sequence[str] = ()) -> View:
        """Add a record to the log: the one step in which a change comes about.

        Args:
            view: The thread that it goes on from.
            record: The record.
            useless: Objects to delete when it is there; if that fails, a sweep finds them.

        Raises:
            Overtaken: Somebody else added one first.
        """
        number = view.next
        record = replace(record, state=record.state.after(view.state))
        data = record.dump()
        if len(data) > self.port.max_bytes:
            raise PayloadTooLargeError(len(data), self.port.max_bytes)
        key = self.folder.number(number)
        try:
            etag = await self.create(key, data)
        except ObjectExistsError:
            listing = self.port.list(self.folder.log, limit=2)
            page, rival = await both(listing, self.view_at(number, (number, *view.listed)))
            if rival is None or rival.record is None or rival.record.state.write != record.state.write:
                # Others may have gone on long since: whoever follows them record by record never gets there.
                newest = max([names.number_of(o.key) for o in page.objects], default=0)
                current = await self.as_of(page.objects) if newest > number else rival
                raise Overtaken(current or rival, None if rival is None else rival.record) from None
            # An earlier attempt of this very write was done, and its answer lost.
            etag = rival.etag
        await in_parallel([self._confirm(view, number, record), self._try_to_delete(useless)])
        clean = not record.state.hides
        header = Record(record.state, record.checkpoint)
        self.shelf.hints.put(self.folder.root, Hint(number, etag, header, clean))
        return View(number, header, (number, *view.listed), clean, etag=etag)

    async def _confirm(self, view: View, number: int, record: Record) -> None:
        """Make sure that a record that was created is one of the log.

        Raises:
            Overtaken: It is none, and was deleted again.
        """
        late, now = await was_too_late(self, view, number, record.state)
        if late:
            await self.port.delete([self.folder.number(number)])
            raise Overtaken(now)
        if now is not None and record.checkpoint is not None:
            # Others have gone on from it already. If they had just deleted the thread, its announcement went, too.
            place = Place.of(number, None)
            await self.port.put(
                self.folder.id_at(record.checkpoint.checkpoint_id, place), b"%d" % names.time_of(record.state.write)
            )

    async def _try_to_delete(self, keys: Sequence[str]) -> None:
        if keys:
            with suppress(BackendError):
                await self.port.delete(keys)

    async def create(self, key: str, data: bytes) -> str:
        """Create an object, unless there is one."""
        for attempt in range(TRIES):
            try:
                return await self.port.put(key, data, new=True)
            except ObjectConflictError:
                if attempt == TRIES - 1:
                    raise
                await pause(attempt)
        raise AssertionError

    async def go_on(self, attempt: int, overtaken: Overtaken) -> View:
        """The thread for the next attempt."""
        await self.again(attempt)
        return self.check(overtaken.view) if overtaken.view else await self.newest_to_write()

    async def keys_at(self, places: Iterable[tuple[Place, str | None]]) -> list[str]:
        """The objects of checkpoints: themselves, and what says where they are.

        Args:
            places: Where they are, with their ids where those are known.
        """

        async def keys(place: Place, checkpoint_id: str | None) -> list[str]:
            if checkpoint_id is None:
                try:
                    found = await self.record(place)
                except (DamagedError, UnknownFormatError):
                    found = None
                if found is not None and found[0].checkpoint is not None:
                    checkpoint_id = found[0].checkpoint.checkpoint_id
            return [
                self.folder.at(place),
                *([] if checkpoint_id is None else [self.folder.id_at(checkpoint_id, place)]),
            ]

        return [key for some in await in_parallel([keys(*one) for one in places]) for key in some]

    async def _clean(self, view: View) -> None:
        """Delete what the newest record hides, unless that is known to be done: the next one does not say it again."""
        state = view.state
        if state is not None and state.hides and not view.clean:
            places = [(Place.of(position, state.part), None) for position in sorted(state.hides)]
            await self.port.delete(await self.keys_at(places))

    def mark_clean(self, view: View) -> None:
        """What the record hides was deleted."""
        hint = self.shelf.hints.get(self.folder.root)
        if hint is not None and hint.number == view.number:
            self.shelf.hints.put(self.folder.root, Hint(hint.number, hint.etag, hint.record, True))


async def pause(attempt: int) -> None:
    """Let others go first, a while that is different for each."""
    await asyncio.sleep(random.random() * 0.002 * 2**attempt)  # noqa: S311  no secret


def new_mark() -> str:
    """A random name for a marker."""
    return os.urandom(4).hex()
