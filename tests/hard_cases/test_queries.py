"""Cases 42 to 45: queries by metadata. The table of what matches what is in tests/conformance."""

from __future__ import annotations


async def found(store, query, **options):
    return sorted(r["thread_id"] for r in await store.query_by_metadata(query, **options))


async def test_case_42_a_key_is_a_literal(store):
    keys = ["a.b", 'a"b', "$", "[0]", "", "é", "a') OR 1=1 --", "a'b", "%", "\\", "$.a", "a\x00"]
    for key in keys:
        await store.save(f"key {key!a}", {}, metadata={key: "x"})
    await store.save("nested", {}, metadata={"a": {"b": "x"}})
    await store.save("list", {}, metadata={"a": ["x"]})
    for key in keys:
        assert await found(store, {key: "x"}) == [f"key {key!a}"]
    assert await found(store, {"a') OR 1=1 --x": "x"}) == []
    assert await found(store, {"a": "x' OR '1'='1"}) == []
    assert await found(store, {"a": {"b": "x"}}) == ["nested"]


async def test_case_43_a_filter_filters_and_an_empty_one_does_not(store):
    await store.save("a", {}, metadata={"tenant": "acme"})
    await store.save("g", {}, metadata={"tenant": "globex"})
    await store.save("n", {})
    assert await found(store, {"tenant": "acme"}) == ["a"]
    assert await found(store, {"unknown": "acme"}) == []
    assert await found(store, {"tenant": "acme", "unknown": None}) == []
    assert await found(store, {}) == ["a", "g", "n"]


async def test_case_44_types_count(store):
    rows = {"true": True, "text": "true", "one": 1, "text one": "1", "null": None}
    for name, value in rows.items():
        await store.save(name, {}, metadata={"f": value})
    await store.save("without", {}, metadata={})
    for name, value in rows.items():
        assert await found(store, {"f": value}) == [name]
    assert await found(store, {"f": 1.0}) == ["one"]
    await store.save("one float", {}, metadata={"f": 1.0})
    assert await found(store, {"f": 1}) == ["one", "one float"]


async def test_case_45_dicts_and_lists_match_by_containment(store):
    await store.save("t", {}, metadata={"tags": ["a", "b"], "n": {"x": 1, "y": 2}})
    for query in (
        {"tags": ["a", "b"]},
        {"tags": ["b", "a"]},
        {"tags": ["a"]},
        {"tags": []},
        {"n": {"x": 1}},
        {"n": {}},
        {"n": {"y": 2, "x": 1}},
        {"tags": ["b"], "n": {"y": 2}},
    ):
        assert await found(store, query) == ["t"], query
    for query in (
        {"tags": ["a", "c"]},
        {"tags": "a"},
        {"tags": [["a"]]},
        {"tags": {}},
        {"n": {"x": 2}},
        {"n": {"z": 1}},
        {"n": []},
        {"n": {"x": 1, "y": {"z": 1}}},
        {"x": 1},
    ):
        assert await found(store, query) == [], query
