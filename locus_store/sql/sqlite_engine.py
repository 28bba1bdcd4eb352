"""SQLite without waiting in the event loop: one thread that writes, a few that read, each with its own connection.

Readers never wait for the writer, and a cancelled caller leaves nothing half done, because a whole transaction is one
hop to a thread.

The threads know nothing of event loops but how to hand back a result, so one engine serves any number of loops, one
after the other or at once. They are daemons: a program that forgets to close ends all the same.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from locus_store.core.errors import BackendUnavailableError, StoreBusyError
from locus_store.sql.sqlite_direct import DirectConnection
from locus_store.sql.sqlite_files import Files, Settings, patiently
from locus_store.sql.sqlite_writer import Job, Outcome, Writer, finish, hand_back, translate

R = TypeVar("R")

_READERS = 3
_EXIT_SECONDS = 1.0


class Opening:
    """The threads and connections from one opening of the database to its closing.

    Args:
        settings: How to open it.
        before: The opening before this one, whose connections are closed before any is opened here. What it held in
            memory goes on here.
    """

    def __init__(self, settings: Settings, before: Opening | None) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.ready = False
        self.closed = False
        self.abandoned = False
        self.kept: DirectConnection | None = None
        """The only connection of a database in memory, while no thread has it."""
        self.files = Files(settings)
        while before is not None and before._writer is None and before._before is not None:
            before = before._before  # that one never had a connection
        self._before: Opening | None = before
        self._writes: SimpleQueue[Job | None] = SimpleQueue()
        self._reads: SimpleQueue[Job | None] = SimpleQueue()
        # Re-entrant: the garbage collector may run `stop` in a thread that holds it.
        self._lock = threading.RLock()
        self._writer: threading.Thread | None = None
        self._readers: list[threading.Thread] = []
        self._pending_reads = 0
        self._alive = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        _open.add(self)

    # --------------------------------------------------------------------------------- called from event loops

    def submit(self, job: Job, *, read: bool) -> bool:
        """Queue a job; False if this opening takes no more."""
        with self._lock:
            if self.closed:
                return False
            if read and not self.files.in_memory:
                self._pending_reads += 1
                if self._pending_reads > len(self._readers) < _READERS:
                    self._readers.append(self._start(self._read_all, "reader"))
                self._reads.put(job)
            else:
                if self._writer is None:
                    self._writer = self._start(self._write_all, "writer")
                self._writes.put(job)
            return True

    def _start(self, target: Callable[[], None], role: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"locus_store-sqlite-{role}", daemon=True)
        self._alive += 1
        try:
            thread.start()
        except BaseException:
            self._alive -= 1
            raise
        return thread

    def stop(self) -> None:
        """Take no more jobs, and let the threads end after those that are queued."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._writes.put(None)
            for _ in self._readers:
                self._reads.put(None)

    def abandon(self) -> None:
        """Nobody has this opening any more: close all, what is in memory as well."""
        if self.pid != os.getpid():
            return
        self.abandoned = True
        self.stop()
        with self._lock:
            kept, self.kept = self.kept, None
        if kept is not None:
            self.files.close(kept)

    async def wait(self) -> None:
        """Wait until all threads have ended, which `stop` made them do."""
        with self._lock:
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()
            if self._alive:
                self._waiting.append((loop, ended))
            else:
                ended.set_result(None)
        await ended
        self.join(_EXIT_SECONDS)  # they have nothing left to do but to return

    def join(self, seconds: float) -> None:
        """Wait for the threads, but not longer than this."""
        deadline = time.monotonic() + seconds
        for thread in (self._writer, *self._readers):
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    # --------------------------------------------------------------------------------------- run by the threads

    def _ended(self) -> None:
        with self._lock:
            self._alive -= 1
            waiting = [] if self._alive else self._waiting
            if not self._alive:
                self._waiting = []
        for loop, ended in waiting:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, ended)

    def _check_files(self) -> None:
        try:
            self.files.check()
        except BackendUnavailableError:
            self.stop()
            raise

    def _read_all(self) -> None:
        connection: DirectConnection | None = None
        try:
            while (job := self._reads.get()) is not None:
                if not job.future.cancelled():
                    outcome: Outcome
                    try:
                        connection = connection or self.files.open_another(job.deadline)
                        outcome = job, self._read(connection, job), None
                    except BaseException as e:
                        outcome = job, None, translate(e)
                    hand_back([outcome])
                    del outcome
                del job
                with self._lock:
                    self._pending_reads -= 1
        finally:
            if connection is not None:
                self.files.close(connection)
            self._ended()

    def _read(self, connection: DirectConnection, job: Job) -> Any:
        self._check_files()

        def once() -> Any:
            finish(connection)  # of what could not be ended when it failed
            connection.raw.execute("BEGIN")
            try:
                return job.run(connection)
            finally:
                finish(connection)

        return patiently(once, job.deadline)

    def _write_all(self) -> None:
        writer = Writer(self._open_first, self._check_files)
        try:
            if self._before is not None:
                self._before.join(self.settings.busy_timeout)
                self.kept, self._before.kept = self._before.kept, None
                self._before = None
            writer.run(self._writes)
        finally:
            if writer.connection is not None:
                self._put_away(writer.connection)
            self._ended()

    def _open_first(self, deadline: float) -> DirectConnection:
        connection, self.kept = self.kept, None
        connection = connection or self.files.open_first(deadline)
        self.ready = True
        return connection

    def _put_away(self, connection: DirectConnection) -> None:
        """Close a connection, but hold a database that is in memory until a thread needs it again."""
        with self._lock:
            if self.files.in_memory and not self.abandoned:
                self.kept = connection
                return
        self.files.close(connection)


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


