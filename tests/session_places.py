"""The shared suite through transactions of a caller's: each call of a store has a session of its own, as a task has one.

A store of these places opens a session, binds the store to it, calls, and commits; after an error it rolls back. What
the database asks to be run again is run again, as a host does. The engine belongs to the "host": the store that was
bound never connects.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from backends import EVERYTHING, MariaDBPlace, Place, PostgreSQLPlace, SQLitePlace
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.errors import TransactionConflictError
from locus_store.core.store import Store
from locus_store.migrations import upgrade

S = TypeVar("S", bound=Store)

_ATTEMPTS = 50


class Sessions(ABC):
    """The host's side: where sessions come from."""

    @abstractmethod
    async def call(self, store: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method of a store that is bound to a new session, and commits."""

    @abstractmethod
    def unused(self) -> Any:
        """A session that leads nowhere."""

    @abstractmethod
    async def dispose(self) -> None:
        """Closes the host's connections; the next call opens others."""


class AsyncSessions(Sessions):
    def __init__(self, url: str, **options: Any) -> None:
        self._new: Callable[[], AsyncEngine] = lambda: create_async_engine(url, **options)
        self._engine: AsyncEngine | None = None

    async def call(self, store: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._engine is None:
            self._engine = self._new()
        for attempt in range(1, _ATTEMPTS + 1):
            async with AsyncSession(self._engine) as session:
                try:
                    result = await getattr(store.bind(session), name)(*args, **kwargs)
                    await session.commit()
                except TransactionConflictError:
                    if attempt == _ATTEMPTS:
                        raise
                else:
                    return result
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))
        raise AssertionError("unreachable")

    def unused(self) -> Any:
        return AsyncSession()

    async def dispose(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()


class SyncSessions(Sessions):
    def __init__(self, url: str, **options: Any) -> None:
        self._new: Callable[[], Engine] = lambda: create_engine(url, **options)
        self._engine: Engine | None = None

    async def call(self, store: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return self._call(store, name, *args, **kwargs)

    def _call(self, store: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._engine is None:
            self._engine = self._new()
        for attempt in range(1, _ATTEMPTS + 1):
            with Session(self._engine) as session:
                try:
                    result = getattr(store.bind(session), name)(*args, **kwargs)
                    session.commit()
                except TransactionConflictError:
                    if attempt == _ATTEMPTS:
                        raise
                else:
                    return result
        raise AssertionError("unreachable")

    def unused(self) -> Any:
        return Session()

    async def dispose(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()


# --- stores whose calls are bound -------------------------------------------------------------------------------------


def through(store: S, sessions: Sessions) -> S:
    """The store; each of its calls is made in a session of its own."""
    store.__class__ = _through(type(store))
    store._sessions = sessions  # type: ignore[attr-defined]
    return store


@cache
def _through(cls: type[Store]) -> Any:
    names = [name for name in dir(cls) if not name.startswith("_") and iscoroutinefunction(getattr(cls, name))]
    members = {name: _in_a_session(getattr(cls, name)) for name in names}
    members["close"] = _close
    members["capabilities"] = property(lambda self: _plain(self).bind(self._sessions.unused()).capabilities)
    if issubclass(cls, Backend):
        members["checkpointer"] = _checkpointer
    return type(cls.__name__, (cls,), members)


def _plain(store: Any) -> Any:
    plain = copy.copy(store)
    plain.__class__ = type(store).__base__
    return plain


def _in_a_session(method: Any) -> Any:
    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._sessions.call(_plain(self), method.__name__, *args, **kwargs)

    return call


async def _close(self: Any) -> None:
    await self._sessions.dispose()
    await _plain(self).close()


def _checkpointer(self: Any, *state_type: Any) -> Checkpointer[Any]:
    made: Checkpointer[Any] = _plain(self).checkpointer(*state_type)
    made.backend = self
    return through(made, self._sessions)


# --- places -----------------------------------------------------------------------------------------------------------


def over(client: str, url: str) -> str:
    """A URL of the tests' servers, as SQLAlchemy names the database with a client."""
    return client + url[url.index(":") :]


class SessionPlace(Place):
    """Mixed into a place: what is opened there is called through sessions.

    Attributes:
        client: What SQLAlchemy calls the database and its client.
        engine_options: How the host makes its engine.
    """

    capabilities = dataclasses.replace(EVERYTHING, reclaim=False, own_connections=False)
    pooled = None
    client: str
    engine_options: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def host_url(self) -> str:
        """Where the host's engine leads, for SQLAlchemy."""

    def open(self, **options: Any) -> Backend:
        kind = SyncSessions if self.name.endswith("-sync") else AsyncSessions
        return through(super().open(**options), kind(self.host_url(), **self.engine_options))


class _SQLite(SessionPlace, SQLitePlace):
    capabilities = dataclasses.replace(SessionPlace.capabilities, search=True)
    engine_options: ClassVar = {"connect_args": {"timeout": 30}}

    def __init__(self, *, folder: Path, **options: Any) -> None:
        super().__init__(folder=folder, **options)
        self.path.write_bytes(empty_sqlite_file(folder))

    def host_url(self) -> str:
        return f"{self.client}:///{self.path}"


class SQLiteSessionPlace(_SQLite):
    name = "sqlite-session"
    client = "sqlite+aiosqlite"


class SQLiteSyncPlace(_SQLite):
    name = "sqlite-sync"
    client = "sqlite"


_made: list[bytes] = []


def empty_sqlite_file(folder: Path) -> bytes:
    """The bytes of a file that has our tables and nothing in them."""
    if not _made:
        path = folder / "template.db"
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            upgrade(connection)
        engine.dispose()
        with sqlite3.connect(path) as raw:
            raw.execute("PRAGMA journal_mode=WAL")
        raw.close()
        _made.append(path.read_bytes())
        path.unlink()
    return _made[0]


class _PostgreSQL(SessionPlace, PostgreSQLPlace):
    capabilities = dataclasses.replace(SessionPlace.capabilities, search=True)

    def host_url(self) -> str:
        return over(self.client, self.url)


class PostgreSQLSessionPlace(_PostgreSQL):
    name = "postgresql-session"
    client = "postgresql+asyncpg"


class PostgreSQLSyncPlace(_PostgreSQL):
    name = "postgresql-sync"
    client = "postgresql+psycopg"


class _MariaDB(SessionPlace, MariaDBPlace):
    def host_url(self) -> str:
        return over(self.client, self.url)


class MariaDBSessionPlace(_MariaDB):
    name = "mariadb-session"
    client = "mysql+asyncmy"


class MariaDBSyncPlace(_MariaDB):
    name = "mariadb-sync"
    client = "mysql+pymysql"


SESSIONS: dict[str, type[Place]] = {
    place.name: place
    for place in (
        SQLiteSessionPlace,
        SQLiteSyncPlace,
        PostgreSQLSessionPlace,
        PostgreSQLSyncPlace,
        MariaDBSessionPlace,
        MariaDBSyncPlace,
    )
}
"""The places of the shared suite where each call is a transaction of the caller's."""
