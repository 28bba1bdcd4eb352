"""Jobs for the threads behind a SQLite database, and what the one that writes does with them.

Saves that arrive while another is being committed share the next transaction, each within a savepoint of its own: one
fsync for all of them, and one that fails is undone alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from locus_store.core.errors import LocusStoreError, ReferencedError
from locus_store.sql.dialects.sqlite import SQLITE
from locus_store.sql.sqlite_direct import DirectConnection
from locus_store.sql.sqlite_files import patiently

_GROUP = 100
"""How many saves share a transaction at most …"""
_GROUP_SECONDS = 0.02
"""… and how long one takes new ones in; other processes want the lock, too."""


class Job:
    """A function of a connection, and who waits for what it returns.

    Args:
        function: Called with a connection and the arguments.
        args: The arguments.
        busy_timeout: Seconds from now that it may wait for locks.
        bare: Run it outside of any transaction.

    Attributes:
        alone: No other shares its transaction.
    """

    __slots__ = ("alone", "args", "bare", "deadline", "function", "future", "loop")

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], busy_timeout: float, *, bare: bool = False
    ) -> None:
        self.function = function
        self.args = args
        self.bare = bare
        self.alone = False
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


def hand_back(outcomes: list[Outcome]) -> None:
    """Resolve what callers wait for, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, found in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, found)


def translate(error: BaseException) -> BaseException:
    """The error for the caller."""
    if isinstance(error, LocusStoreError):
        return error
    return SQLITE.translate(error) if isinstance(error, sqlite3.Error | SQLAlchemyError | OSError) else error


class Writer:
    """What the thread that writes does; for a database in memory it reads as well.

    Args:
        open_connection: Opens the connection, given until when it may wait.
        check: Raises if the connection is of no use any more.
    """

    def __init__(self, open_connection: Callable[[float], DirectConnection], check: Callable[[], None]) -> None:
        self.connection: DirectConnection | None = None
        self._open_connection = open_connection
        self._check = check
        self._again: deque[Job] = deque()
        self._stopped = False

    def run(self, queue: SimpleQueue[Job | None]) -> None:
        """Do jobs until None comes."""
        while not self._stopped or self._again:
            job = self._again.popleft() if self._again else queue.get()
            if job is None:
                self._stopped = True
            elif not job.future.cancelled():
                self._begin_with(job, queue)
            del job  # and with it what was saved

    def _begin_with(self, job: Job, queue: SimpleQueue[Job | None]) -> None:
        try:
            if self.connection is None:
                self.connection = self._open_connection(job.deadline)
            connection = self.connection
            self._check()
            finish(connection)  # of what could not be ended when it failed
            if job.bare:
                hand_back([(job, job.run(connection), None)])
                return
            patiently(lambda: connection.raw.execute("BEGIN IMMEDIATE"), job.deadline)
        except BaseException as e:
            hand_back([(job, None, translate(e))])
            return
        outcomes: list[Outcome] = []
        try:
            self._run_group(connection, job, queue, outcomes)
            self._commit(connection, outcomes)
        except BaseException as e:
            said = translate(e)
            waiting = [job for job, _, error in outcomes if error is None]
            if isinstance(said, ReferencedError) and len(waiting) > 1:
                # A host's foreign key that is checked at the commit, and one of these is why: each by itself, then.
                for other in waiting:
                    other.alone = True
                self._again.extend(waiting)
                outcomes = [outcome for outcome in outcomes if outcome[2] is not None]
            outcomes = [(job, None, error or said) for job, _, error in outcomes]
            with contextlib.suppress(sqlite3.Error, SQLAlchemyError):
                finish(connection)
        hand_back(outcomes)

    def _run_group(
        self, connection: DirectConnection, first: Job, queue: SimpleQueue[Job | None], outcomes: list[Outcome]
    ) -> None:
        raw = connection.raw
        until = time.monotonic() + _GROUP_SECONDS
        job: Job | None = first
        while job is not None:
            if not job.future.cancelled():
                try:
                    raw.execute("SAVEPOINT job")
                    result = job.run(connection)
                    raw.execute("RELEASE job")
                    outcomes.append((job, result, None))
                except BaseException as e:
                    alone = False
                    try:
                        alone = self._undo_one(raw, outcomes)
                    finally:
                        outcomes.append((job, None, translate(e)))
                    if not alone:
                        return
            if first.alone or len(outcomes) >= _GROUP or time.monotonic() > until:
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
        finish(connection)
        self._check()  # what was written to a deleted file is not there for anybody


def finish(connection: DirectConnection) -> None:
    """End what is left of a transaction, for SQLite and for SQLAlchemy."""
    try:
        if connection.raw.in_transaction:
            connection.raw.execute("ROLLBACK")
    finally:
        if connection.connection.in_transaction():
            connection.connection.rollback()
