"""``delete``: a thread, one checkpoint, or several in one step; and nothing else with it."""

from __future__ import annotations

import asyncio
import os

import pytest
from cases import assert_same
from histories import HISTORIES, MIXED, message


async def fill(store, thread_id="t", names="abcde"):
    """Checkpoints that share entries."""
    documents = {}
    for i, name in enumerate(names):
        documents[name] = {"messages": [message(j) for j in range(i + 1)], "own": message(f"{name} {thread_id}")}
        await store.save(thread_id, documents[name], name, {"name": name})
    return documents


async def test_a_thread(store, place):
    await fill(store)
    await store.put_records("t", "scope", {"k": 1})
    assert await store.delete("t") is True
    assert await store.delete("t") is False
    assert await store.load("t") is None
    assert await store.load("t", "a") is None
    assert await store.list_checkpoints("t") == []
    assert await store.history("t") == []
    assert await store.list_threads() == []
    assert await store.query_by_metadata({}) == []
    assert await store.get_metadata("t") is None
    assert await store.records("t", "scope") == {}
    assert place.count() == 0


async def test_what_is_missing_is_false(store):
    assert await store.delete("nobody") is False
    assert await store.delete("nobody", "a") is False
    await store.save("t", {}, "a")
    assert await store.delete("t", "b") is False
    assert await store.delete("t", ["b", "c"]) is False
    assert await store.list_checkpoints("t") == ["a"]


async def test_an_empty_list_deletes_nothing(store):
    await fill(store)
    assert await store.delete("t", []) is False
    assert await store.list_checkpoints("t") == list("edcba")


async def test_the_others_stay_as_they_were(store, other):
    for gone in ("a", "c", "e", "ab", "de", "ace", "bd", "bcde", "abcd", "ca"):
        documents = await fill(store, gone)
        kept = [n for n in documents if n not in gone]
        assert await store.delete(gone, list(gone) if len(gone) > 1 else gone) is True
        assert await store.list_checkpoints(gone) == kept[::-1]
        for name in kept:
            assert_same(await other.load(gone, name), documents[name])
            assert_same(await store.load(gone, name), documents[name])
        for name in gone:
            assert await other.load(gone, name) is None


async def test_saves_go_on_after_a_deletion(store, other):
    for gone in ("a", "e", "bd"):
        documents = await fill(store, gone)
        await other.delete(gone, list(gone))
        new = {"messages": [*documents["e"]["messages"], message("new")], "own": documents["a"]["own"]}
        await store.save(gone, new, "new")
        assert_same(await other.load(gone), new)
        for name in documents:
            found = await other.load(gone, name)
            assert found is None if name in gone else found == documents[name]


async def test_the_newest_is_then_the_one_before_it(store):
    documents = await fill(store)
    await store.delete("t", "e")
    assert_same(await store.load("t"), documents["d"])
    assert (await store.get_metadata("t"))["metadata"] == {"name": "d"}
    assert [r["checkpoint_id"] for r in await store.query_by_metadata({"name": "d"})] == ["d"]
    assert await store.query_by_metadata({"name": "e"}, versions="all") == []
    await store.save("t", {}, "f")
    (info,) = await store.history("t", 1)
    assert (info.version, info.parent) == (6, "d")


async def test_any_iterable_of_ids_with_unknown_and_repeated_ones(store):
    await fill(store)
    assert await store.delete("t", iter(["b", "nowhere", "b", "d"])) is True
    assert await store.delete("t", {"b", "a"}) is True
    assert await store.list_checkpoints("t") == ["e", "c"]


@pytest.mark.parametrize("how", ["one by one", "newest first", "at once"])
async def test_the_thread_goes_with_its_last_checkpoint(store, place, how):
    await fill(store)
    await store.put_records("t", "scope", {"k": 1})
    if how == "at once":
        assert await store.delete("t", list("abcde")) is True
    else:
        for name in "abcde" if how == "one by one" else "edcba":
            assert await store.delete("t", name) is True
    assert await store.list_threads() == []
    assert await store.delete("t") is False
    assert await store.records("t", "scope") == {}
    assert place.count() == 0


