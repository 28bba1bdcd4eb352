"""Fifty small blocks become one field, and nothing else changes by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis_driver.conftest import CountingClient, Open
from redis_servers import RedisServer

from locus_store import CorruptCheckpointError, RedisBackend, ZlibCodec
from locus_store.backends.redis.joining import Joiner, fields

MESSAGES = [{"role": "user", "content": f"{n} " + "word " * 60} for n in range(120)]


def document(count: int) -> dict[str, Any]:
    return {"messages": MESSAGES[:count], "count": count}


async def fill(store: RedisBackend, count: int = 120, thread: str = "t", *, start: int = 0) -> None:
    for number in range(start + 1, count + 1):
        await store.save(thread, document(number), f"c{number}")


def blocks(server: RedisServer, prefix: str, thread: str = "t") -> list[str]:
    """The fields with blocks."""
    names = [name.decode() for name in server.command("HKEYS", f"{prefix}{{default:{thread}}}:h")]
    found = [name for name in names if name[0] in "bj" and name[1:].isdigit()]
    return sorted(found, key=lambda name: (int(name[1:]), name))


@pytest.fixture
async def store(open_store: Open) -> RedisBackend:
    return open_store()


async def test_every_fiftieth_block_joins_those_before_it(
    store: RedisBackend, redis_server: RedisServer, prefix: str
) -> None:
    await fill(store)
    assert blocks(redis_server, prefix) == ["j50", "j100", *[f"b{n}" for n in range(101, 121)]]
    reader = RedisBackend(redis_server.store_url, prefix)
    for number in (1, 2, 49, 50, 51, 99, 100, 101, 120):
        assert await reader.load("t", f"c{number}") == document(number)
    await reader.close()
    # What is remembered is not what was changed: the next saves add one block each.
    await fill(store, 1, "u")
    await store.save("t", document(120) | {"more": MESSAGES}, "after")
    assert (await store.load("t"))["more"] == MESSAGES
    assert blocks(redis_server, prefix)[-1] == "b121"


async def test_joining_is_two_more_calls_of_the_fiftieth_save(
    store: RedisBackend, counting: CountingClient, open_store: Open
) -> None:
    other = open_store(client=counting)
    await fill(other, 49)
    counting.names()
    await other.save("t", document(50))
    assert [name for name in counting.names() if name != "EVAL"] == ["EVALSHA"] * 3
    await other.save("t", document(51))
    assert counting.names() == ["EVALSHA"]
    await other.load("t")
    assert [name for name in counting.names() if name != "EVAL"] == ["EVALSHA"]


async def test_large_blocks_stay_by_themselves(store: RedisBackend, redis_server: RedisServer, prefix: str) -> None:
    large = {"role": "tool", "content": "x" * 70_000}
    await fill(store, 30)
    messages = [*MESSAGES[:30], large]
    for _ in range(30):
        messages = [*messages, MESSAGES[len(messages)]]
        await store.save("t", {"messages": messages})
    assert blocks(redis_server, prefix) == [f"b{n}" for n in range(1, 61)]
    assert await store.load("t") == {"messages": messages}


async def test_a_damaged_block_is_not_joined_and_harms_only_those_who_need_it(
    store: RedisBackend, redis_server: RedisServer, prefix: str
) -> None:
    await fill(store, 49)
    redis_server.command("HSET", f"{prefix}{{default:t}}:h", "b40", b"40 1 j - 1:1 2 00000000\n{}")
    await fill(store, 60, start=49)
    assert "j50" not in blocks(redis_server, prefix)
    reader = RedisBackend(redis_server.store_url, prefix)
    assert await reader.load("t", "c39") == document(39)
    with pytest.raises(CorruptCheckpointError):
        await reader.load("t", "c60")
    await reader.close()


async def test_a_damaged_joined_block_is_found_out(store: RedisBackend, redis_server: RedisServer, prefix: str) -> None:
    await fill(store, 50)
    key = f"{prefix}{{default:t}}:h"
    joined = redis_server.command("HGET", key, "j50")
    redis_server.command("HSET", key, "j50", joined.replace(b"word", b"work", 1))
    reader = RedisBackend(redis_server.store_url, prefix)
    with pytest.raises(CorruptCheckpointError):
        await reader.load("t")
    await reader.close()


async def test_what_goes_is_taken_out_of_joined_blocks(
    store: RedisBackend, redis_server: RedisServer, prefix: str
) -> None:
    await fill(store)
    # Another branch: what only it has goes with it, from the middle of what was joined.
    await store.save("t", {"messages": [*MESSAGES[:20], {"role": "user", "content": "secret " * 50}]}, "branch")
    await fill(store, 150, start=120)
    key = f"{prefix}{{default:t}}:h"
    await store.delete("t", "branch")
    for number in range(1, 119, 7):
        await store.delete("t", f"c{number}")
    everything = b"".join(redis_server.command("HVALS", key))
    assert b"secret" not in everything
    assert await store.load("t", "c120") == document(120)
    for number in range(2, 121):
        if (number - 1) % 7:
            assert await store.load("t", f"c{number}") == document(number)
    assert await store.delete("t")
    assert redis_server.command("EXISTS", key) == 0


async def test_joined_blocks_that_nobody_needs_go_whole(
    store: RedisBackend, redis_server: RedisServer, prefix: str
) -> None:
    await fill(store, 60)
    await store.save("t", {"messages": [{"role": "user", "content": "new " * 100}]}, "fresh")
    for number in range(1, 61):
        await store.delete("t", f"c{number}")
    assert blocks(redis_server, prefix) == ["b61"]
    assert (await store.load("t"))["messages"][0]["content"] == "new " * 100


async def test_a_part_of_what_was_joined_goes_and_the_rest_is_read(
    store: RedisBackend, redis_server: RedisServer, prefix: str
) -> None:
    await fill(store, 30)
    for number in range(31, 51):
        await store.save(
            "t", {"messages": [{"role": "user", "content": f"lonely {number} " + "x " * 200}]}, f"l{number}"
        )
    assert blocks(redis_server, prefix) == ["j50"]
    for number in range(31, 51):
        await store.delete("t", f"l{number}")
    assert blocks(redis_server, prefix) == ["j50"]
    assert b"lonely" not in redis_server.command("HGET", f"{prefix}{{default:t}}:h", "j50")
    reader = RedisBackend(redis_server.store_url, prefix)
    assert await reader.load("t") == document(30)
    await reader.close()


async def test_copies_have_joined_blocks_and_grow_on(
    store: RedisBackend, redis_server: RedisServer, prefix: str
) -> None:
    await fill(store)
    await store.copy_thread("t", "whole")
    await store.copy_thread("t", "part", upto="c70")
    assert blocks(redis_server, prefix, "whole") == blocks(redis_server, prefix)
    assert blocks(redis_server, prefix, "part") == ["j50", "j100"]
    assert await store.load("whole") == document(120)
    assert await store.load("part") == document(70)
    assert b"75 word" not in redis_server.command("HGET", f"{prefix}{{default:part}}:h", "j100")
    await fill(store, 120, "part", start=70)
    for number in (1, 50, 70, 71, 99, 120):
        assert await store.load("part", f"c{number}") == document(number)


async def test_what_goes_through_a_codec_is_joined_too(
    open_store: Open, redis_server: RedisServer, prefix: str
) -> None:
    store = open_store(codec=ZlibCodec())
    await fill(store, 110)
    assert blocks(redis_server, prefix)[:2] == ["j50", "j100"]
    reader = RedisBackend(redis_server.store_url, prefix, codec=ZlibCodec())
    assert await reader.load("t", "c75") == document(75)
    assert await reader.load("t") == document(110)
    await reader.close()


async def test_a_removal_that_was_planned_before_blocks_were_joined_is_planned_again(
    store: RedisBackend, redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would write a block by itself that is joined already, and every load would find it twice."""
    with monkeypatch.context() as patch:
        patch.setattr(Joiner, "_join", _nothing)
        await fill(store, 30)
        await store.save("t", {"messages": [*MESSAGES[:30], MESSAGES[50], MESSAGES[51]], "l": MESSAGES[:9]}, "two")
        await store.save("t", {"messages": [*MESSAGES[:30], MESSAGES[50]]}, "one")
        await fill(store, 60, start=30)
    assert "b31" in blocks(redis_server, prefix)
    driver: Any = store._driver
    run: Callable[..., Awaitable[Any]] = driver._server.run
    joined = 0

    async def joining_before(name: str, keys: Any, *arguments: Any, again: bool = True) -> Any:
        nonlocal joined
        if name == "drop" and not joined:
            joined += 1
            from locus_store.core.driver import Key

            await driver._joiner.after(Key("default", "t"), 50)
        return await run(name, keys, *arguments, again=again)

    monkeypatch.setattr(driver._server, "run", joining_before)
    assert await store.delete("t", "two")
    assert joined == 1
    assert blocks(redis_server, prefix)[0] == "j50"
    assert not {f"b{n}" for n in range(1, 51)} & set(blocks(redis_server, prefix))
    reader = RedisBackend(redis_server.store_url, prefix)
    assert await reader.load("t") == document(60)
    assert await reader.load("t", "one") == {"messages": [*MESSAGES[:30], MESSAGES[50]]}
    await reader.close()


