"""The index: made once, with a mapping that nothing from outside can change, and known again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opensearch_driver.conftest import OpenIndex
from opensearch_driver.relay import Relay, error
from opensearch_servers import Double

from locus_store import SchemaAheadError, SchemaNotReadyError
from locus_store.backends.opensearch.index import FORMAT, MAPPING


def mapping(server: Double, index: str) -> Any:
    return server.request("GET", f"/{index}/_mapping")[index]["mappings"]


async def test_a_thousand_keys_and_keys_that_change_their_type_change_nothing(
    open_index: OpenIndex, server: Double, index: str
) -> None:
    store = open_index()
    await store.setup()
    before = mapping(server, index)
    many = {f"key {i}.with.dots": i for i in range(1200)}
    await store.save("many", {}, metadata=many)
    values: list[Any] = [1, "1", True, None, 1.5, [1, "a"], {"x": 1}, {"x": {"y": "2026-01-01"}}, "2026-01-01", b"raw"]
    for i, value in enumerate(values):
        await store.save(f"t{i}", {"a": value}, metadata={"changing": value, "": i, "_id": i, "$": value})
    assert mapping(server, index) == before
    assert set(before["properties"]) == set(MAPPING["properties"])
    assert (await store.get_metadata("many") or {})["metadata"] == many
    assert [r["thread_id"] for r in await store.query_by_metadata({"key 1199.with.dots": 1199})] == ["many"]
    for i, value in enumerate(values):
        if not isinstance(value, list | dict):
            assert f"t{i}" in [r["thread_id"] for r in await store.query_by_metadata({"changing": value})]
            assert [r["thread_id"] for r in await store.query_by_metadata({"": i})] == [f"t{i}"]


async def test_nobody_else_can_add_a_field(open_index: OpenIndex, server: Double, index: str) -> None:
    await open_index().setup()
    with pytest.raises(Exception, match="strict_dynamic_mapping_exception"):
        server.request("POST", f"/{index}/_doc", {"more": 1})
    # An index that comes up by itself has the mapping, too.
    server.request("DELETE", f"/{index}")
    server.request("PUT", f"/{index}/_doc/x", {"kind": "x"})
    assert mapping(server, index)["dynamic"] == "strict"


async def test_ten_at_once_meet_no_index(open_index: OpenIndex) -> None:
    stores = [open_index() for _ in range(10)]
    await asyncio.gather(*[store.save("t", {"n": i}, f"c{i}") for i, store in enumerate(stores)])
    assert len(await stores[0].list_checkpoints("t", None)) == 10


async def test_an_index_that_is_missing_and_may_not_be_made(open_index: OpenIndex, index: str) -> None:
    store = open_index(create_schema=False)
    for call in (store.setup, lambda: store.load("t"), lambda: store.save("t", {})):
        with pytest.raises(SchemaNotReadyError, match=rf"make the index '{index}' by setup\(\)"):
            await call()
    await open_index().setup()
    await store.save("t", {"n": 1})
    assert await store.load("t") == {"n": 1}


async def test_somebody_elses_index_is_left_alone(open_index: OpenIndex, server: Double, index: str) -> None:
    server.request("PUT", f"/{index}/_doc/1", {"theirs": 1})
    with pytest.raises(SchemaNotReadyError, match="was not made by this package"):
        await open_index().save("t", {})
    assert len(server.documents(index)) == 1


async def test_an_index_of_a_newer_release(open_index: OpenIndex, server: Double, index: str) -> None:
    newer = {**MAPPING, "_meta": {"locus_store": {"format": FORMAT + 1}}}
    server.request("PUT", f"/{index}", {"mappings": newer})
    with pytest.raises(SchemaAheadError, match="upgrade the package"):
        await open_index().load("t")


async def test_who_may_not_make_templates_makes_the_index(
    open_index: OpenIndex, relay: Relay, server: Double, index: str
) -> None:
    relay.rule = lambda request: error(403, "security_exception") if "_index_template" in request.path else None
    await open_index(relay).save("t", {"n": 1})
    assert mapping(server, index)["dynamic"] == "strict"


async def test_payloads_are_in_no_index(open_index: OpenIndex, server: Double, index: str) -> None:
    await open_index().save("t", {"secret": "needle " * 100}, metadata={"m": "needle"})
    fields = mapping(server, index)["properties"]
    assert fields["body"] == fields["data"] == {"type": "object", "enabled": False}
    query = {"query": {"multi_match": {"query": "needle", "fields": ["body.*", "data.*"], "lenient": True}}}
    assert server.request("POST", f"/{index}/_search", query)["hits"]["hits"] == []


async def test_ids_of_documents_tell_nothing_and_are_short(open_index: OpenIndex, server: Double, index: str) -> None:
    store = open_index()
    thread, checkpoint = "会" * 170, "é" * 256
    for i in range(2):
        await store.save(thread, {"n": i}, checkpoint if i == 0 else None)
    await store.put_records(thread, checkpoint, {checkpoint: 1})
    found = [one["_id"] for one in server.documents(index)]
    assert len(found) == 6
    assert all(one.isascii() and len(one) <= 80 for one in found)
    assert await store.load(thread, checkpoint) == {"n": 0}