async def test_other_threads_are_not_touched(store, place):
    await fill(store, "u")
    before = place.count()
    await fill(store, "t")
    await store.delete("t")
    assert place.count() == before
    assert await store.list_checkpoints("u") == list("edcba")
    assert await store.list_threads() == ["u"]


async def test_a_checkpoint_goes_with_everything_of_its_own(store, other, place):
    await fill(store, names="ab")
    before = place.count()
    for how in ("c", ["c"], ["c", "d"]):
        for name in "cd"[: len(how) if isinstance(how, list) else 1]:
            await store.save("t", {"own": [message(name)] * 2}, name, {"k": name, "l": [1, {"x": name}]})
        await other.delete("t", how)
        assert place.count() == before
    for name in "abc":
        await store.save("t", {"own": [message(name)] * 2}, name, {"k": name, "l": [1]})
    await store.delete("t", ["a", "b"])
    count = place.count()
    await store.delete("t")
    await store.save("t", {"own": [message("c")] * 2}, "c", {"k": "c", "l": [1]})
    assert place.count() == count


async def test_what_only_a_deleted_checkpoint_held_is_gone(store, place):
    await fill(store, names="ab")
    base = place.size()
    big = os.urandom(50_000).hex()
    await store.save("t", {"messages": [{"content": big}]}, "big")
    assert place.size() > base + 45_000
    await store.delete("t", "big")
    assert place.size() < base + 2_000


@pytest.mark.parametrize("history", MIXED)
async def test_nothing_is_left_that_nobody_needs(store, place, history):
    """One checkpoint alone takes no more than if it had been saved alone, whatever was there before."""
    documents = HISTORIES[history]
    ids = [await store.save("t", d) for d in documents]
    survivor = len(documents) // 2
    for i in ids[:survivor] + ids[survivor + 1 :]:
        await store.delete("t", i)
    assert_same(await store.load("t"), documents[survivor])
    left = place.size()
    await store.delete("t")
    await store.save("t", documents[survivor])
    # Every block that is still needed keeps its frame, and every list its ranges.
    assert left <= place.size() + 250 * len(documents)


async def test_everything_there_goes_however_much_it_is(store, place):
    await asyncio.gather(*[store.save("t", {"i": i, "messages": [message(i)]}) for i in range(120)])
    ids = await store.list_checkpoints("t", limit=None)
    assert len(ids) == 120
    assert await store.delete("t", ids[:100]) is True
    assert await store.list_checkpoints("t", limit=None) == ids[100:]
    assert await store.delete("t") is True
    assert place.count() == 0


async def test_deletions_and_saves_at_the_same_time(store, other):
    documents = {str(i): {"i": i, "messages": [message(j) for j in range(i)]} for i in range(20)}
    for name, document in documents.items():
        await store.save("t", document, name)
    new = {f"new {i}": {"messages": [message(j) for j in range(25 + i)]} for i in range(10)}
    await asyncio.gather(
        *[other.delete("t", name) for name in list(documents)[::2]],
        *[store.save("t", d, name) for name, d in new.items()],
    )
    kept = list(documents)[1::2]
    assert set(await store.list_checkpoints("t", limit=None)) == {*kept, *new}
    for name in kept:
        assert_same(await other.load("t", name), documents[name])
    for name, document in new.items():
        assert_same(await other.load("t", name), document)


async def test_wrong_ids_are_refused_and_nothing_is_deleted(store):
    await store.save("t", {}, "a")
    for wrong in (5, b"a", ["a", 5], ["a", None], [""]):
        with pytest.raises((TypeError, ValueError)):
            await store.delete("t", wrong)
    assert await store.list_checkpoints("t") == ["a"]
