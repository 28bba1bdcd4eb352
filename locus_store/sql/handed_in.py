"""Engines that a host hands in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine


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
