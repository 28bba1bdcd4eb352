"""SQLite without waiting in the event loop: one thread that writes, a few that read, each with its own connection.

Saves that arrive while another is being committed share the next transaction, each within a savepoint of its own: one
fsync for all of them. Readers never wait for the writer, and a cancelled caller leaves nothing half done, because a
whole transaction is one hop to a thread.

The threads know nothing of event loops but how to hand back a result, so one engine serves any number of loops, one
after the other or at once. They are daemons: a program that forgets to close ends all the same.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from locus_store.core.errors import BackendUnavailableError, StoreBusyError
from locus_store.sql.dialects.sqlite import SQLITE
from locus_store.sql.sqlite_direct import DirectConnection
from locus_store.sql.sqlite_files import Files, Settings, patiently

R = TypeVar("R")

_READERS = 3
_GROUP = 100
"""How many saves share a transaction at most …"""
_GROUP_SECONDS = 0.02
"""… and how long one takes new ones in; other processes want the lock, too."""
_EXIT_SECONDS = 1.0


class Job:
    """A function of a connection, and who waits for what it returns.

    Args:
        function: Called with a connection and the arguments.
        args: The arguments.
        busy_timeout: Seconds from now that it may wait for locks.
        bare: Run it outside of any transaction.
    """

    __slots__ = ("args", "bare", "deadline", "function", "future", "loop")

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], busy_timeout: float, *, bare: bool = False
    ) -> None:
        self.function = function
        self.args = args
        self.bare = bare
        self.deadline = time.monotonic() + busy_timeout
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def run(self, connection: DirectConnection) -> Any:
        """Call the function."""
        return self.function(cast(Connection, connection), *self.args)


Outcome = tuple[Job, Any, BaseException | None]


def _deliver(outcomes: list[Outcome]) -> None:
    for job, result, error in outcomes:
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _hand_back(outcomes: list[Outcome]) -> None:
    """Resolve what callers wait for, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, found in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, found)


def _translate(error: BaseException) -> BaseException:
    return SQLITE.translate(error) if isinstance(error, sqlite3.Error | SQLAlchemyError | OSError) else error


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
        self.abandoned = True
        self.stop()
        with self._lock:
            kept, self.kept = self.kept, None
        if kept is not None:
            self.files.close(kept)

    def keep(self, connection: DirectConnection) -> None:
        """Hold a database that is in memory until a thread needs it again."""
        with self._lock:
            if not self.abandoned:
                self.kept = connection
                return
        self.files.close(connection)

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
                        outcome = job, None, _translate(e)
                    _hand_back([outcome])
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
            connection.raw.execute("BEGIN")
            try:
                return job.run(connection)
            finally:
                _finish(connection, "ROLLBACK")

        return patiently(once, job.deadline)

    def _write_all(self) -> None:
        try:
            if self._before is not None:
                self._before.join(self.settings.busy_timeout)
                self.kept, self._before.kept = self._before.kept, None
                self._before = None
            Writer(self).run(self._writes)
        finally:
            self._ended()


class Writer:
    """The thread that writes, and, for a database in memory, reads as well."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._files = opening.files
        self._connection: DirectConnection | None = None
        self._again: deque[Job] = deque()
        self._stopped = False

    def run(self, queue: SimpleQueue[Job | None]) -> None:
        """Do jobs until None comes."""
        try:
            while not self._stopped or self._again:
                job = self._again.popleft() if self._again else queue.get()
                if job is None:
                    self._stopped = True
                elif not job.future.cancelled():
                    self._begin_with(job, queue)
        finally:
            if self._connection is not None:
                if self._files.in_memory:
                    self._opening.keep(self._connection)
                else:
                    self._files.close(self._connection)

    def _begin_with(self, job: Job, queue: SimpleQueue[Job | None]) -> None:
        try:
            connection = self._open(job.deadline)
            self._opening._check_files()
            if job.bare:
                _hand_back([(job, job.run(connection), None)])
                return
            patiently(lambda: connection.raw.execute("BEGIN IMMEDIATE"), job.deadline)
        except BaseException as e:
            _hand_back([(job, None, _translate(e))])
            return
        outcomes: list[Outcome] = []
        try:
            self._run_group(connection, job, queue, outcomes)
            self._commit(connection, outcomes)
        except BaseException as e:
            _finish(connection, "ROLLBACK")
            outcomes = [(job, None, error or _translate(e)) for job, _, error in outcomes]
        _hand_back(outcomes)

    def _open(self, deadline: float) -> DirectConnection:
        if self._connection is None:
            self._connection, self._opening.kept = self._opening.kept, None
        if self._connection is None:
            self._connection = self._files.open_first(deadline)
        self._opening.ready = True
        return self._connection

    def _run_group(
        self, connection: DirectConnection, first: Job, queue: SimpleQueue[Job | None], outcomes: list[Outcome]
    ) -> None:
        raw = connection.raw
        until = time.monotonic() + _GROUP_SECONDS
        job: Job | None = first
        while job is not None:
            if not job.future.cancelled():
                raw.execute("SAVEPOINT job")
                try:
                    result = job.run(connection)
                    raw.execute("RELEASE job")
                    outcomes.append((job, result, None))
                except BaseException as e:
                    if not self._undo_one(raw, outcomes):
                        outcomes.append((job, None, _translate(e)))
                        return
                    outcomes.append((job, None, _translate(e)))
            if len(outcomes) >= _GROUP or time.monotonic() > until:
                return
            job = self._next(queue)

    def _undo_one(self, raw: sqlite3.Connection, outcomes: list[Outcome]) -> bool:
        """Undo a job that failed. False if SQLite undid the whole transaction: the others are run again then."""
        if raw.in_transaction:
            try:
                raw.execute("ROLLBACK TO job")
                raw.execute("RELEASE job")
            except sqlite3.Error:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
            else:
                return True
        self._again.extend(job for job, _, error in outcomes if error is None)
        outcomes[:] = [outcome for outcome in outcomes if outcome[2] is not None]
        return False

    def _next(self, queue: SimpleQueue[Job | None]) -> Job | None:
        """The next job that may join the group, if there is one."""
        if self._stopped:
            return None
        try:
            job = queue.get_nowait()
        except Empty:
            return None
        if job is None:
            self._stopped = True
        elif job.bare:
            self._again.append(job)
            return None
        return job

    def _commit(self, connection: DirectConnection, outcomes: list[Outcome]) -> None:
        if connection.raw.in_transaction:
            deadline = max([job.deadline for job, _, _ in outcomes], default=0.0)
            patiently(lambda: connection.raw.execute("COMMIT"), deadline)
        _finish(connection, "ROLLBACK")
        self._opening._check_files()  # what was written to a deleted file is not there for anybody


def _finish(connection: DirectConnection, statement: str) -> None:
    """End the transaction, if there is one, for SQLite and for SQLAlchemy."""
    if connection.raw.in_transaction:
        connection.raw.execute(statement)
    if connection.connection.in_transaction():
        connection.connection.rollback()


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
        await self._do(_nothing, (), read=False)

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
