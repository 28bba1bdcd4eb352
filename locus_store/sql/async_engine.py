"""Engines for asynchronous databases: one for each event loop, or one that the host handed in.

An asyncpg connection (or any other that waits on a socket) belongs to the event loop that opened it. A store does not:
it may be used in one ``asyncio.run`` after another. So each loop gets an engine of its own, made on first use and
disposed of when the store is closed there or the loop shuts its asynchronous generators down, which `asyncio.run` does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NamedTuple, cast
from weakref import WeakSet, finalize

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

_BORN = "locus_store_generation"
_PATIENCE = 5.0
"""Seconds that closing waits for servers that do not answer."""


class Wire(NamedTuple):
    """What must be asked of a driver's own connection.

    Attributes:
        is_closed: Whether the connection is known to be lost.
        terminate: Ends it at once, without waiting for the server.
    """

    is_closed: Callable[[Any], bool]
    terminate: Callable[[Any], None]


class LoopEngine:
    """An engine as it is used in one event loop.

    Attributes:
        engine: The engine.
        preparing: Held by the task that prepares the database.
        prepared: Whether that was done for this engine.
        closed: Whether the engine was disposed of; a connection still out then is closed when it comes back.
    """

    def __init__(self, engine: AsyncEngine, wire: Wire, *, owned: bool) -> None:
        self.engine = engine
        self.preparing = asyncio.Lock()
        self.prepared = False
        self.closed = False
        self._wire = wire
        self._owned = owned
        self._generation = 0
        self._connections: WeakSet[Any] = WeakSet()
        self._guard: AsyncGenerator[None, None] | None = None
        if owned:
            event.listen(engine.sync_engine, "connect", self._connected)
            event.listen(engine.sync_engine, "checkout", self._taken)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """A connection of SQLAlchemy's, in no transaction."""
        async with self.engine.connect() as connection:
            try:
                yield connection
            finally:
                if self.closed:
                    await connection.invalidate()

    # ----------------------------------------------------------------------------------------- the driver's connections

    async def take(self) -> PoolProxiedConnection:
        """A connection of the pool, in no transaction; `give_back` must follow."""
        while True:
            raw = await self.engine.raw_connection()
            if not self._wire.is_closed(raw.driver_connection):
                return raw
            await self._discard(raw)

    async def give_back(self, raw: PoolProxiedConnection) -> None:
        """Return a connection to the pool, or close it if it is lost or nobody wants it any more."""
        if self.closed or self._wire.is_closed(raw.driver_connection):
            await self._discard(raw)
        elif self._owned:
            raw.close()
        else:
            # The host's pool may do more than keep it, and must not be left half-way by a cancelled task.
            await asyncio.shield(asyncio.ensure_future(greenlet_spawn(raw.close)))

    async def fill(self, count: int) -> None:
        """Open connections until there are this many."""
        taken: list[PoolProxiedConnection] = []
        try:
            while len(taken) < count:
                taken.append(await self.take())
        finally:
            for raw in taken:
                await self.give_back(raw)

    def lost(self, raw: PoolProxiedConnection) -> None:
        """Say that a connection broke, so that those as old as it are replaced before they are used again."""
        if raw.info.get(_BORN) == self._generation:
            self._generation += 1
        self._wire.terminate(raw.driver_connection)

    async def _discard(self, raw: PoolProxiedConnection) -> None:
        self._wire.terminate(raw.driver_connection)
        if self._owned:
            raw.invalidate()
        else:
            await asyncio.shield(asyncio.ensure_future(greenlet_spawn(raw.invalidate)))

    def _connected(self, connection: Any, entry: ConnectionPoolEntry) -> None:
        entry.info[_BORN] = self._generation
        self._connections.add(connection.driver_connection)

    def _taken(self, connection: Any, entry: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        if entry.info[_BORN] != self._generation or self._wire.is_closed(connection.driver_connection):
            self._wire.terminate(connection.driver_connection)
            raise DisconnectionError("lost")

    # --------------------------------------------------------------------------------------------------------- closing

    async def guard(self) -> None:
        """Have the engine disposed of when the loop shuts down its asynchronous generators."""
        self._guard = _close_at_the_end(self)
        await anext(self._guard)

    async def aclose(self) -> None:
        """Dispose of the engine, unless it is the host's."""
        if self._guard is not None:
            await self._guard.aclose()

    async def dispose(self) -> None:
        """Close every connection; those in use are closed when they come back."""
        self.closed = True
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.engine.dispose()
        except BaseException as error:
            self.abandon()
            if not isinstance(error, TimeoutError):
                raise

    def abandon(self) -> None:
        """End every connection at once; the loop may be closed."""
        self.closed = True
        for connection in list(self._connections):
            # A transport cannot be closed in order once its loop is.
            with contextlib.suppress(RuntimeError):
                self._wire.terminate(connection)


async def _close_at_the_end(opened: LoopEngine) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await opened.dispose()


class AsyncEngines:
    """The engines of one store.

    Args:
        wire: What must be asked of the driver's own connections.
        make: Makes an engine, or None if there is one.
        given: The host's engine, which is used and otherwise left as it is.
    """

    def __init__(
        self, wire: Wire, *, make: Callable[[], AsyncEngine] | None = None, given: AsyncEngine | None = None
    ) -> None:
        if (make is None) == (given is None):
            raise ValueError("either an engine or a way to make one")
        self._wire = wire
        self._make = make
        self._given = given
        self._opened: dict[asyncio.AbstractEventLoop, LoopEngine] = {}
        # A store that is dropped, and was not closed, is closed in the loops that still run.
        finalize(self, _let_go, self._opened).atexit = False

    async def here(self) -> LoopEngine:
        """The engine of the running loop."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        return opened if opened is not None else await self._open(loop)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> LoopEngine:
        for other in list(self._opened):
            if other.is_closed() and (left := self._opened.pop(other, None)) is not None and self._given is None:
                left.abandon()
        if self._given is not None:
            opened = LoopEngine(self._given, self._wire, owned=False)
            self._opened[loop] = opened
        else:
            made = cast(Callable[[], AsyncEngine], self._make)()
            opened = LoopEngine(made, self._wire, owned=True)
            self._opened[loop] = opened
            await opened.guard()
        return opened

    async def aclose(self) -> None:
        """Dispose of the running loop's engine; the next use makes another."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.aclose()


def _let_go(left: dict[asyncio.AbstractEventLoop, LoopEngine]) -> None:
    for loop, opened in left.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_close_soon, loop, opened)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(loop: asyncio.AbstractEventLoop, opened: LoopEngine) -> None:
    task = loop.create_task(opened.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
