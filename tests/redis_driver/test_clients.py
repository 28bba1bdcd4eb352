"""Clients: handed in or made here, in one event loop after another, cancelled, forgotten, cut off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_package
from redis.asyncio import Redis
from redis_driver.conftest import Open
from redis_servers import RedisServer, wait_for

from locus_store import RedisBackend, RedisCheckpointer

NewRedis = Callable[..., RedisServer]

STRANGE = {"text": "é\x00\ud800", "bytes": b"\xff\x00\r\n$5", "n": 2**70, "list": [f"{i}é" * 100 for i in range(20)]}


async def tour(store: RedisBackend) -> None:
    """Calls whose replies have text and bytes in them."""
    thread = "thread {é}*\n"
    first = await store.save(thread, STRANGE, "é1", metadata={"k é": "v"})
    await store.save(thread, {**STRANGE, "list": [*STRANGE["list"], "more" * 100]})
    assert await store.load(thread, first) == STRANGE
    assert (await store.list_checkpoints(thread))[1] == "é1"
    assert await store.list_threads() == [thread]
    assert [row["checkpoint_id"] for row in await store.query_by_metadata("k é", "v", versions="all")] == ["é1"]
    await store.put_records(thread, "scope é", {"key é": b"\xff"})
    assert await store.records(thread, "scope é") == {"key é": b"\xff"}
    assert await store.copy_thread(thread, "copy é")
    assert await store.load("copy é", "é1") == STRANGE
    assert await store.delete(thread, "é1")
    assert await store.vacuum() == 0
    assert await store.delete("copy é")
    assert await store.delete(thread)
    assert await store.list_threads() == []


# --------------------------------------------------------------------------------------------------------- handed in


@pytest.mark.parametrize(
    "options",
    [
        {"decode_responses": True},
        {"protocol": 3},
        {"protocol": 3, "decode_responses": True},
        {"encoding": "latin-1", "decode_responses": True},
        {"single_connection_client": True},
    ],
    ids=str,
)
async def test_a_client_of_any_kind_is_used_and_never_closed(
    options: dict[str, Any], open_store: Open, redis_server: RedisServer
) -> None:
    client = Redis.from_url(redis_server.store_url, **options)
    store = open_store(client=client)
    await tour(store)
    await store.close()
    await tour(store)
    await store.close()
    assert "the client that was handed in" in repr(store)
    del store
    gc.collect()
    await asyncio.sleep(0)
    assert await client.ping()
    assert client.connection_pool._available_connections or client.connection is not None
    await client.aclose()


@pytest.mark.parametrize("protocol", [2, 3])
async def test_protocols(protocol: int, open_store: Open, redis_server: RedisServer) -> None:
    await tour(open_store(f"{redis_server.store_url}?protocol={protocol}"))
    await tour(open_store(client_options={"protocol": protocol, "decode_responses": True}))


async def test_a_checkpointer_takes_a_client_too(redis_server: RedisServer, prefix: str) -> None:
    from locus_store import AgentState

    client = Redis.from_url(redis_server.store_url)
    async with RedisCheckpointer(client=client, prefix=prefix) as checkpointer:
        await checkpointer.save(AgentState(agent_id="a"), "t")
        assert (await checkpointer.load("t")).agent_id == "a"
    assert await client.ping()
    await client.aclose()


def test_what_is_no_client() -> None:
    for other in (redis_package.Redis(), "redis://h", object()):
        with pytest.raises(TypeError, match=r"redis\.asyncio\.Redis"):
            RedisBackend(client=other)  # type: ignore[arg-type]
    client = Redis()
    with pytest.raises(ValueError, match="not both"):
        RedisBackend("redis://h", client=client)
    for options in ({"db": 1}, {"timeout": 1.0}, {"client_options": {"client_name": "me"}}):
        with pytest.raises(ValueError, match="client that is passed"):
            RedisBackend(client=client, **options)


def test_options_that_the_client_does_not_know() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        RedisBackend(client_options={"nonsense": 1})
    with pytest.raises(ValueError, match="max_connections"):
        RedisBackend(max_connections=0)


async def test_a_small_pool_that_was_handed_in_is_enough_if_its_size_is_told(
    open_store: Open, redis_server: RedisServer
) -> None:
    client = Redis.from_url(redis_server.store_url, max_connections=2)
    store = open_store(client=client, max_connections=2)
    await asyncio.gather(*[store.save(f"t{i}", {"a": i}) for i in range(50)])
    assert len(await store.list_threads()) == 50
    await client.aclose()


# -------------------------------------------------------------------------------------------------------- event loops


@pytest.mark.parametrize("closing", [True, False])
def test_one_store_in_three_event_loops(redis_server: RedisServer, prefix: str, closing: bool) -> None:
    before = redis_server.clients()
    store = RedisBackend(redis_server.store_url, prefix)

    async def run(i: int) -> None:
        await store.save("t", {"i": i}, f"c{i}")
        assert await store.load("t") == {"i": i}
        if closing:
            await store.close()

    for i in range(3):
        asyncio.run(run(i))
        wait_for(lambda: redis_server.clients() == before, "connections stay open")
    assert asyncio.run(store.list_checkpoints("t")) == ["c2", "c1", "c0"]


def test_a_program_that_forgets_to_close_ends_quietly(redis_server: RedisServer, prefix: str) -> None:
    program = f"""
