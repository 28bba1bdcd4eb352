"""The server is cut off, paused, restarted or killed in the middle of 200 saves: each raised or is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from fault_proxy import FaultProxy
from many_saves import ManySaves
from redis_driver.conftest import Open
from redis_servers import RedisServer

from locus_store import BackendUnavailableError, RedisBackend

NewRedis = Callable[..., RedisServer]

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_answer_that_is_lost_is_asked_for_again(
    open_store: Open, redis_server: RedisServer, when: Any
) -> None:
    """A save is there once, whether it came to the server or not; a load is made again."""
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = open_store(f"redis://127.0.0.1:{proxy.port}", max_connections=1)
        await store.save("t", {"messages": ["x" * 300]}, "first")
        for i in range(5):
            proxy.cut(f"save-{i}".encode(), when)
            await store.save("t", {"messages": ["x" * 300, f"{i}" * 300]}, f"save-{i}", expected_version=i + 1)
            assert proxy.cuts == 2 * i + 1
            proxy.cut(b"EVALSHA", when)
            assert await store.load("t") == {"messages": ["x" * 300, f"{i}" * 300]}
            assert proxy.cuts == 2 * i + 2
        assert [i.version for i in await store.history("t")] == [6, 5, 4, 3, 2, 1]
        await store.close()


async def test_connections_are_cut_again_and_again(open_store: Open, redis_server: RedisServer) -> None:
    rng = random.Random(7)
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = open_store(f"redis://127.0.0.1:{proxy.port}")
        saves = ManySaves(store)

        async def cut() -> None:
            for n in range(20):
                await saves.until(n * 9)
                when: Any = rng.choice(["before", "after"])
                proxy.cut(b"EVALSHA", when, skip=rng.randrange(4))

        await saves.during(cut)
        assert proxy.cuts >= 15
        assert not saves.failed  # one cut after another is what the store makes good by itself
        await store.close()


@pytest.mark.parametrize("mode", ["refuse", "reset", "blackhole"])
async def test_the_server_is_cut_off(open_store: Open, redis_server: RedisServer, mode: Any) -> None:
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = open_store(f"redis://127.0.0.1:{proxy.port}", timeout=1)
        saves = ManySaves(store)

        async def disturb() -> None:
            await saves.until(100)
            async with saves.away():
                await proxy.set(mode)
                with pytest.raises(BackendUnavailableError, match="in time" if mode == "blackhole" else "reached"):
                    await store.load("t")
                await saves.until_one_failed()
                await proxy.set("pass")

        await saves.during(disturb)
        await store.close()


async def test_the_server_is_paused(new_redis: NewRedis) -> None:
    """What was given up is carried out when it goes on, once."""
    server: Any = new_redis()
    async with RedisBackend(server.store_url, timeout=1) as store:
        saves = ManySaves(store)

        async def disturb() -> None:
            await saves.until(100)
            async with saves.away():
                server.pause()
                with pytest.raises(BackendUnavailableError, match="did not answer in time"):
                    await store.load("t")
                await saves.until_one_failed()
                server.resume()

        await saves.during(disturb)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize(("saves", "restarts"), [(200, 1), pytest.param(2000, 10, marks=pytest.mark.endurance)])
async def test_what_was_acknowledged_is_there_after_a_restart(
    new_redis: NewRedis, how: str, saves: int, restarts: int
) -> None:
    """With an append-only file under ``appendfsync always``, and 40 saves under way."""
    server: Any = new_redis(DURABLE)
    async with RedisBackend(server.store_url) as store:
        many = ManySaves(store, saves, tasks=40)

        async def disturb() -> None:
            for n in range(restarts):
                await many.until(saves * (n + 1) // (restarts + 1))
                async with many.away():
                    await asyncio.to_thread(getattr(server, how))
                    await asyncio.to_thread(server.start)

        await many.during(disturb)
        assert all("cannot be reached" in str(error) or "loading" in str(error) for error in many.errors)


async def test_a_server_that_stays_away_is_told_for_every_save(new_redis: NewRedis) -> None:
    """And the store works again as soon as it is back, without being opened anew."""
    server: Any = new_redis(DURABLE)
    async with RedisBackend(server.store_url, max_connections=5) as store:
        await store.save("t", {"n": -1}, "first")
        server.kill()
        tried = [store.save("t", {"n": n}, f"c{n}") for n in range(20)]
        for error in await asyncio.gather(*tried, return_exceptions=True):
            assert isinstance(error, BackendUnavailableError)
        with pytest.raises(BackendUnavailableError):
            await store.load("t")
        server.start()
        assert await store.list_checkpoints("t") == ["first"]
        await store.save("t", {"n": 20}, "c20")
        assert await store.load("t", "first") == {"n": -1}
