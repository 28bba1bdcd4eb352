"""One engine in one event loop: connections taken from its pool and brought back, whatever happens meanwhile.

Two kinds are handed out: SQLAlchemy's, and the driver's own, for statements that are sent past SQLAlchemy. Both come
from the same pool. What can happen to them:

- The server ends them. The first error tells; all connections that are as old are replaced before they are used again.
- Their user is cancelled. What it had sent is ended on the server, too, before anybody gets the connection.
- The engine is disposed of while they are out. They are closed when they come back.

A pool's own work takes a good part of the time of one statement. So the driver's connections are kept out of the pool
between two uses, as long as nobody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from locus_store.sql.handed_in import turn

T = TypeVar("T")

_BORN = "locus_store_generation"
_PATIENCE = 5.0
"""Seconds that closing waits for servers that do not answer."""


class Wire(NamedTuple):
    """What must be known of a driver's own connections.

    Attributes:
        is_closed: Whether a connection is known to be lost.
        terminate: Ends one at once, without waiting for the server.
        settle: Waits until a statement that was cancelled has ended on the server, and the connection can be used.
        breaks: Whether an error means that the connection is lost.
    """

    is_closed: Callable[[Any], bool]
    terminate: Callable[[Any], None]
    settle: Callable[[Any], Awaitable[Any]]
    breaks: Callable[[BaseException], bool]


def _never(*_: Any) -> Any:
    raise AssertionError("the driver's own connections are not used here")


NO_WIRE = Wire(_never, _never, _never, _never)
"""For the host's engine, where all goes through SQLAlchemy's connections."""


class LoopEngine:
    """An engine as it is used in one event loop.

    Attributes:
        engine: The engine.
        preparing: Held by the task that prepares the database.
        prepared: Whether that was done for this engine.
        closed: Whether the engine was disposed of; a connection still out then is closed when it comes back.
    """

    def __init__(self, engine: AsyncEngine, wire: Wire, *, owned: bool, keeps: bool = False) -> None:
        self.engine = engine
        self.preparing = asyncio.Lock()
        self.prepared = False
        self.closed = False
        self._wire = wire
        self._owned = owned
        self._keeps = keeps
        self._kept: list[PoolProxiedConnection] = []
        self._waiting = 0
        self._generation = 0
        self._connections: WeakSet[Any] = WeakSet()
        self._settling: set[asyncio.Task[None]] = set()
        self._guard: AsyncGenerator[None, None] | None = None
        if owned:
            event.listen(engine.sync_engine, "connect", self._connected)
            event.listen(engine.sync_engine, "checkout", self._taken)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """A connection of SQLAlchemy's, in no transaction."""
        async with turn(self.engine.sync_engine.pool):
            connection = self.engine.connect()
            await self._open(connection.start(), AsyncConnection.close)
            try:
                yield connection
            finally:
                if self.closed:
                    await connection.invalidate()
                await asyncio.shield(asyncio.ensure_future(connection.close()))

    async def _open(self, opening: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]]) -> T:
        """Take a connection from the pool, such that a caller who is cancelled leaves none that is half open.

        Drivers do not clean up in all the places where connecting can be cancelled, so it goes on by itself. That an
        idle connection is there says nothing: it may turn out to be lost, and then taking it is connecting.
        """
        if self._kept:
            self._kept.pop().close()
        self._waiting += 1
        task = asyncio.ensure_future(opening)
        # One whose caller was cancelled waits on, and must not wait for what is kept out of the pool.
        task.add_done_callback(self._got)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._later(self._undo(task, undo))
            raise

    def _got(self, _: asyncio.Task[Any]) -> None:
        self._waiting -= 1

    async def _undo(self, opening: asyncio.Task[T], undo: Callable[[T], Awaitable[None]]) -> None:
        # Whoever wanted the connection is gone, and so is interest in why it was not to be had.
        with contextlib.suppress(Exception):
            await undo(await opening)

    def _later(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    # ----------------------------------------------------------------------------------------- the driver's connections

    def lease(self) -> Lease:
        """A connection of the driver's own, in no transaction, as an asynchronous context manager."""
        return Lease(self)

    async def take(self) -> PoolProxiedConnection:
        """A connection of the pool; `give_back` or `settle` must follow."""
        while self._kept:
            raw = self._kept.pop()
            if raw.info[_BORN] == self._generation and not self._wire.is_closed(raw.driver_connection):
                return raw
            await self._discard(raw)
        while True:
            raw = await self._open(self.engine.raw_connection(), self.give_back)
            if not self._wire.is_closed(raw.driver_connection):
                return raw
            await self._discard(raw)

    async def give_back(self, raw: PoolProxiedConnection, error: Exception | None = None) -> None:
        """Return a connection to the pool, or close it if it is lost or nobody wants it any more."""
        if error is not None and self._wire.breaks(error):
            # Those as old as it are replaced before they are used again.
            if raw.info.get(_BORN) == self._generation:
                self._generation += 1
            await self._discard(raw)
        elif self.closed or self._wire.is_closed(raw.driver_connection):
            await self._discard(raw)
        elif self._keeps and not self._waiting:
            self._kept.append(raw)
        elif self._owned:
            raw.close()
        else:
            # The host's pool may do more than keep it, and must not be left half-way by a cancelled task.
            await asyncio.shield(asyncio.ensure_future(greenlet_spawn(raw.close)))

    def settle(self, raw: PoolProxiedConnection) -> None:
        """Return a connection whose user was cancelled as soon as it can be used again; does not wait for that."""
        call = self._settle(raw)
        try:
            self._later(call)
        except RuntimeError:  # there is no loop any more
            call.close()
            self._wire.terminate(raw.driver_connection)
            raw.invalidate()

    async def _settle(self, raw: PoolProxiedConnection) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._wire.settle(raw.driver_connection)
        except BaseException as error:
            await self._discard(raw)
            if not isinstance(error, Exception):
                raise
        else:
            await self.give_back(raw)

    async def _discard(self, raw: PoolProxiedConnection) -> None:
        self._wire.terminate(raw.driver_connection)
        if self._owned:
            raw.invalidate()
        else:
            await asyncio.shield(asyncio.ensure_future(greenlet_spawn(raw.invalidate)))

    async def fill(self, count: int) -> None:
        """Open connections until there are this many."""
        taken: list[PoolProxiedConnection] = []
        try:
            while len(taken) < count:
                taken.append(await self.take())
        finally:
            for raw in taken:
                await self.give_back(raw)

    def _connected(self, connection: Any, entry: ConnectionPoolEntry) -> None:
        entry.info[_BORN] = self._generation
        self._connections.add(connection.driver_connection)

    def _taken(self, connection: Any, entry: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        if entry.info[_BORN] != self._generation or self._wire.is_closed(connection.driver_connection):
            self._wire.terminate(connection.driver_connection)
            raise DisconnectionError("lost")

    # --------------------------------------------------------------------------------------------------------- closing

    async def guard(self) -> None:
        """Have `dispose` called when the loop shuts down its asynchronous generators."""
        self._guard = _close_at_the_end(self)
        await anext(self._guard)

    async def aclose(self) -> None:
        """Call `dispose` now."""
        if self._guard is not None:
            await self._guard.aclose()

    async def dispose(self) -> None:
        """Close every connection; those in use are closed when they come back. Those of the host's engine stay."""
        self.closed = self._owned
        try:
            async with asyncio.timeout(_PATIENCE):
                if self._settling:
                    await asyncio.wait(self._settling)
                if self._owned:
                    self._let_go()
                    await self.engine.dispose()
        except BaseException as error:
            self.abandon()
            if not isinstance(error, TimeoutError):
                raise

    def abandon(self) -> None:
        """End every connection at once; the loop may be closed."""
        self.closed = self._owned
        for connection in list(self._connections):
            # A transport cannot be closed in order once its loop is.
            with contextlib.suppress(RuntimeError):
                self._wire.terminate(connection)
        self._let_go()

    def _let_go(self) -> None:
        while self._kept:
            self._kept.pop().close()


class Lease:
    """The time for which a task has a connection of the driver's own."""

    __slots__ = ("_opened", "_raw", "_turn")

    def __init__(self, opened: LoopEngine) -> None:
        self._opened = opened

    async def __aenter__(self) -> Any:
        self._turn = turn(self._opened.engine.sync_engine.pool)
        await self._turn.__aenter__()
        try:
            self._raw = await self._opened.take()
        except BaseException:
            await self._turn.__aexit__(None, None, None)
            raise
        return self._raw.driver_connection

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        try:
            if error is None or isinstance(error, Exception):
                await self._opened.give_back(self._raw, error)
            else:
                self._opened.settle(self._raw)
        finally:
            await self._turn.__aexit__(None, None, None)


async def _close_at_the_end(opened: LoopEngine) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await opened.dispose()
