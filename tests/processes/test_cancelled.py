"""Calls that are cancelled at random points."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest
from bucket_contents import BucketContents
from histories import message


def documents(i):
    return {"i": i, "messages": [message(j) for j in range(i % 30 + 1)], "blob": bytes(50_000)}


@pytest.mark.parametrize("timeout", [0.001, None])
async def test_case_58_two_hundred_cancelled_saves(open_store, other, place, timeout):
    """With one connection only: if one call kept it, the next would wait for ever."""
    store = open_store(**(place.pooled or {}))
    rng = random.Random(58)
    await store.save("t", documents(0), "first")
    acknowledged = {"first": 0}
    for i in range(200):
        limit = timeout or rng.choice([0, 0.0003, 0.001, 0.003, 0.01])
        with contextlib.suppress(TimeoutError):
            acknowledged[await asyncio.wait_for(store.save("t", documents(i), str(i) if i % 2 else None), limit)] = i
        if i % 50 == 49:
            assert await asyncio.wait_for(store.load("t", "first"), 10) == documents(0)
    await asyncio.wait_for(store.save("t", documents(7), "last"), 10)
    names = await asyncio.wait_for(store.list_checkpoints("t", None), 10)
    assert {*acknowledged, "last"} <= set(names)
    for name in names:
        found = await other.load("t", name)
        assert found == documents(found["i"]), name
        assert found["i"] == acknowledged.get(name, found["i"])
    if place.pooled:
        assert place.connections("idle in transaction%") == 0
    # No lock is left behind either: somebody else can write at once.
    await asyncio.wait_for(other.save("t", documents(3), "other"), 10)
    await asyncio.wait_for(other.delete("t"), 10)
    if isinstance(place, BucketContents):  # what a save announced there before it was cancelled is swept later
        place.grow_old()
        await other.vacuum()
    assert place.count() == 0


async def test_other_calls_cancelled(open_store, other, place):
    store = open_store(**(place.pooled or {}))
    rng = random.Random(59)
    for i in range(10):
        await store.save("t", documents(i), str(i), {"i": i})
    calls = [
        lambda i: store.load("t", str(i % 10)),
        lambda i: store.list_threads(),
        lambda i: store.history("t"),
        lambda i: store.query_by_metadata({"i": 3}, versions="all"),
        lambda i: store.copy_thread("t", f"copy {i}"),
        lambda i: store.delete(f"copy {i - 6}"),
        lambda i: store.put_records("t", "s", {f"k{i}": i}),
        lambda i: store.records("t", "s"),
        lambda i: store.vacuum(),
    ]
    for i in range(120):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(calls[i % len(calls)](i), rng.choice([0.0003, 0.001, 0.004]))
    assert len(await asyncio.wait_for(store.list_checkpoints("t"), 10)) == 10
    for thread in await other.list_threads(None):
        assert await other.list_checkpoints(thread, None) == [str(i) for i in range(9, -1, -1)], "a copy in part"
        for i in range(10):
            assert await other.load(thread, str(i)) == documents(i)
        await asyncio.wait_for(other.delete(thread), 10)
    if place.pooled:
        assert place.connections("idle in transaction%") == 0


async def test_a_task_group_that_is_cancelled_while_one_connection_is_wanted_by_many(open_store, other, place):
    store = open_store(**(place.pooled or {}))
    await store.save("t", documents(1), "first")
    for delay in (0, 0.0005, 0.002, 0.01):
        tasks = [asyncio.ensure_future(store.save("t", documents(i))) for i in range(20)]
        await asyncio.sleep(delay)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(store.save("t", documents(2)), 10)
    assert await asyncio.wait_for(other.load("t"), 10) == documents(2)
    # Nobody is left behind who would have to be waited for.
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 3
