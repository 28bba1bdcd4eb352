"""Queries by metadata: one table of what matches what, the same on every backend."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from locus_store.core.errors import SerializationError

ROWS: dict[str, dict[Any, Any] | None] = {
    "none": None,
    "empty": {},
    "true": {"f": True},
    "true text": {"f": "true"},
    "false": {"f": False},
    "one": {"f": 1},
    "one float": {"f": 1.0},
    "one text": {"f": "1"},
    "null": {"f": None},
    "zero": {"f": 0},
    "empty text": {"f": ""},
    "half": {"f": 0.5},
    "minus zero": {"f": -0.0},
    "big": {"f": 2**70},
    "big beside": {"f": 2**70 + 1},
    "decimal": {"f": Decimal("1")},
    "bytes": {"f": b"1"},
    "upper": {"f": "A"},
    "lower": {"f": "a"},
    "composed": {"f": "é"},
    "decomposed": {"f": "e\u0301"},
    "list": {"f": [1, 2]},
    "list turned": {"f": [2, 1]},
    "list twice": {"f": [1, 1]},
    "list empty": {"f": []},
    "tuple": {"f": (1, 2)},
    "set": {"f": {1, 2}},
    "dict": {"f": {"x": 1, "y": {"z": [1, {"q": True}]}}},
    "dict empty": {"f": {}},
    "list of dicts": {"f": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]},
    "two": {"f": "two", "g": 1, "h": [1]},
    "acme": {"tenant": "acme", "tags": ["a", "b"], "n": {"x": 1, "y": 2}},
    "globex": {"tenant": "globex", "tags": ["b", "c"], "n": {"x": 1, "y": 3}},
    "dotted": {"a.b": 1},
    "nested": {"a": {"b": 1}},
    "quote": {'a"b': 1},
    "apostrophe": {"a') OR 1=1 --": "y"},
    "dollar": {"$": 1},
    "mark": {"$bytes": "aGk="},
    "index": {"[0]": 1},
    "empty key": {"": 1},
    "accent": {"é": 1},
    "number as key": {1: "int key"},
    "number as text": {"1": "text key"},
    "nul": {"nul": "a\x00b", "k\x00": 1},
    "surrogate": {"s": "\ud800"},
    "date": {"d": date(2026, 1, 2)},
    "datetime": {"d": datetime(2026, 1, 2, tzinfo=UTC)},
    "datetime elsewhere": {"d": datetime(2026, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))},
    "uuid": {"u": UUID(int=7)},
    "percent": {"p": "100%"},
    "underscore": {"p": "1_0"},
    "long": {"l": "x" * 5000},
}

ALL = list(ROWS)

CASES: list[tuple[Any, list[str]]] = [
    # 43: everything, an unknown key, one of two tenants
    ({}, ALL),
    ({"unknown": 1}, []),
    ({"unknown": None}, []),
    ({"tenant": "acme"}, ["acme"]),
    ({"tenant": "globex"}, ["globex"]),
    ({"tenant": "Acme"}, []),
    ({"tenant": "acm"}, []),
    # 44: types count
    ({"f": True}, ["true"]),
    ({"f": False}, ["false"]),
    ({"f": "true"}, ["true text"]),
    ({"f": 1}, ["one", "one float"]),
    ({"f": 1.0}, ["one", "one float"]),
    ({"f": "1"}, ["one text"]),
    ({"f": None}, ["null"]),
    ({"f": 0}, ["zero", "minus zero"]),
    ({"f": -0.0}, ["zero", "minus zero"]),
    ({"f": ""}, ["empty text"]),
    ({"f": 0.5}, ["half"]),
    ({"f": 2**70}, ["big"]),
    ({"f": float(2**70)}, ["big"]),
    ({"f": Decimal("1")}, ["decimal"]),
    ({"f": Decimal("1.0")}, []),
    ({"f": b"1"}, ["bytes"]),
    ({"f": "a"}, ["lower"]),
    ({"f": "é"}, ["composed"]),
    ({"f": "e\u0301"}, ["decomposed"]),
    ({"u": UUID(int=7)}, ["uuid"]),
    ({"u": str(UUID(int=7))}, []),
    ({"d": date(2026, 1, 2)}, ["date"]),
    ({"d": datetime(2026, 1, 2, tzinfo=UTC)}, ["datetime"]),
    ({"p": "100%"}, ["percent"]),
    ({"p": "%"}, []),
    ({"p": "1_0"}, ["underscore"]),
    ({"l": "x" * 5000}, ["long"]),
    ({"l": "x" * 4999}, []),
    # 45: containment
    ({"f": [1, 2]}, ["list", "list turned"]),
    ({"f": [2]}, ["list", "list turned"]),
    ({"f": [1, 1]}, ["list", "list turned", "list twice"]),
    ({"f": [True]}, []),
    ({"f": []}, ["list", "list turned", "list twice", "list empty", "list of dicts"]),
    ({"f": (1, 2)}, ["tuple"]),
    ({"f": (2,)}, ["tuple"]),
    ({"f": {1, 2}}, ["set"]),
    ({"f": {1}}, []),
    ({"f": {}}, ["dict", "dict empty"]),
    ({"f": {"x": 1}}, ["dict"]),
    ({"f": {"y": {}}}, ["dict"]),
    ({"f": {"y": {"z": [{"q": True}]}}}, ["dict"]),
    ({"f": {"y": {"z": [{"q": 1}]}}}, []),
    ({"f": {"x": 1, "w": 1}}, []),
    ({"f": [{"a": 1}]}, ["list of dicts"]),
    ({"f": [{"a": 1, "b": 2}]}, ["list of dicts"]),
    ({"f": [{"a": 1, "b": 4}]}, []),
    ({"f": [{"a": 1}, {"b": 4}]}, ["list of dicts"]),
    ({"n": {"x": 1}}, ["acme", "globex"]),
    ({"n": {"x": 1, "y": 2}}, ["acme"]),
    ({"n": {"x": True}}, []),
    ({"tags": ["b"]}, ["acme", "globex"]),
    ({"tags": ["b", "a"]}, ["acme"]),
    ({"tags": "a"}, []),
    ({"tags": ["b"], "n": {"y": 3}}, ["globex"]),
    ({"f": "two", "g": 1}, ["two"]),
    ({"f": "two", "g": 2}, []),
    ({"f": "two", "g": 1, "h": [1]}, ["two"]),
    # 42: keys are literal
    ({"a') OR 1=1 --": "x"}, []),
    ({"a') OR 1=1 --": "y"}, ["apostrophe"]),
    ({"a.b": 1}, ["dotted"]),
    ({"a": {"b": 1}}, ["nested"]),
    ({'a"b': 1}, ["quote"]),
    ({"$": 1}, ["dollar"]),
    ({"$bytes": "aGk="}, ["mark"]),
    ({"[0]": 1}, ["index"]),
    ({"": 1}, ["empty key"]),
    ({"é": 1}, ["accent"]),
    ({"e\u0301": 1}, []),
    ({"F": True}, []),
    ({1: "int key"}, ["number as key"]),
    ({"1": "text key"}, ["number as text"]),
    ({True: "int key"}, []),
    ({"nul": "a\x00b"}, ["nul"]),
    ({"k\x00": 1}, ["nul"]),
    ({"nul": "a"}, []),
    ({"s": "\ud800"}, ["surrogate"]),
    ({"%": 1}, []),
    ({"*": 1}, []),
]


def of(rows):
    return [row["thread_id"] for row in rows]


async def fill(store):
    for name, metadata in ROWS.items():
        await store.save(name, {"name": name}, "c", metadata)


async def test_the_table(store, other):
    await fill(store)
    wrong = []
    for query, expected in CASES:
        for who, versions in ((store, "newest"), (other, "all")):
            found = of(await who.query_by_metadata(query, limit=None, versions=versions))
            if found != expected[::-1]:
                wrong.append((query, versions, found, expected))
    assert wrong == []
    assert len(CASES) >= 20


async def test_a_key_and_its_value_are_the_same_as_a_dict_of_them(store):
    await fill(store)
    for query, expected in CASES:
        if len(query) == 1 and isinstance(key := next(iter(query)), str):
            assert of(await store.query_by_metadata(key, query[key], None)) == expected[::-1]
    assert of(await store.query_by_metadata("f", None)) == ["null"]
    assert of(await store.query_by_metadata("f")) == ["null"]


async def test_one_thread_only(store):
    await fill(store)
    for query, expected in CASES:
        assert of(await store.query_by_metadata(query, thread_id="acme")) == ["acme"] * ("acme" in expected)
    assert await store.query_by_metadata({}, thread_id="nobody") == []


async def test_what_a_row_says(open_store, clock):
    store = open_store(clock=clock)
    await store.save("t", {"n": 1}, "a", {"k": [1, (2,), {"x": None}]})
    await store.save("t", {"n": 2}, "b", {"k": "é"})
    (newest, oldest) = await store.query_by_metadata({}, versions="all")
    assert set(newest) == {
        "thread_id",
        "checkpoint_id",
        "version",
        "parent",
        "created_at",
        "updated_at",
        "metadata",
        "size",
    }
    assert (oldest["checkpoint_id"], oldest["metadata"], oldest["parent"]) == ("a", {"k": [1, (2,), {"x": None}]}, None)
    assert (newest["checkpoint_id"], newest["metadata"], newest["parent"]) == ("b", {"k": "é"}, "a")
    assert oldest["created_at"] == clock.now
    assert newest["updated_at"] == oldest["updated_at"] == newest["created_at"]
    assert await store.get_metadata("t") == newest
    assert await store.get_metadata("t", "a") == oldest
    assert await store.get_metadata("t", "nowhere") is None
    assert await store.get_metadata("nobody") is None


async def test_only_the_newest_checkpoint_counts_unless_all_are_asked_for(store):
    await store.save("t", {}, "a", {"state": "draft"})
    await store.save("t", {}, "b", {"state": "final"})
    await store.save("t", {}, "c", {"state": "draft", "n": 1})
    await store.save("u", {}, "d", {"state": "final"})
    assert of(await store.query_by_metadata({"state": "final"})) == ["u"]

    async def everywhere(query, **more):
        found = await store.query_by_metadata(query, versions="all", **more)
        return [(r["thread_id"], r["checkpoint_id"]) for r in found]

    assert await everywhere({"state": "final"}) == [("u", "d"), ("t", "b")]
    assert await everywhere({"state": "draft"}) == [("t", "c"), ("t", "a")]
    assert await everywhere({"state": "draft"}, limit=1) == [("t", "c")]
    assert await everywhere({"state": "draft"}, offset=1) == [("t", "a")]
    assert await everywhere({}, thread_id="t") == [("t", "c"), ("t", "b"), ("t", "a")]
    await store.delete("t", "c")
    assert of(await store.query_by_metadata({"state": "final"})) == ["u", "t"]


async def test_what_was_replaced_is_no_longer_found(store, other):
    await store.save("t", {}, "a", {"k": 1, "old": True})
    await other.save("t", {}, "a", {"k": 2})
    assert await store.query_by_metadata({"old": True}, versions="all") == []
    assert of(await store.query_by_metadata({"k": 2})) == ["t"]
    await store.save("t", {}, "a", {"k": 3}, if_exists="in_place")
    assert await store.query_by_metadata({"k": 2}, versions="all") == []
    assert of(await store.query_by_metadata({"k": 3}, versions="all")) == ["t"]
    await store.save("t", {}, "a")
    assert await store.query_by_metadata({"k": 3}, versions="all") == []
    assert (await store.get_metadata("t"))["metadata"] is None


@pytest.mark.parametrize("query", [{}, {"k": 1}, {"l": [{"a": 1, "b": 1}]}], ids=["all", "exact", "looked at twice"])
async def test_page_by_page_everything_once(store, query):
    """Also where the terms of a query find more than match."""
    for i in range(23):
        good = i % 2 == 0
        pairs = [{"a": 1, "b": 1}] if good else [{"a": 1, "b": 2}, {"a": 2, "b": 1}]
        await store.save(f"t{i:02d}", {}, metadata={"k": 1, "l": pairs})
    expected = [f"t{i:02d}" for i in range(22, -1, -1) if "l" not in query or i % 2 == 0]
    seen = []
    while page := of(await store.query_by_metadata(query, limit=4, offset=len(seen))):
        seen += page
    assert seen == expected
    assert of(await store.query_by_metadata(query, limit=None)) == expected
    assert of(await store.query_by_metadata(query, limit=None, offset=3)) == expected[3:]
    assert of(await store.query_by_metadata(query, limit=0)) == []
    assert of(await store.query_by_metadata(query, limit=3, offset=99)) == []


async def test_a_hundred_unless_told_otherwise(store):
    for i in range(103):
        await store.save(f"t{i:03d}", {}, metadata={"k": 1})
    assert len(await store.query_by_metadata({"k": 1})) == 100
    assert len(await store.query_by_metadata("k", 1, 101)) == 101
    assert len(await store.list_with_metadata()) == 100
    assert len(await store.list_with_metadata(None)) == 103


async def test_list_with_metadata_has_the_newest_checkpoint_of_each_thread(store):
    await store.save("a", {}, "a1", {"n": 1})
    await store.save("b", {}, "b1")
    await store.save("a", {}, "a2", {"n": 2})
    found = [(r["thread_id"], r["checkpoint_id"], r["metadata"]) for r in await store.list_with_metadata()]
    assert found == [("a", "a2", {"n": 2}), ("b", "b1", None)]
    assert of(await store.list_with_metadata(limit=1, offset=1)) == ["b"]


async def test_many_keys_and_deep_ones(store):
    wide = {f"key {i}": i for i in range(300)}
    deep: Any = {"bottom": True}
    for i in range(60):
        deep = {f"level {i}": [deep]}
    await store.save("wide", {}, metadata=wide)
    await store.save("deep", {}, metadata=deep)
    assert of(await store.query_by_metadata(wide)) == ["wide"]
    assert of(await store.query_by_metadata({**wide, "key 7": 8})) == []
    assert of(await store.query_by_metadata(deep)) == ["deep"]


async def test_metadata_that_no_query_could_find_is_refused_by_name(store, place):
    for value in (float("nan"), float("inf"), float("-inf")):
        for metadata, path in (({"loss": value}, "$.loss"), ({"a": {"b": [1, value]}}, "$.a.b[1]")):
            with pytest.raises(SerializationError) as caught:
                await store.save("t", {"ok": 1}, metadata=metadata)
            assert caught.value.path == path
            with pytest.raises(SerializationError):
                await store.query_by_metadata(metadata)
    assert place.count() == 0


async def test_wrong_queries_are_refused(store):
    for arguments, error in (
        (({"k": 1}, 1), TypeError),
        ((5,), TypeError),
        ((None,), TypeError),
        (("k", object()), TypeError),
        (({}, None, -1), ValueError),
        (({}, None, "1"), TypeError),
    ):
        with pytest.raises(error):
            await store.query_by_metadata(*arguments)
    for name, value in (("offset", -1), ("versions", "newest first"), ("thread_id", "")):
        with pytest.raises(ValueError, match=name):
            await store.query_by_metadata({}, **{name: value})
