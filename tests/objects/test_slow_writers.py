"""A writer whose request to create a record arrives when others have gone on, and removed the record that was there before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.removed import NOTHING_REMOVED, Removed
from locus_store.core.backend import Backend
from locus_store.core.errors import BackendUnavailableError, ConflictError


class SlowPort(MemoryPort):
    """A port whose next record is held back until it is let go."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.held: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.dies = False

    def hold(self) -> None:
        self.held = asyncio.Event()

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        if not (new and self.held is not None and "/v/" in key):
            return await super().put(key, data, new=new)
        held, self.reached = self.held, self.reached
        self.reached.set()
        await held.wait()
        self.held = None
        etag = await super().put(key, data, new=new)
        if self.dies:
            raise BackendUnavailableError("the writer died when its record was there")
        return etag


class Bench:
    """Two stores on one bucket, the second of which is slow once."""

    def __init__(self) -> None:
        bucket = Bucket()
        self.bucket = bucket
        self.port = SlowPort(bucket)
        self.quick = Backend(ObjectDriver(MemoryPort(bucket)))
        self.slow = Backend(ObjectDriver(self.port))

    async def meanwhile(self, call: Awaitable[Any], work: Callable[[], Awaitable[None]]) -> Any:
        """Does some work while a call of the slow one is about to create its record; what the call gave or raised."""
        self.port.hold()
        task = asyncio.ensure_future(call)
        await self.port.reached.wait()
        await work()
        assert self.port.held is not None
        self.port.held.set()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return result

    async def shape(self) -> list[tuple[str, int]]:
        found = [(i.checkpoint_id, i.version) for i in await self.slow.history("t")]
        assert found == [(i.checkpoint_id, i.version) for i in await self.quick.history("t")]
        return found


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.quick.save("t", {"n": 0}, "a")
    await made.slow.save("t", {"n": 1}, "b")
    return made


def replacing(bench: Bench, times: int, how: str = "newest") -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for i in range(times):
            await bench.quick.save("t", {"n": 10 + i}, "a", if_exists=how)

    return work


@pytest.mark.parametrize("times", [1, 2, 3, 7, 8, 9, 30])
async def test_a_save_comes_after_what_was_saved_meanwhile(bench: Bench, times: int) -> None:
    assert await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "s"), replacing(bench, times)) == "s"
    version = 2 + times
    assert await bench.shape() == [("s", version + 1), ("a", version), ("b", 2)]
    assert await bench.quick.load("t") == {"n": "slow"}
    await replacing(bench, 3)()
    assert await bench.shape() == [("a", version + 4), ("s", version + 1), ("b", 2)]


@pytest.mark.parametrize("times", [1, 2, 3, 30])
async def test_a_save_beside_one_that_replaces_in_place(bench: Bench, times: int) -> None:
    assert await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "s"), replacing(bench, times, "in_place")) == "s"
    assert await bench.shape() == [("s", 3), ("b", 2), ("a", 1)]
    assert await bench.slow.load("t", "a") == {"n": 9 + times}


async def test_a_save_under_the_id_that_is_saved_again_and_again(bench: Bench) -> None:
    call = bench.slow.save("t", {"n": "slow"}, "a", if_exists="in_place")
    assert await bench.meanwhile(call, replacing(bench, 3, "in_place")) == "a"
    assert await bench.shape() == [("b", 2), ("a", 1)]
    assert await bench.quick.load("t", "a") == {"n": "slow"}


async def test_a_save_beside_deletions(bench: Bench) -> None:
    async def work() -> None:
        await bench.quick.save("t", {"n": 2}, "c")
        await bench.quick.delete("t", "c")
        await bench.quick.delete("t", "a")

    assert await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "s"), work) == "s"
    assert [name for name, _ in await bench.shape()] == ["s", "b"]
    assert await bench.quick.load("t", "b") == {"n": 1}


async def test_a_deletion_deletes_once_and_nothing_else(bench: Bench) -> None:
    assert await bench.meanwhile(bench.slow.delete("t", "b"), replacing(bench, 3)) is True
    assert [name for name, _ in await bench.shape()] == ["a"]
    assert await bench.slow.delete("t", "b") is False


