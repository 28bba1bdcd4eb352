"""How many commands the server gets, and which."""

from __future__ import annotations

from typing import Any

import pytest
from redis_driver.conftest import CountingClient, Open
from redis_servers import RedisServer

from locus_store import RedisBackend
from locus_store.backends.redis.server import script

LONG = {"messages": [f"{i} " + "x" * 300 for i in range(40)]}


@pytest.fixture
async def store(open_store: Open, counting: CountingClient) -> RedisBackend:
    """A store whose scripts the server knows, and that has saved to a thread before."""
    made = open_store(client=counting)
    await made.save("t", LONG, "first", metadata={"a": 1})
    for call in (made.load("t"), made.list_checkpoints("t"), made.list_threads(), made.query_by_metadata("a", 1)):
        await call
    counting.names()
    return made


async def test_a_save_is_one_script_call(store: RedisBackend, counting: CountingClient) -> None:
    messages = list(LONG["messages"])
    for i in range(5):
        messages.append(f"new {i}" + "x" * 300)
        await store.save("t", {"messages": messages}, metadata={"step": i})
        assert counting.names() == ["EVALSHA"]
    await store.save("another", {"messages": messages}, metadata={"step": 0}, expected_version=0)
    assert counting.names() == ["EVALSHA"]
    await store.save("small", {"a": 1})
    assert counting.names() == ["EVALSHA"]
    await store.save("t", {"messages": messages}, parent="first")
    assert counting.names() == ["EVALSHA"]


async def test_a_load_is_one_round_trip(store: RedisBackend, counting: CountingClient, open_store: Open) -> None:
    for i in range(250):
        await store.save("t", {"messages": [*LONG["messages"], *[f"{n}" + "y" * 300 for n in range(i)]]}, f"c{i}")
    counting.names()
    fresh = open_store(client=counting)
    for wanted in (None, "c100", "first", "missing"):
        await fresh.load("t", wanted)
        assert counting.names() == ["EVALSHA"]


async def test_listings_are_few_round_trips_and_read_no_payloads(store: RedisBackend, counting: CountingClient) -> None:
    for i in range(300):
        await store.save(f"thread {i}", {"a": "x" * 3000}, metadata={"kind": i % 2})
    counting.names()
    calls: dict[str, Any] = {
        "list_checkpoints": lambda: store.list_checkpoints("t"),
        "exists": lambda: store.exists("t"),
        "get_metadata": lambda: store.get_metadata("t", "first"),
        "list_threads": lambda: store.list_threads(),
        "a pattern": lambda: store.list_threads(pattern="thread 1*"),
        "query": lambda: store.query_by_metadata("kind", 1, limit=20),
    }
    seen = {}
    for name, call in calls.items():
        assert await call()
        seen[name] = counting.names()
    assert {command for commands in seen.values() for command in commands} == {"EVALSHA"}
    assert {name: len(commands) for name, commands in seen.items()} == {
        "list_checkpoints": 1,
        "exists": 1,
        "get_metadata": 1,
        "list_threads": 2,
        "a pattern": 2,
        "query": 2,
    }


async def test_keys_are_looked_for_only_to_sweep_or_to_make_the_index_anew(
    store: RedisBackend, counting: CountingClient, redis_server: RedisServer, prefix: str
) -> None:
    await store.copy_thread("t", "u")
    await store.save("t", LONG, "first")
    await store.delete("t", "first")
    await store.delete("u")
    assert "SCAN" not in (seen := counting.names())
    assert "KEYS" not in seen
    await store.vacuum()
    assert "SCAN" in (seen := counting.names())
    assert "KEYS" not in seen
    await store.save("t", LONG)
    redis_server.command("DEL", f"{prefix}{{default}}:i")
    assert await store.list_threads() == ["t"]
    assert "SCAN" in (seen := counting.names())
    assert "KEYS" not in seen


async def test_scripts_that_the_server_forgot_are_sent_again(
    store: RedisBackend, counting: CountingClient, redis_server: RedisServer
) -> None:
    redis_server.command("SCRIPT", "FLUSH")
    await store.save("t", {"a": 2})
    assert counting.names() == ["EVALSHA", "EVAL"]
    await store.save("t", {"a": 3})
    assert counting.names() == ["EVALSHA"]
    assert await store.load("t") == {"a": 3}
    assert counting.names() == ["EVALSHA", "EVAL"]


async def test_nothing_but_plain_commands_is_used() -> None:
    """No modules, no functions: what a script calls is in any Redis since 6."""
    from importlib.resources import files

    called = set()
    for path in (files("locus_store.backends.redis") / "lua").iterdir():
        text = path.read_text("ascii")
        called |= {part.split("'")[0] for part in text.split("call('")[1:]}
        assert script(path.name.removesuffix(".lua"))[0].endswith(text)
    assert called <= {
        *("DEL", "EXISTS", "GET", "HDEL", "HEXISTS", "HGET", "HINCRBY", "HKEYS", "HMGET", "HSET", "HSTRLEN"),
        *("PERSIST", "PEXPIRE", "PEXPIREAT", "RENAME", "SET", "SETNX", "TIME", "UNLINK", "ZADD", "ZCARD", "ZLEXCOUNT"),
        *("ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "ZREVRANGE", "ZREVRANGEBYSCORE", "ZSCORE"),
    }
