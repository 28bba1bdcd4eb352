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

from locus_store.backends.file.disk import Disk
from locus_store.backends.file.locks import Locks
from locus_store.backends.file.reading import Reader
from locus_store.backends.file.removing import Folders
from locus_store.backends.file.writing import Writer
from locus_store.backends.workers import Workers
from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import Contents, Driver, Dropped, Info, Key, Plan, PutResult, Stored, Trimmed
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

    capabilities = replace(EVERYTHING_SHARED, search=True)

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        *,
        pretty: bool = False,
        codec: Codec | None = None,
        fsync: bool = True,
        lock_timeout: float = 10.0,
    ) -> None:
        if not os.fspath(base_dir):
            raise ValueError("base_dir is empty: name a folder ('.' is the current one)")
        self.base = os.path.abspath(base_dir)
        self._lock_timeout = lock_timeout
        self._disk = Disk(self.base, fsync=fsync)
        self._folders = Folders(self._disk, codec, pretty=pretty)
        self._workers = Workers(_WORKERS, "locus-store-file")
        self._start()

    @property
    def codec(self) -> Codec | None:
        """What frames go through."""
        return self._folders.codec

    @codec.setter
    def codec(self, codec: Codec | None) -> None:
        self._folders.codec = codec

    def _start(self) -> None:
        self._pid = os.getpid()
        locks = Locks(self._disk, self._lock_timeout)
        self._its_reader = Reader(self.base, locks)
        self._its_writer = Writer(self._folders, self._its_reader, locks)

    @property
    def _reader(self) -> Reader:
        if self._pid != os.getpid():  # after a fork a lock may be held by a thread that is not here
            self._start()
        return self._its_reader

    @property
    def _writer(self) -> Writer:
        if self._pid != os.getpid():
            self._start()
        return self._its_writer

    # --------------------------------------------------------------------------------------------------- the interface

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        return await self._run(self._writer.put, key, plan)

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

    async def contents(self, key: Key, *, now: int) -> Contents | None:
        """See `Driver.contents`."""
        return await self._run(self._reader.contents, key, now)

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """See `Driver.drop`."""
        return await self._run(self._writer.drop, key, checkpoint_ids, now)

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        return await self._run(self._writer.clone, source, dest, upto, overwrite, now)

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`; it also sweeps away what writers that died have left."""
        return await self._run(self._writer.trim, tenant, older_than, keep_last, now)

    async def reclaim(self) -> int:
        """Nothing to do: a file that is removed gives its space back at once."""
        return 0

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        await self._run(self._writer.put_records, key, scope, items, keep, now, expires_at)

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        return await self._run(self._reader.records, key, scope, now)

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """See `Driver.drop_records`."""
        return await self._run(self._writer.drop_records, key, scope, now)

    async def prepare(self) -> None:
        """Make the folder."""
        await self._run(self._disk.prepare)

    async def aclose(self) -> None:
        """Wait for what still runs, and end the worker threads."""
        await self._workers.close()

    # ---------------------------------------------------------------------------------------------------------- worker

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            try:
                return function(*args, **kwargs)
            except LocusStoreError:
                raise
            except OSError as e:
                raise BackendError(f"the file store in {self.base} failed: {e}") from e

        return await self._workers.run(call)