_open: weakref.WeakSet[Opening] = weakref.WeakSet()
_forgotten: list[Any] = []
"""What a forked child must not touch, not even to free it: SQLite's connections belong to the parent."""


@atexit.register
def _close_all() -> None:
    # Not needed for safety. It leaves no log behind, so that the file alone is the database.
    openings = [opening for opening in _open if opening.pid == os.getpid()]
    for opening in openings:
        opening.stop()
    deadline = time.monotonic() + _EXIT_SECONDS
    for opening in openings:
        opening.join(max(0.0, deadline - time.monotonic()))


class _State:
    """What an engine leaves behind when nobody has it any more."""

    opening: Opening | None = None

    def abandon(self) -> None:
        if self.opening is not None:
            self.opening.abandon()


class SQLiteEngine:
    """Runs functions of a connection, each in a transaction of its own, from any event loop.

    Args:
        settings: How the database is opened.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state = _State()
        self._finalizer = weakref.finalize(self, self._state.abandon)
        self._finalizer.atexit = False

    def _current(self) -> Opening:
        if self._pid != os.getpid():
            self._finalizer.detach()
            _forgotten.append(self._state)
            self._begin()
        with self._lock:
            if self._state.opening is None or self._state.opening.closed:
                self._state.opening = Opening(self.settings, self._state.opening)
            return self._state.opening

    async def _do(self, function: Callable[..., R], args: Sequence[Any], *, read: bool, bare: bool = False) -> R:
        while True:
            opening = self._current()
            job = Job(function, args, self.settings.busy_timeout, bare=bare)
            if opening.submit(job, read=read):
                return cast(R, await job.future)

    async def write(self, function: Callable[..., R], *args: Any) -> R:
        """Run a function in a transaction that writes, and commit it."""
        return await self._do(function, args, read=False)

    async def read(self, function: Callable[..., R], *args: Any) -> R:
        """Run a function that reads, in one transaction: all that it reads is of one moment."""
        if not self._current().ready:
            await self.prepare()
        return await self._do(function, args, read=True)

    async def prepare(self) -> None:
        """Open the database; make what is missing, or check that nothing is."""
        await self._do(_nothing, (), read=False, bare=True)

    async def reclaim(self) -> int:
        """Give free space back; returns by how many bytes the files shrank."""
        files = self._current().files
        return await self._do(_reclaim, (files, self.settings.busy_timeout), read=False, bare=True)

    async def close(self) -> None:
        """End the threads and close their connections, after what is queued. The next call opens again."""
        opening = None if self._pid != os.getpid() else self._state.opening
        if opening is not None:
            opening.stop()
            await opening.wait()


def _nothing(_connection: DirectConnection) -> None:
    """Opening is all that is wanted."""


def _reclaim(connection: DirectConnection, files: Files, busy_timeout: float) -> int:
    raw = connection.raw
    deadline = time.monotonic() + busy_timeout

    def size() -> int:
        if files.in_memory:
            pages, each = (raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            return int(pages * each)
        return files.size()

    before = size()
    patiently(lambda: raw.execute("VACUUM"), deadline)
    while raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > deadline:
            raise StoreBusyError("the space cannot be given back while a transaction of another connection is open")
        time.sleep(0.01)
    return max(0, before - size())
