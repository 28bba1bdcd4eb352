"""Prefixes and databases keep stores apart, whatever is in them."""

from __future__ import annotations

import pytest
from redis_driver.conftest import Open
from redis_servers import RedisServer

from locus_store import RedisBackend

PREFIXES = ["", "a", "a:", "a*", "a?", "[ab]", "a b", "a\\", "a\\*", "é\n", "^a-z", "x" * 300]
IDS = ["{a}b", "}", "{}", "*", "a:b", "a b", "[ab]", "?", "\\", "é", "%7B", "t", "..", "~x:h"]


@pytest.fixture
def database(redis_server: RedisServer) -> str:
    """A database of the server with nothing in it."""
    redis_server.command("FLUSHALL")
    return f"{redis_server.store_url}/7"


async def test_stores_with_different_prefixes_do_not_see_each_other(database: str) -> None:
    stores = [RedisBackend(database, prefix) for prefix in dict.fromkeys(PREFIXES)]
    for store in stores:
        for tenant in ("default", "a*", "de"):
            await store.tenant(tenant).save("t", {"prefix": repr(store)}, metadata={"a": 1})
    for store in stores:
        assert await store.load("t") == {"prefix": repr(store)}
        assert await store.list_threads() == ["t"]
        assert await store.vacuum(older_than_days=0) == 0
    for store in stores[1:]:
        for tenant in ("default", "a*", "de"):
            assert await store.tenant(tenant).delete("t")
    assert len(await stores[0].query_by_metadata("a", 1)) == 1
    assert len(await stores[0].tenant("a*").query_by_metadata("a", 1)) == 1
    for store in stores:
        await store.close()


@pytest.mark.parametrize("prefix", dict.fromkeys(PREFIXES))
async def test_an_index_is_made_anew_from_the_keys_of_its_store_only(
    prefix: str, database: str, redis_server: RedisServer
) -> None:
    async with RedisBackend(database, prefix) as store, RedisBackend(database, f"{prefix}x") as other:
        for name in IDS:
            await store.save(name, {"name": name}, metadata={"a": 1})
            await other.save(f"other {name}", {})
        with redis_server.client(db=7) as client:
            client.delete(f"{prefix}{{default}}:i", f"{prefix}{{default}}:m")
        assert sorted(await store.list_threads()) == sorted(IDS)
        assert len(await store.query_by_metadata("a", 1)) == len(IDS)
        for name in IDS:
            assert await store.load(name) == {"name": name}
            assert await store.delete(name)
        assert await store.list_threads() == []
        assert len(await other.list_threads()) == len(IDS)


async def test_braces_in_a_prefix_are_refused() -> None:
    for prefix in ("{", "}", "{a}"):
        with pytest.raises(ValueError, match="braces"):
            RedisBackend(prefix=prefix)
    with pytest.raises(TypeError, match="prefix must be a str"):
        RedisBackend(prefix=b"a")  # type: ignore[arg-type]


async def test_databases_are_apart(open_store: Open, redis_server: RedisServer) -> None:
    url = redis_server.store_url
    stores = [open_store(db=1), open_store(f"{url}/2"), open_store(f"{url}?db=3"), open_store(f"{url}/4", db=4)]
    for i, store in enumerate(stores):
        await store.save("t", {"i": i})
    assert [await store.load("t") for store in stores] == [{"i": i} for i in range(4)]
    assert await open_store().load("t") is None


async def test_nothing_is_left_of_a_thread_that_was_deleted(database: str, redis_server: RedisServer) -> None:
    async with RedisBackend(database, ttl_seconds=1000) as store:
        for i in range(3):
            await store.save("t", {"messages": ["x" * 300] * i}, metadata={"i": i})
        await store.put_records("t", "s", {"k": 1})
        await store.copy_thread("t", "u")
        assert await store.delete("t")
        assert await store.delete("u")
        assert not await store.delete("t")
        with redis_server.client(db=7) as client:
            assert client.keys() == []
