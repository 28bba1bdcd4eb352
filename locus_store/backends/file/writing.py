"""The primitives that write, as plain functions: each holds the thread's lock from its first look to its last step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from locus_store.backends.file import formats, names, saving
from locus_store.backends.file.copying import Copy
from locus_store.backends.file.folder import View
from locus_store.backends.file.locks import Locks
from locus_store.backends.file.reading import Reader
from locus_store.backends.file.recent import Recent
from locus_store.backends.file.removing import Folders, Removal
from locus_store.core.driver import Dropped, Key, Plan, PutResult, Saved, Trimmed
from locus_store.core.frames import UnknownFormatError


class Writer:
    """Everything that changes a thread.

    Args:
        folders: Changes threads' folders.
        reader: Knows where they are.
        locks: Keeps writers apart.
    """

    def __init__(self, folders: Folders, reader: Reader, locks: Locks) -> None:
        self.folders = folders
        self.disk = folders.disk
        self.reader = reader
        self.locks = locks
        self._recent = Recent()

    def _view(self, key: Key) -> View | None:
        """What is in a thread's folder, with all that was begun finished; None if there is nothing."""
        path = self.reader.path(key)
        self._recent.forget(key)
        try:
            view = View(path, key, locked=True)
        except FileNotFoundError:
            return None
        return self.folders.settled(view) if view.found else None

    def _live(self, key: Key, now: int) -> View | None:
        """The same for a write: what has expired is removed first."""
        view = self._view(key)
        if view is not None and view.expired(now):
            self.disk.discard(view.path)
            return None
        return view

    def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        with self.locks.hold(key):
            path, generation = self.reader.path(key), self.locks.generation(key)
            known = self._recent.take(key, path, generation)
            result: PutResult | None = None
            after: View | None = None
            if known and not known.expired(plan.now):
                result, after = saving.put(self.folders, path, key, known, plan)
            if not isinstance(result, Saved):  # what is remembered is not enough to refuse
                result, after = saving.put(self.folders, path, key, self._live(key, plan.now), plan)
            if after is not None:
                self._recent.keep(key, generation, after)
            return result

    def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, now: int) -> Dropped:
        """See `Driver.drop`."""
        path = self.reader.path(key)
        if not self.disk.has_folder(path):
            return Dropped(0, None, None)
        with self.locks.hold(key):
            view = self._live(key, now)
            if view is None:
                return Dropped(0, None, None)
            found = [] if checkpoint_ids is None else [view.find(i) for i in checkpoint_ids]
            going = view.checkpoints if checkpoint_ids is None else sorted({n for n in found if n is not None})
            if checkpoint_ids is None or (going and len(going) == len(view.checkpoints)):
                self.disk.discard(path)
                return Dropped(len(going), view.epoch if going else None, None)
            if not view.exists:
                return Dropped(0, None, None)
            epoch = self._remove(view, self.folders.plan(view, going)) if going else view.epoch
            return Dropped(len(going), view.epoch, epoch)

    def _remove(self, view: View, removal: Removal) -> int:
        """Remove what was planned; returns the epoch after it."""
        epoch = self.folders.hide(view.path, self.folders.current(view), removal)
        self.folders.remove(view, removal)
        return epoch

    def clone(
        self, source: Key, dest: Key, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        if not self.disk.has_folder(self.reader.path(source)):
            return "missing"
        with self.locks.hold(source, dest):
            view = self._view(source)
            checkpoints = view.below(None if upto is None else upto + 1)[::-1] if view and not view.expired(now) else []
            if view is None or not checkpoints:
                return "missing"
            there = self._live(dest, now)
            if there and there.exists and not overwrite:
                return "exists"
            path = self.reader.path(dest)
            self.disk.make_folder(os.path.dirname(path))
            updated_at = max(now, there.times.updated_at + 1) if there else now
            Copy(self.folders, view, dest).make(path, checkpoints, updated_at)
            return "copied"

    def trim(self, tenant: str, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`."""
        checkpoints = blocks = 0
        for folder in self.reader.folders(tenant):
            key = Key(tenant, self.reader.thread_id(folder))
            with suppress(UnknownFormatError), self.locks.hold(key):  # a newer release may trim its own threads
                trimmed = self._trim_thread(key, older_than, keep_last, now)
                checkpoints += trimmed.checkpoints
                blocks += trimmed.blocks
        self.disk.sweep()
        return Trimmed(checkpoints, blocks)

    def _trim_thread(self, key: Key, older_than: int, keep_last: int, now: int) -> Trimmed:
        view = self._view(key)
        if view is None:
            self.disk.remove_empty(self.reader.path(key))
            return Trimmed(0, 0)
        old = [n for n in view.below(None)[keep_last:] if view.info(n).created_at < older_than]
        if view.expired(now) or (len(old) == len(view.checkpoints) and (old or not view.records)):
            self.disk.discard(view.path)
            return Trimmed(len(view.checkpoints), len(view.listing.blocks))
        blocks = 0
        if old:
            removal = self.folders.plan(view, sorted(old))
            self._remove(view, removal)
            blocks += sum(left is None for _, left in removal.blocks)
            view = View(view.path, key, locked=True)
        unused = self.folders.unused(view)
        if unused.blocks or view.listing.joined:
            self._remove(view, unused)
        return Trimmed(len(old), blocks + len(unused.blocks))

    def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        name = names.records(scope)
        with self.locks.hold(key):
            view = self._live(key, now)
            if view is None:
                if not items:
                    return
                view = saving.create(self.folders, self.reader.path(key), key)
            there = name in view.records
            records = formats.read_records(os.path.join(view.path, name))[1] if there else {}
            for k, payload in items:
                if not (keep and k in records):
                    records[k] = payload
            if view.times.expires_at != expires_at or (view.thread and name in view.thread.hidden):
                self.folders.write_thread(view.path, replace(self.folders.current(view), expires_at=expires_at))
            if items:
                data = formats.dump_records(scope, records, pretty=self.folders.pretty)
                self.disk.write(os.path.join(view.path, name), data)
            self.disk.sync(view.path)

    def drop_records(self, key: Key, scope: str | None, now: int) -> int:
        """See `Driver.drop_records`."""
        if not self.disk.has_folder(self.reader.path(key)):
            return 0
        with self.locks.hold(key):
            view = self._live(key, now)
            if view is None:
                return 0
            going = [n for n in view.records if scope is None or n == names.records(scope)]
            count = sum(len(formats.read_records(os.path.join(view.path, n))[1]) for n in going)
            if not view.exists and len(going) == len(view.records):
                self.disk.discard(view.path)
            elif going:
                self._remove(view, Removal(going))
                # These names may come back.
                self.folders.write_thread(view.path, self.folders.current(View(view.path, key, locked=True)))
            return count
