"""How many requests each operation makes, and how many of them one after the other, however long the history is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend

LENGTHS = [1, 1500]
Call = Callable[[Backend], Awaitable[Any]]


class SteppingPort(MemoryPort):
    """A port that answers all requests under way at once, when no task can go on without an answer.

    Attributes:
        steps: How often it did: the requests that were made one after the other.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.steps = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def _called(self, verb: str, key: str) -> int:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        await answer
        return await super()._called(verb, key)

    async def run(self, call: Awaitable[Any]) -> Any:
        """Await a call, and count from 0."""
        self.steps = 0
        self.calls.clear()
        task = asyncio.ensure_future(call)
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            answered, self._waiting = self._waiting, []
            self.steps += bool(answered)
            for answer in answered:
                answer.set_result(None)
        return await task

    def made(self) -> tuple[dict[str, int], int]:
        """What was counted."""
        return dict(sorted(self.counts().items())), self.steps


@pytest.fixture(scope="module", params=LENGTHS)
def long(request: pytest.FixtureRequest) -> Bucket:
    """A bucket with a thread of that many checkpoints, the oldest of which is c0, and another thread."""

    async def fill() -> Bucket:
        bucket = Bucket(pauses=False)
        store = Backend(ObjectDriver(MemoryPort(bucket)))
        for i in range(request.param):
            await store.save("t", {"n": i}, f"c{i}")
        await store.save("other", {"n": 1})
        return bucket

    return asyncio.run(fill())


@pytest.fixture
def bucket(long: Bucket) -> Bucket:
    """A copy of it."""
    made = Bucket(pauses=False)
    made.objects = dict(long.objects)
    made._keys = list(long._keys)
    return made


def length_of(bucket: Bucket) -> int:
    """How many checkpoints the thread has; its log has a record more, which says where it begins."""
    return sum("/d/t/v/" in key for key in bucket.objects) - 1


async def first(bucket: Bucket, call: Call) -> tuple[dict[str, int], int]:
    """What a call makes that is the first of its process, but for finding out what the service can do."""
    port = SteppingPort(bucket)
    store = Backend(ObjectDriver(port))
    await port.run(store.setup())
    await port.run(call(store))
    return port.made()


async def next_one(bucket: Bucket, call: Call) -> tuple[dict[str, int], int]:
    """What a call makes in a process that has saved to the thread before."""
    port = SteppingPort(bucket)
    store = Backend(ObjectDriver(port))
    await port.run(store.save("t", {"n": -1}, "mine"))
    await port.run(call(store))
    return port.made()


READS: dict[str, tuple[Call, dict[str, int], int]] = {
    "load": (lambda s: s.load("t"), {"get": 1, "list": 1}, 2),
    "load of the oldest": (lambda s: s.load("t", "c0"), {"get": 2, "list": 2}, 2),
    "load of an unknown id": (lambda s: s.load("t", "nobody"), {"list": 2}, 1),
    "load of no thread": (lambda s: s.load("nobody"), {"list": 1}, 1),
    "exists": (lambda s: s.exists("t"), {"get": 1, "list": 1}, 2),
    "exists, the oldest": (lambda s: s.exists("t", "c0"), {"get": 2, "list": 2}, 2),
}


@pytest.mark.parametrize("name", READS)
async def test_reading(bucket: Bucket, name: str) -> None:
    call, requests, steps = READS[name]
    assert await first(bucket, call) == (requests, steps)
    assert not any(verb in ("put", "put new", "delete") for verb in requests)


async def test_exists_after_a_save_of_this_process_is_one_request(bucket: Bucket) -> None:
    assert await next_one(bucket, lambda s: s.exists("t")) == ({"list": 1}, 1)


async def test_a_save(bucket: Bucket) -> None:
    """A listing; what says where the checkpoint is and a marker; the record; a look whether it stands, and the old marker."""
    requests = {"delete": 1, "list": 2, "put": 2, "put new": 1}
    assert await next_one(bucket, lambda s: s.save("t", {"n": 7})) == (requests, 4)
    assert await first(bucket, lambda s: s.save("t", {"n": 7})) == (requests | {"get": 1}, 5)


async def test_the_first_save_of_a_thread(bucket: Bucket) -> None:
    assert await first(bucket, lambda s: s.save("new", {"n": 7})) == ({"list": 2, "put": 2, "put new": 2}, 5)


async def test_the_newest_ten_of_a_listing(bucket: Bucket) -> None:
    length = min(10, length_of(bucket))
    requests, steps = await first(bucket, lambda s: s.list_checkpoints("t"))
    assert (requests, steps) == ({"get": length, "list": 2}, 4 if length > 1 else 3)


async def test_threads(bucket: Bucket) -> None:
    """One request lists 1,000 of them, and each is looked at."""
    assert await first(bucket, lambda s: s.list_threads()) == ({"get": 2, "list": 3}, 3)


async def test_deletion(bucket: Bucket) -> None:
    length = length_of(bucket)
    requests, _ = await first(bucket, lambda s: s.delete("t"))
    pages = 1 + (length + 1) // 1000, 1 + (2 * length + 1) // 1000
    assert requests == {"put new": 1, "list": 2 + sum(pages), "get": 2, "delete": pages[1] + 1}
    assert {key.split("/")[3] for key in bucket.objects if "/d/" in key} == {"other"}


@pytest.mark.parametrize("length", [999, 1000, 1001, 2500])
async def test_a_listing_past_a_page_is_complete(length: int) -> None:
    bucket = Bucket(pauses=False, page=100)
    store = Backend(ObjectDriver(MemoryPort(bucket)))
    for i in range(length // 10):
        await store.save("t", {"n": i}, f"c{i}")
        await store.save(f"t{i}", {"n": i})
    expected = [f"c{i}" for i in reversed(range(length // 10))]
    assert await store.list_checkpoints("t", limit=None) == expected
    assert len(await store.list_threads(limit=None)) == length // 10 + 1
    assert await store.delete("t")
    assert not [key for key in bucket.objects if "/d/t/" in key]
