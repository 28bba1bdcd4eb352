"""Engines that a host hands in."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Pool, StaticPool
from sqlalchemy.ext.asyncio import AsyncEngine

READ_WHOLE: dict[str, Any] = {"stream_results": False, "yield_per": None}
"""Options of our statements: a host's engine may stream results, but a cursor that streams runs no INSERT."""

_turns: WeakKeyDictionary[Pool, tuple[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


def check_engine(engine: object, names: Collection[str], client: str, **beside: tuple[Any, Any]) -> None:
    """Raise unless an engine of the host's can be used.

    Args:
        engine: What was handed in.
        names: What SQLAlchemy calls the databases that the store is for.
        client: What it calls the client that the store knows.
        **beside: Each option that says nothing beside an engine: its value, and the one that it has if it is not given.

    Raises:
        TypeError: It is no asynchronous engine.
        ValueError: It leads to another database, or there are options which it leaves nothing to say for.
    """
    if isinstance(engine, Engine):
        raise TypeError(
            "engine must be an AsyncEngine, got an Engine: what is synchronous is used by binding, without engine=: "
            "backend.bind(Session(engine)), or backend.bind(connection)"
        )
    if not isinstance(engine, AsyncEngine):
        raise TypeError(f"engine must be an AsyncEngine, got {type(engine).__name__}")
    if engine.dialect.name not in names or engine.dialect.driver != client:
        wanted = " or ".join(sorted(f"{name}+{client}" for name in names))
        raise ValueError(f"an engine over {wanted} is needed, not {engine.dialect.name}+{engine.dialect.driver}")
    idle = [name for name, (value, default) in beside.items() if value != default]
    if idle:
        raise ValueError(f"beside an engine of yours there is no {', '.join(idle)}: the engine says it")


def turn(pool: Pool) -> AbstractAsyncContextManager[None]:
    """Waits until no other store uses the pool, if it is one that gives the same connection to all at once.

    SQLAlchemy makes such a pool for a SQLite database in memory. Transactions of two tasks would be one there.
    """
    if not isinstance(pool, StaticPool):
        return nullcontext()
    loop = asyncio.get_running_loop()
    found = _turns.get(pool)
    if found is None or found[0] is not loop:
        found = _turns[pool] = loop, asyncio.Lock()
    return found[1]
