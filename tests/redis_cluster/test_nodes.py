"""Nodes that die and come back, and clients that did not know the cluster when they began."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from redis.asyncio import RedisCluster as Client
from redis_cluster.conftest import Open
from redis_servers import RedisCluster, RedisServer, wait_for

from locus_store import BackendUnavailableError, RedisBackend


async def test_many_first_calls_at_once(cluster: RedisCluster, open_store: Open) -> None:
    """None is sent to a node that does not have what it asks for, and no connection is closed while it is used."""
    for node in cluster.nodes:
        node.command("CONFIG", "RESETSTAT")
    store = open_store()
    await asyncio.gather(*[store.save(f"t{i % 3}", {"n": i}, str(i)) for i in range(60)])
    for i in range(3):
        assert sorted(await store.list_checkpoints(f"t{i}", limit=None), key=int) == [str(n) for n in range(i, 60, 3)]
    for node in cluster.nodes:
        assert "errorstat_MOVED" not in node.info("errorstats")


async def test_it_is_found_through_any_of_the_nodes(cluster: RedisCluster, open_store: Open) -> None:
    for node in cluster.nodes:
        store = open_store(url=f"redis+cluster://127.0.0.1:1,127.0.0.1:{node.port}")
        await store.save("t", {"through": node.port}, str(node.port))
    assert len(await store.list_checkpoints("t")) == len(cluster.nodes)


@pytest.mark.parametrize("options", [{}, {"decode_responses": True, "protocol": 3}], ids=["bytes", "texts"])
async def test_a_client_of_the_hosts_is_used_and_never_closed(
    cluster: RedisCluster, open_store: Open, options: dict[str, Any]
) -> None:
    client = Client(host="127.0.0.1", port=cluster.nodes[0].port, **options)
    try:
        store = open_store(url=None, client=client)
        await asyncio.gather(*[store.save(f"t{i}", {"n": i, "b": b"\xff"}, metadata={"n": i}) for i in range(30)])
        assert await store.load("t7") == {"n": 7, "b": b"\xff"}
        assert len(await store.list_threads(limit=None)) == 30
        assert [row["thread_id"] for row in await store.query_by_metadata("n", 9)] == ["t9"]
        assert await store.copy_thread("t1", "copy")
        assert await store.vacuum(older_than_days=0, keep_last=0) == 31
        assert await store.list_threads() == []
        await store.close()
        assert await client.set("another", "1")
        assert await client.unlink("another")
    finally:
        await client.aclose()


def reads(store: RedisBackend, name: str) -> list[Coroutine[Any, Any, Any]]:
    """Calls that find something, for the thread is there."""
    return [store.load(name), store.exists(name), store.list_checkpoints(name), store.history(name)]


def down(cluster: RedisCluster, dead: RedisServer) -> bool:
    """Whether the others say that the cluster is down."""
    return all(b"cluster_state:fail" in raw(node, "CLUSTER", "INFO") for node in cluster.nodes if node is not dead)


def raw(node: RedisServer, *words: str) -> bytes:
    with node.client() as client:
        client.response_callbacks.clear()
        reply: bytes = client.execute_command(*words)
        return reply


@pytest.mark.endurance
async def test_a_node_dies_and_comes_back(new_cluster) -> None:
    cluster = new_cluster({"appendonly": "yes", "appendfsync": "always"})
    async with RedisBackend(cluster.store_url, timeout=2) as store:
        acknowledged: dict[str, dict[str, int]] = {}
        for i in range(60):
            acknowledged[await store.save(f"t{i % 20}", {"n": i}, str(i))] = {"n": i}
        dead = cluster.owner(cluster.slot(b"locus_store:{default:t0}:h"))
        dead.kill()
        names = [f"t{i}" for i in range(20)]
        for _ in range(
            3
        ):  # while connections break, while the others do not know yet, and when the cluster says it is down
            told = await asyncio.gather(*[one for name in names for one in reads(store, name)], return_exceptions=True)
            told += await asyncio.gather(*[store.save(n, {"n": -1}) for n in names], return_exceptions=True)
            told.append(await asyncio.gather(store.list_threads(), return_exceptions=True))
            for said in told:
                assert said or isinstance(said, BackendUnavailableError), said
                if isinstance(said, Exception):
                    assert isinstance(said, BackendUnavailableError), repr(said)
                    assert "redis+cluster://" in str(said)
            assert any(isinstance(said, BackendUnavailableError) for said in told)
            await asyncio.to_thread(wait_for, lambda: down(cluster, dead), "the cluster does not notice")
        dead.start()
        await asyncio.to_thread(cluster.wait_until_whole)
        # The same store works again, with no more than what is said to be unavailable in between.
        async with asyncio.timeout(60):
            while True:
                try:
                    acknowledged[await store.save("t0", {"n": 60}, "60")] = {"n": 60}
                    break
                except BackendUnavailableError:
                    await asyncio.sleep(0.1)
        for name, document in acknowledged.items():
            assert await store.load(f"t{document['n'] % 20}", name) == document
        assert sorted(await store.list_threads()) == sorted(f"t{i}" for i in range(20))


@pytest.mark.endurance
async def test_a_node_hangs_in_the_middle_of_saves(new_cluster) -> None:
    cluster = new_cluster()
    async with RedisBackend(cluster.store_url, timeout=1) as store:
        node = cluster.owner(cluster.slot(b"locus_store:{default:t}:h"))
        acknowledged: list[str] = []

        async def write(by: int) -> None:
            for n in range(50):
                try:
                    acknowledged.append(await store.save("t", {"by": by, "n": n}, f"{by} {n}"))
                except BackendUnavailableError:
                    await asyncio.sleep(0.05)

        async def disturb() -> None:
            for count in (20, 60):
                while len(acknowledged) < count:
                    await asyncio.sleep(0.001)
                node.pause()
                await asyncio.sleep(1.5)
                node.resume()

        await asyncio.gather(*[write(by) for by in range(4)], disturb())
        await asyncio.to_thread(wait_for, lambda: cluster._is_whole(node), "the cluster is not whole again")
        names = await store.list_checkpoints("t", limit=None)
        assert set(acknowledged) <= set(names)
        assert len(names) == len(set(names))
        assert len(acknowledged) > 80
        for name in names:
            by, n = map(int, name.split())
            assert await store.load("t", name) == {"by": by, "n": n}