import asyncio, locus_store
store = locus_store.RedisBackend({redis_server.store_url!r}, {prefix!r})
async def main():
    # The debug mode tells which steps took long, as any may on a busy machine.
    asyncio.get_running_loop().slow_callback_duration = 60
    await asyncio.gather(*[store.save(f"t{{i}}", {{"a": i}}) for i in range(10)])
    print(len(await store.list_threads()))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("10\n", "", 0)


async def test_a_store_that_is_dropped_lets_its_connections_go(redis_server: RedisServer, prefix: str) -> None:
    before = redis_server.clients()
    store = RedisBackend(redis_server.store_url, prefix)
    await store.save("t", {"a": 1})
    assert redis_server.clients() == before + 1
    del store
    gc.collect()
    async with asyncio.timeout(30):
        while redis_server.clients() != before:
            await asyncio.sleep(0.01)


# ------------------------------------------------------------------------------------------- cancelled, cut off, restarted


async def test_200_cancelled_saves_leave_a_pool_of_one_as_it_was(open_store: Open, redis_server: RedisServer) -> None:
    store = open_store(max_connections=1)
    await store.save("t", {"i": -1}, "first")
    before = redis_server.clients()
    saved = ["first"]
    for i in range(200):
        task = asyncio.create_task(store.save("t", {"i": i, "a": f"{i}" + "x" * 20_000}, f"c{i}"))
        for _ in range(i % 12):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            saved.append(await task)
    await store.save("t", {"i": "last"}, "last")
    assert redis_server.clients() == before
    listed = await store.list_checkpoints("t", limit=None)
    assert listed[0] == "last"
    assert set(saved) <= set(listed)
    for checkpoint_id in listed:  # whole, or not there
        document = await store.load("t", checkpoint_id)
        assert document is not None
        if checkpoint_id.startswith("c"):
            i = int(checkpoint_id[1:])
            assert document == {"i": i, "a": f"{i}" + "x" * 20_000}
    assert redis_server.clients() == before


async def test_no_reply_reaches_another_call_after_a_cancellation(open_store: Open) -> None:
    store = open_store(max_connections=2)
    for i in range(20):
        await store.save(f"t{i}", {"i": i, "a": "x" * 5000})
    for i in range(100):
        task = asyncio.create_task(store.load(f"t{i % 20}"))
        for _ in range(i % 9):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        loaded = await asyncio.gather(*[store.load(f"t{n}") for n in range(3)])
        assert [document and document["i"] for document in loaded] == [0, 1, 2]


async def test_the_first_call_after_all_connections_were_ended(open_store: Open, redis_server: RedisServer) -> None:
    store = open_store()
    await store.save("t", {"a": 1}, "c")
    for call in (
        lambda: store.load("t"),
        lambda: store.save("t", {"a": 2}),
        lambda: store.copy_thread("t", "u"),
        lambda: store.delete("t", "c"),
        lambda: store.delete_records("t"),
        lambda: store.delete("t"),
    ):
        redis_server.throw_out()
        await call()
    assert await store.list_threads() == ["u"]


async def test_a_server_that_was_started_again_gets_the_scripts_again(new_redis: NewRedis) -> None:
    server: Any = new_redis({"appendonly": "yes", "appendfsync": "always"})
    async with RedisBackend(server.store_url) as store:
        await store.save("t", {"a": 1})
        server.kill()
        server.start()
        await store.save("t", {"a": 2})
        assert await store.load("t") == {"a": 2}
        assert len(await store.list_checkpoints("t")) == 2


async def test_a_save_whose_answer_was_lost_is_not_made_twice(open_store: Open, redis_server: RedisServer) -> None:
    """The connection ends when the server has done its work, and before the answer is read."""

    class LosingClient(Redis):
        lose = 0

        async def execute_command(self, *args: Any, **options: Any) -> Any:
            reply = await super().execute_command(*args, **options)
            if self.lose:
                self.lose -= 1
                raise redis_package.exceptions.ConnectionError("lost")
            return reply

    client = LosingClient(port=redis_server.port)
    store = open_store(client=client)
    await store.save("t", {"a": 0})
    for i in range(1, 4):
        client.lose = i
        await store.save("t", {"a": i}, metadata={"i": i})
        assert len(await store.list_checkpoints("t")) == i + 1
    assert await store.load("t") == {"a": 3}
    await client.aclose()


async def test_closing_waits_for_calls_and_leaves_no_connection(open_store: Open, redis_server: RedisServer) -> None:
    before = redis_server.clients()
    store = open_store(max_connections=3)
    for _ in range(5):
        saves = [asyncio.create_task(store.save("t", {"n": "x" * 10_000})) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*saves)) == 20
    await store.close()
    async with asyncio.timeout(30):
        while redis_server.clients() != before:
            await asyncio.sleep(0.01)
