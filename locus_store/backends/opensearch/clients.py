"""Clients, one for each event loop: made on first use, closed with the store, or when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from locus_store.core.driver import Key

T = TypeVar("T")


class Opened:
    """A client as it is used in one event loop.

    Attributes:
        client: The client.
        preparing: Held by the task that prepares the index.
        prepared: Whether that was done.
        elastic: Whether the server is Elasticsearch, whose points in time have another address.
    """

    def __init__(self, client: Any, *, owned: bool) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.preparing = asyncio.Lock()
        self.prepared = False
        self.elastic = False
        self._owned = owned
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Task[Any]] = set()
        self._refreshing = asyncio.Lock()
        self._refresh: asyncio.Task[None] | None = None
        self._guard: AsyncGenerator[None, None] | None = None

    def turn(self, key: Key) -> asyncio.Lock:
        """A lock by which the tasks of this process that change a thread do so one after the other."""
        return self._turns.setdefault(key, asyncio.Lock())

    async def to_the_end(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that goes on if its caller is cancelled."""
        task = self.loop.create_task(call)
        self._running.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone, and nobody else is interested

    async def refresh(self, refresh: Callable[[], Awaitable[Any]]) -> None:
        """Refresh once for all who wait for it, such that they see what was there when they asked."""
        if self._refresh is None:
            self._refresh = self.loop.create_task(self._refresh_next(refresh))
            self._running.add(self._refresh)
            self._refresh.add_done_callback(self._done)
        await asyncio.shield(self._refresh)

    async def _refresh_next(self, refresh: Callable[[], Awaitable[Any]]) -> None:
        async with self._refreshing:
            self._refresh = None  # who comes from here on may have saved what this one misses
            await refresh()

    async def guard(self) -> None:
        """Have `close` called when the loop shuts down its asynchronous generators."""
        self._guard = _close_at_the_end(self)
        await anext(self._guard)

    async def aclose(self) -> None:
        """Call `close` now."""
        if self._guard is not None:
            await self._guard.aclose()

    async def close(self) -> None:
        """Wait for what still runs, then close the client, unless it is the caller's."""
        while running := [task for task in self._running if not task.done()]:
            await asyncio.wait(running)
        if self._owned:
            await self.client.close()
            await asyncio.sleep(0)  # transports close in the loop's next turn


async def _close_at_the_end(opened: Opened) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await opened.close()


class Clients:
    """The clients of one store.

    Args:
        make: Makes one.
        handed_in: One of the caller's, used in all loops and never closed.
    """

    def __init__(self, make: Callable[[], Any], handed_in: Any = None) -> None:
        self._make = make
        self._handed_in = handed_in
        self._opened: dict[int, Opened] = {}

    async def opened(self) -> Opened:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._opened.get(id(loop))
        if found is not None and found.loop is loop:
            return found
        for number, one in list(self._opened.items()):
            if one.loop.is_closed():
                del self._opened[number]
        made = Opened(self._make() if self._handed_in is None else self._handed_in, owned=self._handed_in is None)
        self._opened[id(loop)] = made
        await made.guard()
        return made

    async def aclose(self) -> None:
        """Close that of the running loop; those of loops that have ended are closed."""
        found = self._opened.pop(id(asyncio.get_running_loop()), None)
        if found is not None:
            await found.aclose()
