"""Calls side by side, and work beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")

AT_ONCE = 16
"""How many requests one call of the driver has under way at the most."""

LARGE = 1_000_000
"""Bytes from which on compressing takes so long that others must not wait for it."""


async def beside(size: int, work: Callable[[], T]) -> T:
    """Do what takes long for many bytes in a thread, so that the event loop goes on."""
    return await asyncio.to_thread(work) if size >= LARGE else work()


async def in_parallel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await calls, `AT_ONCE` at a time, and give their results in the same order.

    If one fails the others are cancelled, and its error is raised when all have ended.
    """
    coroutines = list(calls)
    if len(coroutines) == 1:
        return [await coroutines[0]]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(call: Coroutine[Any, Any, T]) -> T:
        async with room:
            return await call

    tasks = [asyncio.ensure_future(one(call)) for call in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in coroutines:
            call.close()  # one that never began would complain
        raise


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Await two calls of different kinds side by side."""
    first, second = await in_parallel(cast("list[Coroutine[Any, Any, Any]]", [one, other]))
    return first, second
