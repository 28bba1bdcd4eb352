"""An app that has a database, an engine, sessions and tables of its own: the host of a store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import servers
from backends import MariaDBPlace, Place, PostgreSQLPlace, SQLitePlace
from session_places import empty_sqlite_file, over
from sqlalchemy import Connection, Engine, Executable, String, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from locus_store.core.backend import Backend

TARGETS = ["AsyncSession", "AsyncConnection", "Session", "Connection"]


class Base(DeclarativeBase):
    """The host's own tables."""


class Order(Base):
    __tablename__ = "host_orders"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item: Mapped[str] = mapped_column(String(100))


class Host:
    """A database with our tables and the host's.

    Args:
        place: Where it lies.
        clients: The URLs of the host's engines: asynchronous, synchronous.
        options: How its engines are made.
    """

    def __init__(self, place: Place, clients: tuple[str, str], options: dict[str, Any]) -> None:
        self.place = place
        self.async_url, self.sync_url = clients
        self.options = options
        self._closing = contextlib.AsyncExitStack()
        with self.sync_engine().begin() as connection:
            Base.metadata.create_all(connection)

    def own(self, **options: Any) -> Backend:
        """A backend on the database that connects by itself."""
        store = self.place.open(**options)
        self._closing.push_async_callback(store.close)
        return store

    def engine(self, **options: Any) -> AsyncEngine:
        engine = create_async_engine(self.async_url, **{**self.options, **options})
        self._closing.push_async_callback(engine.dispose)
        return engine

    def sync_engine(self, **options: Any) -> Engine:
        engine = create_engine(self.sync_url, **{**self.options, **options})
        self._closing.callback(engine.dispose)
        return engine

    async def close(self) -> None:
        with self.sync_engine().begin() as connection:
            Base.metadata.drop_all(connection)
        await self._closing.aclose()


class Transaction:
    """A transaction of the host's, by whatever it is held, and a store bound to it; all calls are coroutines here."""

    def __init__(self, target: Any, store: Backend) -> None:
        self.target = target
        self._asynchronous = isinstance(target, AsyncSession | AsyncConnection)
        self.store = store.bind(target)

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self._done(getattr(self.store, name)(*args, **kwargs))

    async def state(self, name: str, *args: Any) -> Any:
        """Calls the second face."""
        return await self._done(getattr(self.store.checkpointer(), name)(*args))

    async def execute(self, statement: Executable, *parameters: Any) -> Any:
        return await self._done(self.target.execute(statement, *parameters))

    async def commit(self) -> None:
        await self._done(self.target.commit())

    async def rollback(self) -> None:
        await self._done(self.target.rollback())

    async def _done(self, result: Any) -> Any:
        return await result if self._asynchronous else result


def host_on(name: str, request: pytest.FixtureRequest, folder: Path) -> Host:
    """A host on a database of its own.

    Args:
        name: ``sqlite``, ``postgresql`` or ``mariadb``.
        request: Gives the fixtures of the servers.
        folder: Where a SQLite file is made.
    """
    if name == "sqlite":
        servers.note_ran("sqlite")
        place = SQLitePlace(folder=folder)
        place.path.write_bytes(empty_sqlite_file(folder))
        clients = f"sqlite+aiosqlite:///{place.path}", f"sqlite:///{place.path}"
        return Host(place, clients, {"connect_args": {"timeout": 30}})
    if name == "mariadb":
        server = request.getfixturevalue("mariadb_server")
        server.ensure_running()
        servers.note_ran("mariadb", server.version)
        url = request.getfixturevalue("mariadb_database")
        clients = over("mysql+asyncmy", url), over("mysql+pymysql", url)
        return Host(MariaDBPlace(server=server, url=url), clients, {})
    server = request.getfixturevalue("postgresql_server")
    server.ensure_running()
    servers.note_ran("postgresql", f"PostgreSQL {server.version}")
    url = request.getfixturevalue("postgresql_database")
    clients = over("postgresql+asyncpg", url), over("postgresql+psycopg", url)
    return Host(PostgreSQLPlace(server=server, url=url), clients, {})


Begin = Callable[..., contextlib.AbstractAsyncContextManager[Transaction]]


def opener(host: Host, kind: str) -> Begin:
    """Opens sessions or connections of one kind; ``begin(store)``. They are rolled back at the end if not committed."""
    asynchronous = kind.startswith("Async")
    engine: Any = host.engine() if asynchronous else host.sync_engine()

    @contextlib.asynccontextmanager
    async def begin(store: Backend, **options: Any) -> AsyncIterator[Transaction]:
        used = engine.execution_options(**options) if options else engine
        if kind == "AsyncSession":
            async with AsyncSession(used) as session:
                yield Transaction(session, store)
        elif kind == "AsyncConnection":
            async with used.connect() as connection:
                yield Transaction(connection, store)
        elif kind == "Session":
            with Session(used) as plain_session:
                yield Transaction(plain_session, store)
        else:
            with used.connect() as plain_connection:
                assert isinstance(plain_connection, Connection)
                yield Transaction(plain_connection, store)

    return begin
