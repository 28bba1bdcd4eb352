"""Opening and closing connections to one SQLite database, and noticing that its file is no longer the same."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import SQLAlchemyError

from locus_store.core.errors import BackendError, BackendUnavailableError
from locus_store.sql import schema
from locus_store.sql.dialects.base import Kind
from locus_store.sql.dialects.sqlite import SQLITE
from locus_store.sql.sqlite_direct import DirectConnection

R = TypeVar("R")

MEMORY = ":memory:"
_SIDE_FILES = ("-wal", "-shm")

# SQLite puts the log back into the file when the last connection is closed. Of two that close at the same moment each
# sees the other, and neither does it. Re-entrant: the garbage collector may close one in a thread that does.
_closing = threading.RLock()


def _after_fork() -> None:
    global _closing
    _closing = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)

Identity = tuple[int, int]


class Settings(NamedTuple):
    """How a database is opened.

    Attributes:
        path: An absolute path, or `MEMORY`.
        synchronous: SQLite's setting of that name.
        busy_timeout: Seconds to wait for other processes.
        create_schema: Make folder, file and tables if they are missing.
    """

    path: str
    synchronous: str
    busy_timeout: float
    create_schema: bool


def patiently(action: Callable[[], R], deadline: float) -> R:
    """Do something again while the database is locked; waits are of random length, so that nobody starves."""
    longest = 0.002
    while True:
        try:
            return action()
        except (sqlite3.Error, SQLAlchemyError) as e:
            if SQLITE.classify(e) is not Kind.BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.0005, longest))  # noqa: S311 - no secret
        longest = min(longest * 1.5, 0.005)


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class Files:
    """The files of one database, as one opening of it found them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._database: Identity | None = None
        self._side_files: dict[str, Identity | None] = {}
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool, hide_parameters=True)

    # ------------------------------------------------------------------------------------------------------- opening

    def open_first(self, deadline: float) -> DirectConnection:
        """The writer's connection: switches on WAL, and makes or checks the schema."""
        path = self.settings.path
        if path != MEMORY and os.path.isdir(path):
            raise BackendUnavailableError(f"{path!r} is a folder, not a file: name the database's file")
        if path != MEMORY and not os.path.exists(path):
            if not self.settings.create_schema:
                schema.refuse(schema.State("missing", None, ()))
            os.makedirs(os.path.dirname(path), exist_ok=True)
        connection = self._open(deadline)
        try:
            patiently(lambda: _use_wal(connection.raw), deadline)
            self._make_or_check_schema(connection.connection, deadline)
            if path != MEMORY:
                self._database = _identity(path)
                self._side_files = {suffix: _identity(path + suffix) for suffix in _SIDE_FILES}
        except BaseException:
            connection.connection.close()
            raise
        return connection

    def open_another(self, deadline: float) -> DirectConnection:
        """A reader's connection."""
        connection = self._open(deadline)
        try:
            self.check()
        except BaseException:
            self.close(connection)
            raise
        return connection

    def _open(self, deadline: float) -> DirectConnection:
        connection = DirectConnection(self._engine.connect())
        try:
            patiently(lambda: connection.raw.execute(f"PRAGMA synchronous={self.settings.synchronous}"), deadline)
            connection.raw.execute("PRAGMA foreign_keys=ON")
        except BaseException as e:
            connection.connection.close()
            if getattr(e, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise BackendError(
                    f"the file {self.settings.path!r} is no SQLite database (or an encrypted one); it was left as it is"
                ) from e
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Transactions are begun and ended by the engine, and a `:memory:` database moves from thread to thread. SQLite
        # itself never waits for a lock: its waiting is not fair.
        path, uri = self.settings.path, False
        if path != MEMORY:
            path, uri = f"{Path(path).as_uri()}?mode={'rwc' if self.settings.create_schema else 'rw'}", True
        return sqlite3.connect(
            path, uri=uri, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _make_or_check_schema(self, connection: Connection, deadline: float) -> None:
        found = patiently(lambda: schema.state(connection), deadline)
        if found.condition in ("missing", "behind") and self.settings.create_schema:
            from locus_store.migrations import upgrade  # Alembic is imported only where there is something to do

            patiently(lambda: upgrade(connection), deadline)
        else:
            schema.refuse(found)

    # ------------------------------------------------------------------------------------------------------ the file

    @property
    def in_memory(self) -> bool:
        """Whether there are no files at all."""
        return self.settings.path == MEMORY

    def check(self) -> None:
        """Raises if the path no longer leads to the file that was opened.

        SQLite would apply the log that is left to whatever file has its name, so that goes first.
        """
        path = self.settings.path
        if self.in_memory or _identity(path) == self._database:
            return
        for suffix, ours in self._side_files.items():
            if ours is not None and _identity(path + suffix) == ours:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + suffix)
        raise BackendUnavailableError(
            f"the file {path!r} was deleted or replaced while it was open; the next call opens what is there now"
        )

    def size(self) -> int:
        """Bytes of the database and its log."""
        sizes = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                sizes += os.path.getsize(self.settings.path + suffix)
        return sizes

    def close(self, connection: DirectConnection) -> None:
        """Close a connection."""
        with _closing, contextlib.suppress(sqlite3.Error, SQLAlchemyError):
            connection.connection.close()


def _use_wal(raw: sqlite3.Connection) -> None:
    (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
    if mode not in ("wal", "memory"):
        raw.execute("PRAGMA journal_mode=WAL").fetchone()
