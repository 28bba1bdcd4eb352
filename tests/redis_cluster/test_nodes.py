"""Nodes that die and come back, and clients that did not know the cluster when they began."""

from __future__ import annotations

import asyncio

import pytest
from redis_cluster.conftest import Open
from redis_servers import RedisCluster, wait_for

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


@pytest.mark.endurance
async def test_a_node_dies_and_comes_back(new_cluster) -> None:
    cluster = new_cluster({"appendonly": "yes", "appendfsync": "always"})
    async with RedisBackend(cluster.store_url, timeout=2) as store:
        acknowledged: dict[str, dict[str, int]] = {}
        for i in range(60):
            acknowledged[await store.save(f"t{i % 20}", {"n": i}, str(i))] = {"n": i}
        dead = cluster.owner(cluster.slot(b"locus_store:{default:t0}:h"))
        dead.kill()
        for call in (lambda: store.save("t0", {"n": -1}), lambda: store.load("t0"), store.list_threads):
            with pytest.raises(BackendUnavailableError):
                await call()
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
