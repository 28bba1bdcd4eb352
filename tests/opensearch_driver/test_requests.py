"""How many requests a call takes, and that saves force no refresh."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from opensearch_driver.conftest import OpenIndex
from opensearch_driver.relay import Relay


def document(n: int) -> dict[str, Any]:
    return {"messages": [{"content": f"message {i} " * 40} for i in range(n)]}


async def requests(relay: Relay, call: Callable[[], Awaitable[Any]]) -> list[str]:
    """What a call sends: the last part of each path."""
    before = len(relay.requests)
    await call()
    return [request.path.split("?")[0].split("/")[2] for request in relay.requests[before:]]


async def test_a_save_is_two_requests_and_a_load_is_two(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index(relay)
    await store.setup()
    assert await requests(relay, lambda: store.save("t", document(1))) == ["_doc", "_bulk", "_bulk"]
    for n in range(2, 60):
        assert await requests(relay, lambda n=n: store.save("t", document(n))) == ["_bulk", "_bulk"]  # type: ignore[misc]
    other = open_index(relay)
    await other.setup()
    assert await requests(relay, lambda: other.load("t")) == ["_doc", "_mget"]
    assert await requests(relay, lambda: other.exists("t")) == ["_doc"]
    assert await requests(relay, lambda: other.list_checkpoints("t")) == ["_doc", "_mget"]
    first = (await other.list_checkpoints("t", None))[-1]
    assert await requests(relay, lambda: other.load("t", first)) == ["_mget", "_mget"]
    assert await requests(relay, lambda: other.load("t", "nobody")) == ["_mget"]


async def test_a_load_reads_the_blocks_that_it_needs(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index()
    for n in range(30):
        await store.save("t", document(n))
    await store.save("t", {"messages": [{"content": "alone " * 100}]})
    reader = open_index(relay)
    await reader.load("t")
    assert relay.requests[-1].body.count(b"_id") == 1


async def test_case_57_a_hundred_saves_at_once_force_no_refresh(open_index: OpenIndex, relay: Relay) -> None:
    store, other = open_index(relay), open_index(relay)
    ids = await asyncio.gather(*[store.save(f"t{i % 10}", {"n": i}, metadata={"n": i}) for i in range(100)])
    assert relay.count("_refresh") == 0
    for i in range(10):
        assert await other.exists(f"t{i}")
        assert len(await other.list_checkpoints(f"t{i}", None)) == 10
    assert await other.load("t7", ids[7]) == {"n": 7}
    assert relay.count("_refresh") == 0
    assert len(await other.list_threads()) == 10
    assert relay.count("_refresh") == 1


async def test_case_57_who_searches_at_the_same_time_shares_a_refresh(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index(relay)
    await store.save("t", {"n": 1}, metadata={"k": 1})
    found = await asyncio.gather(*[store.query_by_metadata({"k": 1}) for _ in range(50)])
    assert [len(rows) for rows in found] == [1] * 50
    assert relay.count("_refresh") <= 10


async def test_case_57_what_was_saved_is_seen_at_once(open_index: OpenIndex) -> None:
    store, other = open_index(), open_index()
    for i in range(20):
        await store.save(f"t{i}", {"messages": [f"needle{i}"]}, metadata={"i": i})
        assert (await other.list_threads())[0] == f"t{i}"
        assert [row["thread_id"] for row in await other.query_by_metadata({"i": i})] == [f"t{i}"]
        assert [row["thread_id"] for row in await other.query_by_metadata({"i": i}, versions="all")] == [f"t{i}"]
        assert [hit["thread_id"] for hit in await other.search(f"needle{i}")] == [f"t{i}"]
        assert await other.exists(f"t{i}")
    for i in range(20):
        assert await other.delete(f"t{i}") is True
        assert f"t{i}" not in await store.list_threads()
        assert await store.query_by_metadata({"i": i}) == []
        assert await store.search(f"needle{i}") == []


async def test_deleting_a_thread_needs_no_refresh(open_index: OpenIndex, relay: Relay, server: Any, index: str) -> None:
    store = open_index(relay)
    for n in range(5):
        await store.save("t", document(n), f"c{n}")
    assert await store.delete("t")
    assert relay.count("_refresh") == 0
    assert server.documents(index) == []
