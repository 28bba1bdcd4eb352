"""Engines for asynchronous databases: one for each event loop, or one that the host handed in.

An asyncpg connection (or any other that waits on a socket) belongs to the event loop that opened it. A store does not:
it may be used in one ``asyncio.run`` after another. So each loop gets an engine of its own, made on first use and
disposed of when the store is closed there or the loop shuts its asynchronous generators down, which `asyncio.run` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast
from weakref import finalize

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from locus_store.sql.handed_in import check_engine
from locus_store.sql.loop_engine import LoopEngine, Wire


class AsyncEngines:
    """The engines of one store.

    Args:
        wire: What must be known of the driver's own connections.
        make: Makes an engine, or None if there is one.
        given: The host's engine, which is used and otherwise left as it is.
        keeps: Whether connections may stay out of the pools of engines made here between two uses.
        options: The execution options of the engines.

    Attributes:
        schema: What the engines translate "no schema" to, if anything.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        make: Callable[[], AsyncEngine] | None = None,
        given: AsyncEngine | None = None,
        keeps: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if (make is None) == (given is None):
            raise ValueError("either an engine or a way to make one")
        self._wire = wire
        self._make = make
        self._given = given
        self._keeps = keeps
        self.schema: str | None = ((options or {}).get("schema_translate_map") or {}).get(None)
        self._opened: dict[asyncio.AbstractEventLoop, LoopEngine] = {}
        # A store that is dropped, and was not closed, is closed in the loops that still run.
        finalize(self, _let_go, self._opened)

    async def here(self) -> LoopEngine:
        """The engine of the running loop."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        return opened if opened is not None else await self._open(loop)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> LoopEngine:
        for other in list(self._opened):
            if other.is_closed() and (left := self._opened.pop(other, None)) is not None:
                left.abandon()
        if self._make is None:
            opened = LoopEngine(cast(AsyncEngine, self._given), self._wire, owned=False)
        else:
            opened = LoopEngine(self._make(), self._wire, owned=True, keeps=self._keeps)
        self._opened[loop] = opened
        await opened.guard()
        return opened

    async def aclose(self) -> None:
        """Dispose of the running loop's engine, unless it is the host's; the next use makes another."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.aclose()


def over_url(
    wire: Wire,
    url: URL,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    begin: Callable[[Any], None] | None = None,
    watch: Callable[[AsyncEngine], None] | None = None,
) -> AsyncEngines:
    """Engines of the store's own.

    Args:
        wire: What must be known of the driver's own connections.
        url: Where the database is, with SQLAlchemy's name of the driver.
        arguments: Those of the driver's own connect.
        options: Those of ``create_async_engine``; the caller's are among them.
        begin: Called with each new connection, as SQLAlchemy's adapter has it.
        watch: Called with each engine that is made, to listen to its events.
    """

    def make() -> AsyncEngine:
        engine = create_async_engine(url, **all_options)
        if begin is not None:
            event.listen(engine.sync_engine, "connect", lambda connection, _: begin(connection))
        if watch is not None:
            watch(engine)
        return engine

    all_options: dict[str, Any] = {
        "max_overflow": 0,
        "pool_use_lifo": True,
        "hide_parameters": True,
        **options,
        "connect_args": dict(arguments),
    }
    # What a pool is told to do with idle connections it can do only while it has them.
    keeps = not all_options.keys() & {"pool_pre_ping", "pool_recycle", "poolclass"}
    return AsyncEngines(wire, make=make, keeps=keeps, options=options.get("execution_options"))


def over_engine(
    wire: Wire, engine: AsyncEngine, names: Collection[str], client: str, **beside: tuple[Any, Any]
) -> AsyncEngines:
    """The host's own engine.

    Args:
        wire: What must be known of the driver's own connections.
        engine: The engine.
        names: The databases that it may be of.
        client: The client that it must be over.
        **beside: See `check_engine`.

    Raises:
        TypeError: It is no asynchronous engine.
        ValueError: It is another one, or there are options for which it leaves nothing to say.
    """
    check_engine(engine, names, client, **beside)
    return AsyncEngines(wire, given=engine, options=engine.sync_engine.get_execution_options())


def _let_go(left: dict[asyncio.AbstractEventLoop, LoopEngine]) -> None:
    for loop, opened in left.items():
        try:
            if loop.is_running():
                loop.call_soon_threadsafe(_close_soon, loop, opened)
                continue
        except RuntimeError:  # it was closed just now
            pass
        opened.abandon()


_closing: set[asyncio.Task[None]] = set()


def _close_soon(loop: asyncio.AbstractEventLoop, opened: LoopEngine) -> None:
    task = loop.create_task(opened.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
