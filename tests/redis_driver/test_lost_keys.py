"""A server that evicts throws out single keys: what is left of a thread is told as damage, never as "no such thread"."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from redis_driver.conftest import Open
from redis_servers import RedisServer

from locus_store import CorruptCheckpointError, RedisBackend

Lose = Callable[[str], None]


@pytest.fixture
async def store(open_store: Open) -> RedisBackend:
    made = open_store()
    for i in range(3):
        await made.save("a b", {"n": i}, f"c{i}", metadata={"n": i})
    await made.put_records("a b", "s", {"x": 1, "y": 2})
    await made.save("whole", {"n": 0}, metadata={"n": 0})
    assert len(await made.query_by_metadata("n", 0, versions="all")) == 2  # from here on the index is known to be whole
    return made


@pytest.fixture
def lose(redis_server: RedisServer, prefix: str) -> Lose:
    """Has the server throw out a key of the thread."""

    def throw_out(kind: str) -> None:
        assert redis_server.command("UNLINK", f"{prefix}{{default:a%20b}}:{kind}") == 1

    return throw_out


def calls(store: RedisBackend) -> dict[str, Callable[[], Any]]:
    return {
        "load": lambda: store.load("a b"),
        "load one": lambda: store.load("a b", "c1"),
        "exists": lambda: store.exists("a b"),
        "list_checkpoints": lambda: store.list_checkpoints("a b"),
        "history": lambda: store.history("a b"),
        "save": lambda: store.save("a b", {"n": 9}),
        "save with an id": lambda: store.save("a b", {"n": 9}, "c1"),
        "delete one": lambda: store.delete("a b", "c1"),
        "copy_thread": lambda: store.copy_thread("a b", "c"),
        "query": lambda: store.query_by_metadata("n", 2, versions="all"),
    }


@pytest.mark.parametrize("kind", ["h", "v"])
async def test_every_call_says_so(store: RedisBackend, open_store: Open, lose: Lose, kind: str) -> None:
    lose(kind)
    for one in (store, open_store()):
        for name, call in calls(one).items():
            with pytest.raises(CorruptCheckpointError, match="has lost a part of this thread") as caught:
                await call()
            assert caught.value.thread_id == "a b", name
            assert caught.value.__cause__ is not None


@pytest.mark.parametrize("kind", ["h", "v"])
async def test_others_are_not_touched_and_it_can_be_deleted(
    store: RedisBackend, open_store: Open, lose: Lose, kind: str, redis_server: RedisServer, prefix: str
) -> None:
    lose(kind)
    assert sorted(await store.list_threads()) == ["a b", "whole"]
    await store.vacuum()
    assert sorted(await open_store().list_threads()) == ["a b", "whole"]
    assert await store.load("whole") == {"n": 0}
    assert await store.delete("a b")
    assert await store.list_threads() == ["whole"]
    assert not redis_server.command("EXISTS", *[f"{prefix}{{default:a%20b}}:{kind}" for kind in "hvr"])
    await store.save("a b", {"n": 3})
    assert await open_store().load("a b") == {"n": 3}
    assert await store.records("a b", "s") == {}


@pytest.mark.parametrize("kind", ["h", "v"])
async def test_a_copy_may_take_its_place(store: RedisBackend, lose: Lose, kind: str) -> None:
    lose(kind)
    assert await store.copy_thread("whole", "a b", overwrite=True)
    assert await store.load("a b") == {"n": 0}


async def test_records_are_not_taken_for_missing(store: RedisBackend, lose: Lose) -> None:
    lose("h")
    for call in (lambda: store.records("a b", "s"), lambda: store.put_records("a b", "s", {"z": 3})):
        with pytest.raises(CorruptCheckpointError, match="has lost a part of this thread"):
            await call()


async def test_the_names_of_records_are_found_anew(store: RedisBackend, open_store: Open, lose: Lose) -> None:
    lose("r")
    assert await open_store().records("a b", "s") == {"x": 1, "y": 2}
    assert await store.copy_thread("a b", "c")
    assert await store.records("c", "s") == {"x": 1, "y": 2}
    await store.put_records("a b", "s", {"z": 3})
    assert await store.records("a b", "s") == {"x": 1, "y": 2, "z": 3}
    lose("r")
    assert await store.delete_records("a b", "s") == 3
    assert await store.records("a b", "s") == {}
    await store.put_records("a b", "s", {"w": 4})
    assert await store.records("a b", "s") == {"w": 4}


async def test_a_server_that_evicts(new_redis: Callable[..., RedisServer]) -> None:
    """Whatever it throws out: each thread loads as it was saved last, is missing altogether, or is told as damaged."""
    server = new_redis({"maxmemory": "6mb", "maxmemory-policy": "allkeys-random"})
    saved: dict[str, dict[str, Any]] = {}
    damaged = missing = 0
    async with RedisBackend(server.store_url) as store:
        for i in range(400):
            name = f"t{i % 100}"
            document = {"i": i, "text": secrets.token_hex(10_000)}
            try:
                await store.save(name, document)
            except CorruptCheckpointError:
                assert await store.delete(name)
                await store.save(name, document)
            saved[name] = document
        for name, document in saved.items():
            try:
                found = await store.load(name)
            except CorruptCheckpointError:
                damaged += 1
            else:
                missing += found is None
                assert found in (None, document)
        assert damaged > 0
        assert missing + damaged < len(saved)
