"""Many saves to one thread, in the middle of which something happens to the server: each raised or is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from locus_store import BackendUnavailableError
from locus_store.core.backend import Backend


def document(task: int, i: int) -> dict[str, Any]:
    """What a task saves in its i-th step."""
    return {"task": task, "messages": [f"line {n} of {task} " * 10 for n in range(i)]}


class ManySaves:
    """Saves by several tasks. After one that raised a task waits until the server is there again.

    Args:
        store: Where to.
        saves: How many there are in all.
        tasks: By how many tasks.

    Attributes:
        acknowledged: The ids of those that returned, with the task and the step of each.
        failed: Those that raised `BackendUnavailableError`; any other error is the test's end.
        errors: What they raised.
        risked: Those of the acknowledged that need not be there, as a replica that did not have them may have taken over.
    """

    def __init__(self, store: Backend, saves: int = 200, tasks: int = 4) -> None:
        self.store = store
        self.saves = saves
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.failed: dict[str, tuple[int, int]] = {}
        self.errors: list[BackendUnavailableError] = []
        self.risked: set[str] = set()
        self._tasks = tasks
        self._running = asyncio.Event()
        self._running.set()

    async def during(self, disturb: Callable[[], Awaitable[None]]) -> None:
        """Save, while something is done to the server, and see what is there afterwards."""
        await self.store.save("t", {}, "first")
        await asyncio.gather(*[self._write(task) for task in range(self._tasks)], disturb())
        await self._check()

    async def until(self, done: int) -> None:
        """Wait until so many saves have returned or raised."""
        while len(self.acknowledged) + len(self.failed) < done:
            await asyncio.sleep(0.002)

    async def until_one_failed(self) -> None:
        """Wait until a save has raised; the server must be away."""
        while not self.failed:
            await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """The server is not there during this block; the first call after it works."""
        self._running.clear()
        yield
        assert await self.store.load("t") is not None
        self._running.set()

    async def _write(self, task: int) -> None:
        for i in range(self.saves // self._tasks):
            name = f"{task}-{i}"
            try:
                await self.store.save("t", document(task, i), name, metadata={"task": task})
            except BackendUnavailableError as error:
                self.errors.append(error)
                self.failed[name] = (task, i)
                await self._running.wait()
            else:
                self.acknowledged[name] = (task, i)

    async def _check(self) -> None:
        found = await self.store.list_checkpoints("t", None)
        assert len(found) == len(set(found))
        assert len(self.acknowledged) + len(self.failed) == self.saves
        assert len(self.acknowledged) > self.saves // 2
        lost = {*self.acknowledged, "first"} - self.risked - set(found)
        assert not lost
        assert set(found) <= {*self.acknowledged, *self.failed, "first"}
        for name in set(found) - {"first"}:
            assert await self.store.load("t", name) == document(*(self.acknowledged.get(name) or self.failed[name]))
        await self.store.save("t", {}, "last")
        assert (await self.store.list_checkpoints("t"))[0] == "last"
