"""SQLite without waiting in the event loop: one thread that writes, a few that read, each with its own connection.

Saves that arrive while another is being committed share the next transaction, each within a savepoint of its own: one
fsync for all of them. Readers never wait for the writer, and a cancelled caller leaves nothing half done, because a
whole transaction is one hop to a thread.

Threads know nothing of event loops but how to hand back a result, so one engine serves any number of loops, one after
the other or at once. They are daemons: a program that forgets to close ends all the same.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import sqlite3
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import SQLAlchemyError

from locus_store.core.errors import BackendUnavailableError, StoreBusyError
from locus_store.sql import schema
from locus_store.sql.dialects.base import Kind
from locus_store.sql.dialects.sqlite import SQLITE
from locus_store.sql.direct import DirectConnection

R = TypeVar("R")

MEMORY = ":memory:"
_READERS = 4
_GROUP = 100
"""How many saves share a transaction at most …"""
_GROUP_SECONDS = 0.02
"""… and how long one takes new ones in; other processes want the lock, too."""
_EXIT_SECONDS = 1.0

Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Settings(NamedTuple):
    """How a database is opened."""

    path: str
    synchronous: str
    busy_timeout: float
    create_schema: bool


class _Job:
    """A function of a connection that a caller waits for."""

    __slots__ = ("args", "bare", "deadline", "function", "future", "loop")

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], busy_timeout: float, *, bare: bool = False
    ) -> None:
        self.function = function
        self.args = args
        self.bare = bare  # outside any transaction
        self.deadline = time.monotonic() + busy_timeout
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


def _deliver(outcomes: list[Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _hand_back(done: list[tuple[_Job, Any, BaseException | None]]) -> None:
    """Resolve what callers wait for, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for job, result, error in done:
        by_loop.setdefault(job.loop, []).append((job.future, result, error))
    for loop, outcomes in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed, nobody waits any more
            loop.call_soon_threadsafe(_deliver, outcomes)


def _translate(error: BaseException) -> BaseException:
    return SQLITE.translate(error) if isinstance(error, sqlite3.Error | SQLAlchemyError | OSError) else error


def _patiently(action: Callable[[], R], deadline: float) -> R:
    """Do something again while the database is locked; waits are of random length, so that nobody starves."""
    longest = 0.002
    while True:
        try:
            return action()
        except (sqlite3.Error, SQLAlchemyError) as e:
            if SQLITE.classify(e) is not Kind.BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.0005, longest))  # noqa: S311 - no secret
        longest = min(longest * 1.5, 0.03)
