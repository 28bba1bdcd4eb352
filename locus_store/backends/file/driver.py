"""The driver: primitives of `locus_store.core.driver` over folders and files.

    <base>/t-<tenant>/t-<thread>/thread.json        epoch, expiry, counters, and what is being removed
                                 c<version>-<id>    a checkpoint: a JSON header, then the payload
                                 b<number>          a block
                                 r-<scope>          records
    <base>/.locks/  <base>/.tmp/                    the store's own

Writers hold a lock of the thread; readers hold none and start again if they were disturbed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, ParamSpec, TypeVar

from locus_store.backends.file import formats, names, saving
from locus_store.backends.file.copying import Copy
from locus_store.backends.file.disk import Disk
from locus_store.backends.file.folder import View
from locus_store.backends.file.locks import Locks
from locus_store.backends.file.reading import Reader
from locus_store.backends.file.recent import Recent
from locus_store.backends.file.removing import Folders, Removal
from locus_store.backends.file.workers import Workers
from locus_store.core.capabilities import Capabilities
from locus_store.core.driver import Driver, Dropped, Info, Key, Plan, PutResult, Saved, Stored, Trimmed
from locus_store.core.errors import BackendError, LocusStoreError
from locus_store.core.frames import Codec

P = ParamSpec("P")
T = TypeVar("T")

_WORKERS = 16


class FileDriver(Driver):
    """Threads as folders of files below one folder, which several processes may use.

    Args:
        base_dir: The folder. It is made by the first write; reading one that is not there finds nothing.
        pretty: Whether the JSON in the files is indented.
        codec: What frames go through; it is needed where a removal rewrites a block.
        fsync: Whether a save returns only when it is on the disk. Without it saves are faster, and a crash of the
            machine (not one of the process) may lose or damage the last ones.
        lock_timeout: Seconds that a write waits at most for other writers of the same thread.
    """

    capabilities = Capabilities(
        metadata_query=True,
        vacuum=True,
        branching=True,
        ttl=True,
        list_threads=True,
        list_with_metadata=True,
        persistent_checkpoint_ids=True,
        persistent=True,
        shared=True,
        incremental=True,
        records=True,
    )

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        *,
        pretty: bool = False,
        codec: Codec | None = None,
        fsync: bool = True,
        lock_timeout: float = 10.0,
    ) -> None:
        self.base = os.path.abspath(base_dir)
        self._lock_timeout = lock_timeout
        self._disk = Disk(self.base, fsync=fsync)
        self._folders = Folders(self._disk, codec, pretty=pretty)
        self._workers = Workers(_WORKERS, "locus-store-file")
        self._pid = os.getpid()
        self._renew_locks()

    @property
    def codec(self) -> Codec | None:
        """What frames go through."""
        return self._folders.codec

    @codec.setter
    def codec(self, codec: Codec | None) -> None:
        self._folders.codec = codec

    def _renew_locks(self) -> None:
        self._locks = Locks(self.base, self._lock_timeout)
        self._reader = Reader(self.base, self._locks)
        self._recent = Recent()

    # --------------------------------------------------------------------------------------------------- the interface

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        return await self._run(self._put, key, plan)

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """See `Driver.get`.

        Raises:
            DamagedError: The checkpoint's file is damaged.
            UnknownFormatError: A newer release wrote it.
        """
        return await self._run(self._reader.get, key, checkpoint_id, now)

    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        """See `Driver.info`."""
        return await self._run(self._reader.info, key, checkpoint_id, now)

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`; of a damaged checkpoint it tells what the name of its file tells."""
        return await self._run(self._reader.infos, key, before, limit, now)

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        return (await self._run(self._reader.threads, tenant, pattern, now))[offset:][:limit]

    async def find(
        self,
        tenant: str,
        terms: Sequence[bytes],
        *,
        thread_id: str | None,
        newest_only: bool,
        limit: int | None,
        offset: int,
        now: int,
    ) -> list[Info]:
        """See `Driver.find`; it reads the header of each checkpoint that it looks at."""
        last = None if limit is None else offset + limit
        found = await self._run(self._reader.find, tenant, terms, thread_id, newest_only, last, now)
        return found[offset:last]

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """See `Driver.drop`."""
        return await self._run(self._drop, key, checkpoint_ids, now)

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        return await self._run(self._clone, source, dest, upto, overwrite, now)

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`; it also sweeps away what writers that died have left."""
        return await self._run(self._trim, tenant, older_than, keep_last, now)

    async def reclaim(self) -> int:
        """Nothing to do: a file that is removed gives its space back at once."""
        return 0

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        await self._run(self._put_records, key, scope, items, keep, now, expires_at)

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        return await self._run(self._reader.records, key, scope, now)

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """See `Driver.drop_records`."""
        return await self._run(self._drop_records, key, scope, now)

    async def prepare(self) -> None:
        """Make the folder."""
        await self._run(self._disk.prepare)

    async def aclose(self) -> None:
        """Wait for what still runs, and end the worker threads."""
        await self._workers.close()

    async def disk_usage(self, key: Key | None) -> int:
        """Bytes in the files of one thread or of the whole store."""
        return await self._run(self._disk_usage, self.base if key is None else self._reader.path(key))

    # ------------------------------------------------------------------------------------------------------- the steps

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._pid != os.getpid():  # after a fork a lock may be held by a thread that is not here
            self._pid = os.getpid()
            self._renew_locks()

        def call() -> T:
            try:
                return function(*args, **kwargs)
            except LocusStoreError:
                raise
            except OSError as e:
                raise BackendError(f"the file store in {self.base} failed: {e}") from e

        return await self._workers.run(call)

    def _view(self, key: Key) -> View | None:
        """What is in a thread's folder, with all that was begun finished; None if there is nothing."""
        path = self._reader.path(key)
        self._recent.forget(key)
        try:
            view = View(path, key, locked=True)
        except FileNotFoundError:
            return None
        return self._folders.settled(view) if view.found else None

    def _live(self, key: Key, now: int) -> View | None:
        """The same for a write: what has expired is removed first."""
        view = self._view(key)
        if view is not None and view.expired(now):
            self._disk.discard(view.path)
            return None
        return view

    def _put(self, key: Key, plan: Plan) -> PutResult:
        with self._locks.hold(key):
            path, generation = self._reader.path(key), self._locks.generation(key)
            known = self._recent.take(key, path, generation)
            result: PutResult | None = None
            after: View | None = None
            if known and not known.expired(plan.now):
                result, after = saving.put(self._folders, path, key, known, plan)
            if not isinstance(result, Saved):  # what is remembered is not enough to refuse
                result, after = saving.put(self._folders, path, key, self._live(key, plan.now), plan)
            if after is not None:
                self._recent.keep(key, generation, after)
            return result

    def _drop(self, key: Key, checkpoint_ids: Sequence[str] | None, now: int) -> Dropped:
        path = self._reader.path(key)
        if not os.path.isdir(path):
            return Dropped(0, None, None)
        with self._locks.hold(key):
            view = self._live(key, now)
            if view is None:
                return Dropped(0, None, None)
            found = [] if checkpoint_ids is None else [view.find(i) for i in checkpoint_ids]
            going = view.checkpoints if checkpoint_ids is None else sorted({n for n in found if n is not None})
            if checkpoint_ids is None or (going and len(going) == len(view.checkpoints)):
                self._disk.discard(path)
                return Dropped(len(going), view.epoch if going else None, None)
            if not view.exists:
                return Dropped(0, None, None)
            epoch = self._remove(view, self._folders.plan(view, going)) if going else view.epoch
            return Dropped(len(going), view.epoch, epoch)

    def _remove(self, view: View, removal: Removal) -> int:
        """Remove what was planned; returns the epoch after it."""
        epoch = self._folders.hide(view.path, self._folders.current(view), removal)
        self._folders.remove(view, removal)
        return epoch

    def _clone(
        self, source: Key, dest: Key, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        if not os.path.isdir(self._reader.path(source)):
            return "missing"
        with self._locks.hold(source, dest):
            view = self._view(source)
            checkpoints = view.below(None if upto is None else upto + 1)[::-1] if view and not view.expired(now) else []
            if view is None or not checkpoints:
                return "missing"
            there = self._live(dest, now)
            if there and there.exists and not overwrite:
                return "exists"
            path = self._reader.path(dest)
            self._disk.make_folder(os.path.dirname(path))
            updated_at = max(now, there.times.updated_at + 1) if there else now
            Copy(self._folders, view, dest).make(path, checkpoints, updated_at)
            return "copied"

    def _trim(self, tenant: str, older_than: int, keep_last: int, now: int) -> Trimmed:
        checkpoints = blocks = 0
        for folder in self._reader.folders(tenant):
            key = Key(tenant, self._reader.thread_id(folder))
            with self._locks.hold(key):
                trimmed = self._trim_thread(key, older_than, keep_last, now)
            checkpoints += trimmed.checkpoints
            blocks += trimmed.blocks
        self._disk.sweep()
        return Trimmed(checkpoints, blocks)

    def _trim_thread(self, key: Key, older_than: int, keep_last: int, now: int) -> Trimmed:
        view = self._view(key)
        if view is None:
            self._disk.remove_empty(self._reader.path(key))
            return Trimmed(0, 0)
        old = [n for n in view.below(None)[keep_last:] if view.info(n).created_at < older_than]
        if view.expired(now) or (len(old) == len(view.checkpoints) and (old or not view.records)):
            self._disk.discard(view.path)
            return Trimmed(len(view.checkpoints), len(view.listing.blocks))
        blocks = 0
        if old:
            removal = self._folders.plan(view, sorted(old))
            self._remove(view, removal)
            blocks += sum(left is None for _, left in removal.blocks)
            view = View(view.path, key, locked=True)
        unused = self._folders.unused(view)
        if unused.blocks or view.listing.joined:
            self._remove(view, unused)
        return Trimmed(len(old), blocks + len(unused.blocks))

    def _put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], keep: bool, now: int, expires_at: int | None
    ) -> None:
        name = names.records(scope)
        with self._locks.hold(key):
            view = self._live(key, now)
            if view is None:
                if not items:
                    return
                view = saving.create(self._folders, self._reader.path(key), key)
            there = name in view.records
            records = formats.read_records(os.path.join(view.path, name))[1] if there else {}
            for k, payload in items:
                if not (keep and k in records):
                    records[k] = payload
            if view.times.expires_at != expires_at or (view.thread and name in view.thread.hidden):
                self._folders.write_thread(view.path, replace(self._folders.current(view), expires_at=expires_at))
            if items:
                data = formats.dump_records(scope, records, pretty=self._folders.pretty)
                self._disk.write(os.path.join(view.path, name), data)
            self._disk.sync(view.path)

    def _drop_records(self, key: Key, scope: str | None, now: int) -> int:
        if not os.path.isdir(self._reader.path(key)):
            return 0
        with self._locks.hold(key):
            view = self._live(key, now)
            if view is None:
                return 0
            going = [n for n in view.records if scope is None or n == names.records(scope)]
            count = sum(len(formats.read_records(os.path.join(view.path, n))[1]) for n in going)
            if not view.exists and len(going) == len(view.records):
                self._disk.discard(view.path)
            elif going:
                self._remove(view, Removal(going))
                # These names may come back.
                self._folders.write_thread(view.path, self._folders.current(View(view.path, key, locked=True)))
            return count

    def _disk_usage(self, path: str) -> int:
        total = 0
        for folder, _, files in os.walk(path):
            for name in files:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_size
                except FileNotFoundError:
                    continue
        return total
