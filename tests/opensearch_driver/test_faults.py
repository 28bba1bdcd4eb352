"""The server is cut off, paused or restarted in the middle of 200 saves: each raised or is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from fault_proxy import FaultProxy
from many_saves import ManySaves
from opensearch_servers import Double, Noida, Osmem

from locus_store import BackendUnavailableError, OpenSearchBackend


@pytest.mark.parametrize("kind", [Osmem, Noida])
async def test_connections_are_cut_again_and_again(new_opensearch: Callable[..., Double], kind: type[Double]) -> None:
    server, rng = new_opensearch(kind), random.Random(7)
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        OpenSearchBackend(f"http://127.0.0.1:{proxy.port}", "cut") as store,
    ):
        saves = ManySaves(store)

        async def cut() -> None:
            for n in range(20):
                await saves.until(n * 9)
                when: Any = rng.choice(["before", "after"])
                proxy.cut(rng.choice([b"_bulk", b'"kind":"thread"', b'"kind":"checkpoint"', b"_doc"]), when)

        await saves.during(cut)
        assert proxy.cuts >= 10


@pytest.mark.parametrize("mode", ["refuse", "reset"])
async def test_the_server_is_cut_off(new_opensearch: Callable[..., Double], mode: Any) -> None:
    server = new_opensearch(Osmem)
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        OpenSearchBackend(f"http://127.0.0.1:{proxy.port}", "off") as store,
    ):
        saves = ManySaves(store)

        async def disturb() -> None:
            await saves.until(100)
            async with saves.away():
                await proxy.set(mode)
                with pytest.raises(BackendUnavailableError):
                    await store.load("t")
                await proxy.set("pass")

        await saves.during(disturb)


async def test_the_server_is_paused(new_opensearch: Callable[..., Double]) -> None:
    server = new_opensearch(Osmem)
    async with OpenSearchBackend(dsn=server.address("paused"), timeout=1) as store:
        saves = ManySaves(store)

        async def disturb() -> None:
            await saves.until(100)
            async with saves.away():
                server.pause()
                with pytest.raises(BackendUnavailableError):
                    await store.load("t")
                server.resume()

        await saves.during(disturb)


async def test_the_server_is_restarted(new_opensearch: Callable[..., Double]) -> None:
    """Cut off first: on its way down the double answers writes that come after its last to the disk, and loses them."""
    server = new_opensearch(Noida)
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        OpenSearchBackend(f"http://127.0.0.1:{proxy.port}", "again") as store,
    ):
        saves = ManySaves(store)

        async def disturb() -> None:
            await saves.until(100)
            async with saves.away():
                await proxy.set("reset")
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                await proxy.set("pass")

        await saves.during(disturb)