async def test_an_expected_version_that_is_past(bench: Bench) -> None:
    call = bench.slow.save("t", {"n": "slow"}, "s", expected_version=2)
    error = await bench.meanwhile(call, replacing(bench, 2))
    assert isinstance(error, ConflictError)
    assert [name for name, _ in await bench.shape()] == ["a", "b"]


async def test_only_the_newest_are_kept(bench: Bench) -> None:
    bench.quick = Backend(ObjectDriver(MemoryPort(bench.bucket)), keep_checkpoints=1)

    async def work() -> None:
        for i in range(4):
            await bench.quick.save("t", {"n": 10 + i}, f"k{i}")

    assert await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "s"), work) == "s"
    assert [name for name, _ in await bench.shape()] == ["s", "k3"]
    assert await bench.quick.load("t", "k3") == {"n": 13}


async def test_the_thread_was_deleted_and_made_anew(bench: Bench) -> None:
    await replacing(bench, 3)()

    async def work() -> None:
        await bench.quick.delete("t")
        await bench.quick.save("t", {"n": "new"}, "new")
        await bench.quick.put_records("t", "scope", {"k": 1})

    assert await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "s"), work) == "s"
    assert await bench.shape() == [("s", 2), ("new", 1)]
    assert await bench.quick.load("t", "new") == {"n": "new"}
    assert await bench.slow.records("t", "scope") == {"k": 1}


async def test_the_thread_was_deleted(bench: Bench) -> None:
    async def work() -> None:
        await bench.quick.delete("t")

    assert await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "s"), work) == "s"
    assert await bench.shape() == [("s", 1)]
    assert await bench.quick.load("t") == {"n": "slow"}
    await bench.quick.delete("t")
    assert bench.bucket.objects == {}


async def test_a_writer_that_dies_then_leaves_nothing_that_counts(bench: Bench) -> None:
    bench.port.dies = True
    error = await bench.meanwhile(bench.slow.save("t", {"n": "slow"}, "a"), replacing(bench, 3))
    assert isinstance(error, BackendUnavailableError)
    assert await bench.shape() == [("a", 5), ("b", 2)]
    await replacing(bench, 2)()
    assert await bench.shape() == [("a", 7), ("b", 2)]
    assert await bench.quick.load("t") == {"n": 11}
    assert await bench.quick.list_checkpoints("t", limit=1) == ["a"]
    assert await bench.quick.list_checkpoints("t", limit=2) == ["a", "b"]
    await bench.quick.delete("t")
    await Backend(ObjectDriver(MemoryPort(bench.bucket)), clock=lambda: 2**53).vacuum()
    assert bench.bucket.objects == {}


async def test_others_who_went_on_from_a_record_are_no_reason_to_write_it_again(bench: Bench) -> None:
    """The answer is slow, not the request."""
    port = bench.port
    original = port.list
    waiting = True

    async def late(prefix: str, **options: Any) -> Any:
        nonlocal waiting
        if waiting and any(b'"id":"s"' in data for data in bench.bucket.objects.values()):
            waiting = False
            await replacing(bench, 5)()
        return await original(prefix, **options)

    port.list = late  # type: ignore[method-assign]
    assert await bench.slow.save("t", {"n": "slow"}, "s") == "s"
    assert not waiting
    assert await bench.shape() == [("a", 8), ("s", 3), ("b", 2)]


# --- the numbers that were removed ------------------------------------------------------------------------------------


@given(st.lists(st.sets(st.integers(1, 60), max_size=8)))
def test_removed_is_a_set_of_numbers_in_the_fewest_ranges(parts: list[set[int]]) -> None:
    removed, expected = NOTHING_REMOVED, set[int]()
    for part in parts:
        removed = removed.with_(part)
        expected |= part
    assert [n for n in range(70) if n in removed] == sorted(expected)
    assert all(a[1] + 1 < b[0] for a, b in zip(removed.ranges, removed.ranges[1:], strict=False))
    assert Removed.load([list(r) for r in removed.ranges]) == removed
