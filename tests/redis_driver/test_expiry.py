"""A thread expires as one, and is renewed as one: by a save, and by a load if that was asked for."""

from __future__ import annotations

import pytest
from redis_driver.conftest import CountingClient, Open
from redis_servers import RedisServer

from locus_store import open_backend

HOUR = 3_600_000_000
MANY = {"messages": [f"{i} " + "x" * 300 for i in range(5)]}


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ends(server: RedisServer, prefix: str) -> dict[str, int]:
    """When the thread's keys expire, by the last letter of their names, in milliseconds; -1 for never."""
    tag = f"{prefix}{{default:t}}"
    found = {name: server.command("PEXPIRETIME", f"{tag}:{name}") for name in "hvr"}
    return {name: time for name, time in found.items() if time != -2}


async def test_all_keys_of_a_thread_expire_at_one_moment(
    open_store: Open, redis_server: RedisServer, prefix: str
) -> None:
    store = open_store(ttl_seconds=3600)
    await store.save("t", MANY, metadata={"a": 1})
    await store.put_records("t", "scope", {"k": b"v"})
    await store.save("t", {**MANY, "b": 1})
    first = ends(redis_server, prefix)
    assert set(first) == {"h", "v", "r"}
    assert len(set(first.values())) == 1
    assert min(first.values()) > 0
    await open_store().save("t", {"a": 1})
    assert set(ends(redis_server, prefix).values()) == {-1}


async def test_a_save_renews_and_a_load_does_not(open_store: Open, clock: Clock) -> None:
    store = open_store(ttl_seconds=3600, clock=clock)
    await store.save("t", MANY, "a")
    clock.now += HOUR // 2
    await store.save("t", MANY, "b")
    clock.now += HOUR - 10
    assert await store.load("t", "a") == await store.load("t") == MANY
    clock.now += 20
    assert await store.load("t") is None
    assert await store.list_threads() == []
    assert await store.query_by_metadata({}) == []


async def test_a_load_renews_if_that_was_asked_for(
    open_store: Open, clock: Clock, redis_server: RedisServer, prefix: str
) -> None:
    store = open_store(ttl_seconds=3600, renew_on_load=True, clock=clock)
    await store.save("t", MANY, "a")
    await store.save("t", MANY, "b")
    before = ends(redis_server, prefix)
    for checkpoint_id in (None, "a", None, "b"):
        clock.now += HOUR - 10
        assert await store.load("t", checkpoint_id) == MANY
    after = ends(redis_server, prefix)
    assert len(set(after.values())) == 1
    assert min(after.values()) >= max(before.values())
    # What is no load renews nothing.
    clock.now += HOUR - 10
    assert await store.exists("t")
    assert await store.list_checkpoints("t") == ["b", "a"]
    assert await store.load("t", "missing") is None
    assert await store.get_metadata("t")
    clock.now += 20
    assert await store.load("t") is None
    assert await store.list_threads() == []


async def test_a_load_neither_shortens_a_life_nor_gives_an_end_to_one_that_has_none(
    open_store: Open, clock: Clock, redis_server: RedisServer, prefix: str
) -> None:
    short = open_store(ttl_seconds=60, renew_on_load=True, clock=clock)
    await open_store(clock=clock).save("t", MANY)
    assert await short.load("t") == MANY
    assert set(ends(redis_server, prefix).values()) == {-1}
    await open_store(ttl_seconds=3600, clock=clock).save("t", MANY)
    before = ends(redis_server, prefix)
    assert await short.load("t") == MANY
    assert ends(redis_server, prefix) == before
    clock.now += HOUR - 10
    assert await short.load("t") == MANY


async def test_a_renewing_load_is_one_round_trip(open_store: Open, counting: CountingClient) -> None:
    store = open_store(client=counting, ttl_seconds=60, renew_on_load=True)
    await store.save("t", MANY)
    await store.load("t")
    counting.names()
    await store.load("t")
    assert counting.names() == ["EVALSHA"]


async def test_what_has_expired_is_made_anew(open_store: Open, clock: Clock) -> None:
    store = open_store(ttl_seconds=1, clock=clock)
    await store.save("t", MANY, "old", metadata={"a": 1})
    clock.now += 2_000_000
    await store.save("t", {"a": 1}, "new", expected_version=0)
    assert await store.list_checkpoints("t") == ["new"]
    assert await store.query_by_metadata("a", 1) == []
    clock.now += 2_000_000
    assert await store.vacuum() == 1
    assert await store.list_threads() == []


def test_it_can_be_asked_for_in_a_url() -> None:
    open_backend("redis://h?ttl_seconds=5&renew_on_load=yes")
    with pytest.raises(ValueError, match="renew_on_load has no meaning without ttl_seconds"):
        open_backend("redis://h?renew_on_load=yes")
