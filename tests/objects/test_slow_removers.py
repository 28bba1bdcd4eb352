"""Whoever deletes a thread and is slow deletes nothing of a thread that was made under the same id since."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend


class SlowRemover(MemoryPort):
    """A port whose deletions wait until they are let go, from a certain one on.

    Attributes:
        passed: How many deletions are carried out at once.
        reached: Set when one waits.
        let_go: What it waits for.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.passed = 0
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()

    async def delete(self, keys: Sequence[str]) -> None:
        if self.passed:
            self.passed -= 1
        else:
            self.reached.set()
            await self.let_go.wait()
        await super().delete(keys)


async def held(port: SlowRemover, call: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin a call, and come back when its deletion waits."""
    task = asyncio.ensure_future(call)
    waiting = asyncio.ensure_future(port.reached.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), "it deleted nothing"
    return task


@pytest.fixture
async def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
async def quick(bucket: Bucket) -> Backend:
    store = Backend(ObjectDriver(MemoryPort(bucket)))
    for i in range(5):
        await store.save("t", {"n": i}, f"old{i}")
    await store.put_records("t", "s", {"k": "old"})
    return store


@pytest.mark.parametrize("passed", [0, 1])
@pytest.mark.parametrize("by", ["delete", "save", "records", "copy"])
async def test_a_new_thread_outlives_the_deletion_of_the_old_one(
    bucket: Bucket, quick: Backend, passed: int, by: str
) -> None:
    port = SlowRemover(bucket)
    slow = Backend(ObjectDriver(port))
    port.passed = 1  # that of `setup`
    await slow.setup()
    port.passed = passed
    first = await held(port, slow.delete("t"))
    await quick.save("source", {"n": "new0"}, "new0")
    if by == "delete":
        await quick.delete("t")
    elif by == "records":
        await quick.put_records("t", "s", {"k": "new"})
    elif by == "copy":
        assert await quick.copy_thread("source", "t")
    for i in range(by == "copy", 7):
        await quick.save("t", {"n": f"new{i}"}, f"new{i}")
    await quick.put_records("t", "s", {"k": "new"})
    port.let_go.set()
    assert await first is True
    for store in (quick, slow, Backend(ObjectDriver(MemoryPort(bucket)))):
        assert await store.list_checkpoints("t") == [f"new{i}" for i in range(6, -1, -1)]
        assert [i.version for i in await store.history("t")] == [7, 6, 5, 4, 3, 2, 1]
        for i in range(7):
            assert await store.load("t", f"new{i}") == {"n": f"new{i}"}
        assert await store.load("t", "old3") is None
        assert await store.records("t", "s") == {"k": "new"}
        assert await store.list_threads() == ["t", "source"]
    await slow.save("t", {"n": 7}, "new7")
    assert await quick.load("t") == {"n": 7}
    await quick.delete("t")
    await slow.delete("source")
    assert bucket.objects == {}
