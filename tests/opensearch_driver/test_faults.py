"""The server is cut off, paused or restarted in the middle of 200 saves: each raised or is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from fault_proxy import FaultProxy
from opensearch_servers import Double, Noida, Osmem

from locus_store import BackendUnavailableError, OpenSearchBackend


def document(task: int, i: int) -> dict[str, Any]:
    return {"task": task, "messages": [f"line {n} of {task} " * 10 for n in range(i)]}


class Saves:
    """Two hundred saves by four tasks; those that raised are waited for until the server is there again."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.failed: dict[str, tuple[int, int]] = {}
        self.running = asyncio.Event()
        self.running.set()

    async def write(self, store: OpenSearchBackend, task: int) -> None:
        for i in range(50):
            name = f"{task}-{i}"
            try:
                await store.save("t", document(task, i), name, metadata={"task": task})
            except BackendUnavailableError:
                self.failed[name] = (task, i)
                await self.running.wait()
            else:
                self.acknowledged[name] = (task, i)

    async def until(self, done: int) -> None:
        while len(self.acknowledged) + len(self.failed) < done:
            await asyncio.sleep(0.002)

    async def check(self, store: OpenSearchBackend) -> None:
        found = await store.list_checkpoints("t", None)
        assert len(found) == len(set(found))
        assert len(self.acknowledged) + len(self.failed) == 200
        assert len(self.acknowledged) > 100
        assert self.acknowledged.keys() <= set(found) <= {*self.acknowledged, *self.failed, "first"}
        for name in set(found) - {"first"}:
            assert await store.load("t", name) == document(*(self.acknowledged.get(name) or self.failed[name]))
        await store.save("t", {}, "last")
        assert (await store.list_checkpoints("t"))[0] == "last"


@pytest.mark.parametrize("kind", [Osmem, Noida])
async def test_connections_are_cut_again_and_again(new_opensearch: Callable[..., Double], kind: type[Double]) -> None:
    server = new_opensearch(kind)
    saves, rng = Saves(), random.Random(7)
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        OpenSearchBackend(f"http://127.0.0.1:{proxy.port}", "cut") as store,
    ):
        await store.save("t", {}, "first")

        async def cut() -> None:
            for n in range(20):
                await saves.until(n * 9)
                when: Any = rng.choice(["before", "after"])
                proxy.cut(rng.choice([b"_bulk", b'"kind":"thread"', b'"kind":"checkpoint"', b"_doc"]), when)

        await asyncio.gather(*[saves.write(store, task) for task in range(4)], cut())
        assert proxy.cuts >= 10
        await saves.check(store)


@pytest.mark.parametrize("mode", ["refuse", "reset"])
async def test_the_server_is_cut_off(new_opensearch: Callable[..., Double], mode: Any) -> None:
    server, saves = new_opensearch(Osmem), Saves()
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        OpenSearchBackend(f"http://127.0.0.1:{proxy.port}", "off") as store,
    ):
        await store.save("t", {}, "first")

        async def disturb() -> None:
            await saves.until(100)
            saves.running.clear()
            await proxy.set(mode)
            with pytest.raises(BackendUnavailableError):
                await store.load("t")
            await proxy.set("pass")
            assert await store.load("t") is not None
            saves.running.set()

        await asyncio.gather(*[saves.write(store, task) for task in range(4)], disturb())
        await saves.check(store)


async def test_the_server_is_paused(new_opensearch: Callable[..., Double]) -> None:
    server, saves = new_opensearch(Osmem), Saves()
    async with OpenSearchBackend(dsn=server.address("paused"), timeout=1) as store:
        await store.save("t", {}, "first")

        async def disturb() -> None:
            await saves.until(100)
            saves.running.clear()
            server.pause()
            with pytest.raises(BackendUnavailableError):
                await store.load("t")
            server.resume()
            saves.running.set()

        await asyncio.gather(*[saves.write(store, task) for task in range(4)], disturb())
        await saves.check(store)


async def test_the_server_is_restarted(new_opensearch: Callable[..., Double]) -> None:
    """In order: the double keeps no more through a crash than it had written by then."""
    server, saves = new_opensearch(Noida), Saves()
    async with OpenSearchBackend(dsn=server.address("again")) as store:
        await store.save("t", {}, "first")

        async def disturb() -> None:
            await saves.until(100)
            saves.running.clear()
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            assert await store.load("t") is not None
            saves.running.set()

        await asyncio.gather(*[saves.write(store, task) for task in range(4)], disturb())
        await saves.check(store)