async def test_joining_is_tried_again_where_something_was_removed_meanwhile(
    open_store: Open, redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    await fill(store, 49)
    driver: Any = store._driver
    run: Callable[..., Awaitable[Any]] = driver._server.run
    tried = 0

    async def removing_before(name: str, *arguments: Any, **options: Any) -> Any:
        nonlocal tried
        if name == "join":
            tried += 1
            if tried == 1:
                await other.delete("t", "c7")
        return await run(name, *arguments, **options)

    monkeypatch.setattr(driver._server, "run", removing_before)
    await store.save("t", document(50))
    assert tried == 2
    assert blocks(redis_server, prefix) == ["j50"]
    assert await other.load("t") == document(50)


async def test_many_writers_join_and_lose_nothing(open_store: Open, redis_server: RedisServer, prefix: str) -> None:
    stores = [open_store() for _ in range(4)]

    async def write(number: int) -> None:
        messages: list[Any] = []
        for step in range(30):
            messages = [*messages, {"role": "user", "content": f"{number} {step} " + "z " * 150}]
            await stores[number].save("t", {"messages": messages}, f"{number}-{step}")
            if step % 5 == 4:
                await stores[number].delete("t", f"{number}-{step - 3}")

    await asyncio.gather(*(write(number) for number in range(4)))
    assert {"j50", "j100"} & set(blocks(redis_server, prefix))
    reader = RedisBackend(redis_server.store_url, prefix)
    for number in range(4):
        for step in (0, 10, 20, 29):
            found = (await reader.load("t", f"{number}-{step}"))["messages"]
            assert [m["content"].split(" z")[0] for m in found] == [f"{number} {n}" for n in range(step + 1)]
    await reader.close()


async def test_a_save_stands_where_joining_fails(
    open_store: Open, redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    await fill(store, 49)
    driver: Any = store._driver
    run: Callable[..., Awaitable[Any]] = driver._server.run

    async def refusing(name: str, *arguments: Any, **options: Any) -> Any:
        from locus_store import BackendUnavailableError

        if name == "join":
            raise BackendUnavailableError("cut off")
        return await run(name, *arguments, **options)

    monkeypatch.setattr(driver._server, "run", refusing)
    await fill(store, 51, start=49)
    assert blocks(redis_server, prefix) == [f"b{n}" for n in range(1, 52)]
    assert await store.load("t") == document(51)


def test_the_fields_in_which_blocks_may_be() -> None:
    assert fields([]) == []
    assert fields([1, 50, 51, 200]) == ["j50", "b1", "b50", "j100", "b51", "j200", "b200"]


async def _nothing(*_: Any) -> bool:
    return True
