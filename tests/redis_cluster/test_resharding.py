"""Slots that move from one node to another while threads are read and written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis_cluster.conftest import Open
from redis_servers import RedisCluster

from locus_store import BackendUnavailableError, RedisBackend


def document(by: str, n: int) -> dict[str, Any]:
    return {"n": n, "by": by, "messages": [f"{by} {i}" for i in range(n + 1)]}


async def write(store: RedisBackend, by: str, thread: str, done: asyncio.Event) -> dict[str, dict[str, Any]]:
    """Saves until it is told to stop; returns what was acknowledged. What raised may be there or not."""
    acknowledged: dict[str, dict[str, Any]] = {}
    n = 0
    while not done.is_set() or n < 10:
        saved = document(by, n)
        try:
            acknowledged[await store.save(thread, saved, f"{by} {n}", metadata={"by": by})] = saved
            found = await store.load(thread)
            assert found is not None
            assert found == document(found["by"], found["n"])
        except BackendUnavailableError as error:
            assert "redis+cluster://" in str(error)
        n += 1
    return acknowledged


async def assert_all(store: RedisBackend, thread: str, acknowledged: dict[str, dict[str, Any]]) -> None:
    names = await store.list_checkpoints(thread, limit=None)
    assert len(names) == len(set(names))
    assert acknowledged.keys() <= set(names)
    for name, saved in acknowledged.items():
        assert await store.load(thread, name) == saved
    assert await store.list_threads() == [thread]
    found = await store.query_by_metadata("by", "a", versions="all", limit=None)
    assert acknowledged.keys() <= {row["checkpoint_id"] for row in found} | {n for n in names if n[0] != "a"}


@pytest.mark.parametrize("key", ["{{{}}}:i", "{{{}:t}}:h"], ids=["the index", "the thread"])
async def test_a_slot_moves_while_it_is_written_to(
    cluster: RedisCluster, store: RedisBackend, other: RedisBackend, open_store: Open, prefix: str, key: str
) -> None:
    await store.save("t", {"messages": []}, "first")
    await other.load("t")
    slot = cluster.slot((prefix + key.format("default")).encode())
    source = cluster.owner(slot)
    done = asyncio.Event()
    writers = [asyncio.create_task(write(s, by, "t", done)) for s, by in ((store, "a"), (store, "b"), (other, "c"))]
    loop = asyncio.get_running_loop()

    def between() -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result()

    try:
        for _ in range(2):
            for node in [node for node in cluster.nodes if node is not source] + [source]:
                if cluster.owner(slot) is not node:
                    await asyncio.to_thread(cluster.move, slot, node, between)
                await asyncio.sleep(0.05)
    finally:
        done.set()
        acknowledged = {n: d for writer in await asyncio.gather(*writers) for n, d in writer.items()}
    assert cluster.owner(slot) is source
    assert len(acknowledged) >= 30
    fresh = open_store()
    for one in (store, other, fresh):
        await assert_all(one, "t", acknowledged)
    assert await store.delete("t")
    await store.vacuum()
    assert await fresh.list_threads() == []


@pytest.mark.endurance
async def test_a_slot_moves_to_a_node_that_the_store_has_not_heard_of(new_cluster: Callable[[], RedisCluster]) -> None:
    cluster = new_cluster()
    async with RedisBackend(cluster.store_url, timeout=1) as store, RedisBackend(cluster.store_url) as idle:
        await store.save("t", {"n": 0}, "0")
        assert await idle.list_threads() == ["t"]
        node = await asyncio.to_thread(cluster.join)
        slot = cluster.slot(b"locus_store:{default:t}:h")
        loop = asyncio.get_running_loop()
        acknowledged = {"0": {"n": 0}}
        refused = 0

        async def call() -> None:
            nonlocal refused
            for n in range(len(acknowledged), len(acknowledged) + 2):
                try:
                    assert await store.load("t") in acknowledged.values()
                    acknowledged[await store.save("t", {"n": n}, str(n))] = {"n": n}
                except BackendUnavailableError as error:
                    refused += 1
                    assert "cluster" in str(error)

        await asyncio.to_thread(
            cluster.move, slot, node, lambda: asyncio.run_coroutine_threadsafe(call(), loop).result()
        )
        assert refused
        assert cluster.owner(slot) is node
        for n in range(100, 105):
            acknowledged[await store.save("t", {"n": n}, str(n))] = {"n": n}
        for name, document in acknowledged.items():
            assert await store.load("t", name) == document
        assert await store.list_threads() == ["t"]
        # Whoever makes a lost index anew, or sweeps, looks at all nodes, those too that it has not heard of.
        index = b"locus_store:{default}:i"
        cluster.owner(cluster.slot(index)).command("UNLINK", index)
        assert await idle.list_threads() == ["t"]
        assert await idle.vacuum(older_than_days=0, keep_last=1) >= len(acknowledged) - 1
        assert await store.delete("t")
        assert await store.list_threads() == []
