"""What goes wrong on Oracle only, over the stand-in: empty values, long ones, and LOBs."""

from __future__ import annotations

import os

from oracle.oracle_standin import JOURNAL
from store_fixtures import only

pytestmark = only("oracle-standin")

TEXTS = ["", "é" * 2500, "x" * 4001, "y" * 32_768, "z" * 200_000, "\N{GRINNING FACE}" * 1000]
VALUES = [*TEXTS, *[text.encode() for text in TEXTS], b"\0" * 5000]


async def test_case_15_every_size_comes_back_alone_and_in_one_batch(store, other):
    for i, value in enumerate(VALUES):
        await store.save(f"single {i}", {"value": value, "list": [value]})
        await store.save("grows", {"list": VALUES[: i + 1], "rest": value})
    await store.save("all", {"values": VALUES})
    records = {f"k{i}": {"value": value} for i, value in enumerate(VALUES)}
    await store.put_records("all", "s", records)
    assert await other.copy_thread("all", "copy")
    assert await other.copy_thread("grows", "grown")
    for i, value in enumerate(VALUES):
        assert await other.load(f"single {i}") == {"value": value, "list": [value]}
    for thread in ("all", "copy"):
        assert await other.load(thread) == {"values": VALUES}
        assert await other.records(thread, "s") == records
    for thread in ("grows", "grown"):
        found = [await other.load(thread, c) for c in await other.list_checkpoints(thread, None)]
        n = len(VALUES)
        assert found == [{"list": VALUES[:k], "rest": VALUES[k - 1]} for k in range(n, 0, -1)]


async def test_case_16_no_lob_is_handed_out_however_many_are_read(open_store):
    store = open_store(min_pool_size=1, max_pool_size=1)
    for i in range(250):
        await store.save("t", {"n": i, "text": "x" * 5000, "list": list(range(i))}, f"c{i}", {"k": i % 2})
    before = JOURNAL.lobs
    assert len(await store.list_checkpoints("t", None)) == 250
    assert len(await store.list_with_metadata(limit=None)) >= 1
    for i in range(250):
        found = await store.load("t", f"c{i}")
        assert (found["n"], found["list"]) == (i, list(range(i)))
    assert await store.copy_thread("t", "copy")
    assert JOURNAL.lobs == before


async def test_case_30_what_is_empty_is_found_and_stays_empty(store, other):
    await store.save("t", {"a": "", "b": b"", "": "", "n": None}, "c", {"note": "", "": "x"})
    await store.save("none", {"a": None}, "d", {"note": None})
    await store.put_records("t", "s", {"k": ""})
    assert await other.load("t") == {"a": "", "b": b"", "": "", "n": None}
    assert (await other.get_metadata("t"))["metadata"] == {"note": "", "": "x"}
    assert await other.records("t", "s") == {"k": ""}
    assert [found["thread_id"] for found in await other.query_by_metadata({"note": ""})] == ["t"]
    assert [found["thread_id"] for found in await other.query_by_metadata({"note": None})] == ["none"]
    assert [found["thread_id"] for found in await other.query_by_metadata({"": "x"})] == ["t"]


async def test_the_statements_of_a_life_are_seen_and_checked(store, open_store):
    other = open_store(keep_checkpoints=20)
    before = set(JOURNAL.seen)
    JOURNAL.seen.clear()
    for i in range(55):
        await store.save("t", {"list": list(range(i)), "n": i}, f"c{i}", {"k": i % 3, "note": "x"})
        await store.save("u", {"list": list(range(i)), "n": i}, metadata={"k": i % 3})
        await store.save("v", {"n": i})
    await store.save("t", {"n": 0}, "c3", if_exists="in_place")
    await store.save("u", {"text": "x" * 40_000, "list": ["y" * 40_000]})
    await other.save("t", {"text": "x" * 40_000, "list": ["y" * 40_000]})
    await store.put_records("t", "s", {"k": 1})
    await store.records("t", "s")
    await other.load("t")
    await other.load("t", "c50")
    await other.list_threads(pattern="t*x?")
    await other.list_threads(pattern="t*", limit=5, offset=1)
    await other.query_by_metadata({"k": 1, "note": "x"})
    await other.list_with_metadata()
    await other.history("t")
    await other.copy_thread("t", "copy")
    await other.delete("t", "c50")
    await other.vacuum(older_than_days=0, keep_last=2)
    await other.delete("t")
    seen = set(JOURNAL.seen)
    assert len(seen) >= 40
    assert sum(sql.startswith("DECLARE") for sql in seen) >= 3
    assert {kind for types in JOURNAL.seen.values() for row in types for kind in row} >= {"str", "int", "bytes"}
    assert JOURNAL.wrong == []
    JOURNAL.seen |= {sql: set() for sql in before - seen}


async def test_a_small_save_is_one_round_trip_and_a_large_one_three_at_most(store):
    line = [{"content": str(i) * 50} for i in range(60)]
    await store.save("t", {"list": line})
    # Such that no compression makes it small.
    entry = os.urandom(60_000).hex()
    for document, trips in (({"list": [*line, 1]}, {1}), ({"list": [*line, 1, entry], "rest": entry[::-1]}, {2, 3})):
        before = JOURNAL.calls
        await store.save("t", document, metadata={"k": 1})
        assert JOURNAL.calls - before in trips
        before = JOURNAL.calls
        assert await store.load("t") == document
        assert JOURNAL.calls - before == 1
