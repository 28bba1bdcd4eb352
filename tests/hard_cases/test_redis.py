"""Cases 55 and 56: ids on a cluster, and an index that is gone."""

from __future__ import annotations

import itertools

import pytest
from store_fixtures import only

on_both = only("redis", "redis-cluster")

IDS = [
    *("t", "{a}b", "}", "{}", "{", "}{", "a{b}c", "{}a", "{{a}}"),
    *("*", "a*b", "?", "[a]", "\\", " ", "a b", "\n", ":", "a:b", "a:h", "~", "%", "%7B", "%2A", "ä", "🙂"),
]


# On the cluster at every change, too: most of the suite goes there in the long tests only.
@pytest.mark.parametrize("place", ["redis", "redis-cluster"], indirect=True)
async def test_case_55_any_id_on_a_cluster(store, other):
    for i, name in enumerate(IDS):
        await store.save(name, {"n": i, "messages": ["x"]}, name, {"n": i})
        await store.save(name, {"n": i, "messages": ["x", "y"]}, metadata={"name": name})
        await store.put_records(name, name, {name: i})
    assert sorted(await other.list_threads()) == sorted(IDS)
    for i, name in enumerate(IDS):
        assert await other.load(name) == {"n": i, "messages": ["x", "y"]}
        assert await other.load(name, name) == {"n": i, "messages": ["x"]}
        assert len(await other.list_checkpoints(name)) == 2
        assert await other.records(name, name) == {name: i}
        (found,) = await other.query_by_metadata("name", name)
        assert found["thread_id"] == name
        assert await other.copy_thread(name, f"copy of {name}")
        assert await store.load(f"copy of {name}", name) == {"n": i, "messages": ["x"]}


def ending(place, *kinds):
    """The keys that end in one of some ways."""
    return [key for key, _ in place.keys().items() if key.endswith(kinds)]


def threads(place):
    """All keys of threads, with what is in them."""
    return {key: node.command("DUMP", key) for key, node in place.keys().items() if key[-2:] in (b":h", b":v")}


@on_both
async def test_case_55_deleting_a_thread_touches_its_own_keys_only(store, place):
    for name in IDS:
        await store.save(name, {"id": name}, metadata={"id": name})
    before = threads(place)
    for name in IDS:
        assert await store.delete(name)
        after = threads(place)
        assert after.items() <= before.items()
        assert len(before) - len(after) == 2
        before = after
        assert await store.load(name) is None
        assert name not in await store.list_threads()
    assert place.count() == 0


@on_both
async def test_case_55_all_keys_of_a_thread_lie_in_one_place(store, place):
    for name in IDS:
        await store.save(name, {"id": name, "messages": [name]})
        await store.put_records(name, "scope", {"k": 1})
    keys = ending(place, b":h", b":v", b":r")
    assert len(keys) == 3 * len(IDS)
    tags = {key: key[key.index(b"{") + 1 : key.index(b"}")] for key in keys}
    assert sorted(key.partition(b"}")[2] for key in keys) == sorted([b":h", b":v", b":r"] * len(IDS))
    assert len(set(tags.values())) == len(IDS)
    if place.name == "redis-cluster":
        slots = {tag: {place.server.slot(key) for key in keys if tags[key] == tag} for tag in set(tags.values())}
        assert all(len(found) == 1 for found in slots.values())
        assert len({place.server.owner(slot) for (slot,) in slots.values()}) == 3


GONE = [set(some) for count in (1, 2, 3) for some in itertools.combinations("imn", count)]


@on_both
@pytest.mark.parametrize("gone", GONE, ids=lambda gone: "".join(sorted(gone)))
async def test_case_56_the_index_is_gone(store, other, place, gone):
    for i in range(12):
        await store.save(f"t{i}", {"n": i}, metadata={"odd": i % 2 == 1, "n": i})
    await store.put_records("records only", "s", {"k": 1})
    assert len(await other.query_by_metadata("odd", True)) == 6
    for what in gone:
        (key,) = ending(place, b"{default}:" + what.encode())
        place.command("UNLINK", key)
    assert len(await other.query_by_metadata("odd", True)) == 6
    assert await other.list_threads() == [f"t{i}" for i in reversed(range(12))]
    assert await other.list_threads(limit=2, offset=9) == ["t2", "t1"]
    # Also for those who come first afterwards with something else.
    for what in gone:
        for key in ending(place, b"{default}:" + what.encode()):
            place.command("UNLINK", key)
    await store.save("t3", {"n": -3}, metadata={"odd": True})
    await store.delete("t4")
    assert await other.list_threads() == ["t3", *[f"t{i}" for i in reversed(range(12)) if i not in (3, 4)]]
    assert len(await other.query_by_metadata("odd", True)) == 6
    assert len(await other.query_by_metadata("odd", False)) == 5


@on_both
async def test_case_56_an_index_that_says_too_much_or_too_little(store, other, place):
    for i in range(5):
        await store.save(f"t{i}", {"n": i}, metadata={"n": i})
    assert len(await other.query_by_metadata("n", 2)) == 1
    stored = place.stored()
    (index,) = ending(place, b"{default}:i")
    (terms,) = ending(place, b"{default}:m")
    place.command("ZADD", index, -5e15, "nobody", -6e15, "t0")
    place.command("ZADD", terms, 0, b"x" * 16 + b"nobody", 0, b"x" * 16 + b"t1")
    assert await other.list_threads() == [f"t{i}" for i in reversed(range(5))]
    assert await other.query_by_metadata("n", 2, versions="all") != []
    place.command("ZREM", index, "t2")
    mine = [member for member in place.command("ZRANGE", terms, 0, -1) if member.endswith(b"t3")]
    place.command("ZREM", terms, *mine)
    await other.vacuum()
    assert await store.list_threads() == [f"t{i}" for i in reversed(range(5))]
    for i in range(5):
        assert len(await store.query_by_metadata("n", i)) == 1
    assert place.stored() == stored


@on_both
async def test_case_56_keys_is_never_used(store, other, place):
    for node in place.server.nodes:
        node.command("CONFIG", "RESETSTAT")
    for i in range(3):
        await store.save(f"t{i}", {"n": i}, metadata={"n": i})
    for key in ending(place, b"{default}:i"):
        place.command("UNLINK", key)
    assert len(await other.list_threads(pattern="t*")) == 3
    await other.vacuum(older_than_days=0)
    await other.copy_thread("t1", "u")
    for name in await other.list_threads():
        await other.delete(name)
    used = {name for node in place.server.nodes for name in node.info("commandstats")}
    assert "cmdstat_evalsha" in used
    assert "cmdstat_keys" not in used
