"""``if_exists``: what saving under an id that is in use does."""

from __future__ import annotations

import asyncio

import pytest
from cases import assert_same
from histories import HISTORIES, MIXED, message

from locus_store.core.errors import CheckpointExistsError


async def shape(store):
    return [(i.checkpoint_id, i.version, i.parent) for i in reversed(await store.history("t", None))]


async def fill(store, names="abc"):
    for name in names:
        await store.save("t", {"n": name, "messages": [message(f"{name} {i}") for i in range(3)]}, name, {"n": name})


async def test_newest_is_what_happens_unless_told_otherwise(store, other):
    await fill(store)
    new = {"n": "new", "messages": [message("new")]}
    assert await other.save("t", new, "a", {"n": "new"}) == "a"
    # Version 1 is gone, so b has no parent any more.
    assert await shape(store) == [("b", 2, None), ("c", 3, "b"), ("a", 4, "c")]
    assert_same(await store.load("t"), new)
    assert_same(await store.load("t", "a"), new)
    assert (await store.get_metadata("t"))["metadata"] == {"n": "new"}
    assert await store.list_checkpoints("t") == ["a", "c", "b"]


async def test_newest_gives_a_new_time(open_store, clock):
    store = open_store(clock=clock)
    await fill(store)
    clock.advance(hours=1)
    await store.save("t", {}, "a")
    assert (await store.history("t", 1))[0].created_at >= clock.now


async def test_the_newest_replaced_has_the_parent_that_it_had(store):
    await fill(store)
    await store.save("t", {"n": "new"}, "c")
    await store.save("t", {"n": "newer"}, "c")
    assert await shape(store) == [("a", 1, None), ("b", 2, "a"), ("c", 5, "b")]


async def test_the_only_one_replaced(store):
    await store.save("t", {"n": 1}, "a")
    await store.save("t", {"n": 2}, "a", if_exists="newest")
    assert await shape(store) == [("a", 2, None)]
    assert await store.load("t") == {"n": 2}


async def test_in_place_keeps_version_parent_and_time(open_store, clock, other):
    store = open_store(clock=clock)
    await fill(store)
    before = {i.checkpoint_id: i.created_at for i in await store.history("t")}
    clock.advance(hours=1)
    new = {"n": "new", "messages": [message("new")]}
    assert await store.save("t", new, "b", {"n": "new"}, if_exists="in_place") == "b"
    assert await shape(store) == [("a", 1, None), ("b", 2, "a"), ("c", 3, "b")]
    assert {i.checkpoint_id: i.created_at for i in await store.history("t")} == before
    assert_same(await other.load("t", "b"), new)
    assert (await other.load("t"))["n"] == "c"
    assert (await store.get_metadata("t", "b"))["metadata"] == {"n": "new"}
    await store.save("t", {}, "d")
    assert (await shape(store))[-1] == ("d", 4, "c")


async def test_in_place_of_the_newest(store, other):
    await fill(store)
    await store.save("t", {"n": "new"}, "c", if_exists="in_place")
    assert await shape(store) == [("a", 1, None), ("b", 2, "a"), ("c", 3, "b")]
    assert await other.load("t") == {"n": "new"}
    await other.save("t", {}, expected_version=3)


async def test_an_id_that_is_new_is_simply_saved(store):
    for i, how in enumerate(("newest", "in_place", "error")):
        assert await store.save("t", {"n": i}, how, if_exists=how) == how
    assert await shape(store) == [("newest", 1, None), ("in_place", 2, "newest"), ("error", 3, "in_place")]


async def test_error_refuses_and_writes_nothing(store, other, place):
    await fill(store)
    before = place.count()
    with pytest.raises(CheckpointExistsError, match="in use") as caught:
        await other.save("t", {"n": "new"}, "b", if_exists="error")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "b")
    assert place.count() == before
    assert (await store.load("t", "b"))["n"] == "b"
    assert await shape(store) == [("a", 1, None), ("b", 2, "a"), ("c", 3, "b")]
    assert await other.save("u", {"n": "other thread"}, "b", if_exists="error") == "b"


async def test_an_id_that_was_deleted_is_free(store):
    await fill(store)
    await store.delete("t", "b")
    await store.save("t", {"n": "again"}, "b", if_exists="error")
    assert await shape(store) == [("a", 1, None), ("c", 3, None), ("b", 4, "c")]


async def test_what_was_replaced_leaves_nothing_behind(store, place):
    await fill(store)
    count, size = place.count(), place.size()
    for i in range(5):
        for how in ("newest", "in_place"):
            document = {"n": "b", "messages": [message(f"b {i}{j}") for j in range(3)]}
            await store.save("t", document, "b", {"n": "b"}, if_exists=how)
            assert place.count() == count
    assert place.size() < size + 500


@pytest.mark.parametrize("how", ["newest", "in_place"])
@pytest.mark.parametrize("history", MIXED)
async def test_replacing_breaks_no_other(store, other, history, how):
    documents = HISTORIES[history]
    saved = {}
    for i, document in enumerate(documents):
        saved[str(i)] = document
        await store.save("t", document, str(i))
    for i in range(0, len(documents), 3):
        saved[str(i)] = documents[-1 - i]
        await (store, other)[i % 2].save("t", saved[str(i)], str(i), if_exists=how)
    for name, document in saved.items():
        assert_same(await other.load("t", name), document)
        assert_same(await store.load("t", name), document)


async def test_the_parent_named_for_a_replaced_one(store):
    await fill(store)
    await store.save("t", {}, "b", parent="a")
    assert await shape(store) == [("a", 1, None), ("c", 3, None), ("b", 4, "a")]


@pytest.mark.parametrize("how", ["newest", "in_place"])
async def test_many_saves_under_one_id_at_once(store, other, how):
    await asyncio.gather(*[(store, other)[i % 2].save("t", {"i": i}, "same", if_exists=how) for i in range(20)])
    (info,) = await store.history("t")
    assert info.checkpoint_id == "same"
    assert (await other.load("t"))["i"] in range(20)


async def test_only_one_of_many_is_first(store, other):
    found = await asyncio.gather(
        *[(store, other)[i % 2].save("t", {"i": i}, "same", if_exists="error") for i in range(20)],
        return_exceptions=True,
    )
    assert [f for f in found if not isinstance(f, CheckpointExistsError)] == ["same"]
    assert await store.load("t") == {"i": found.index("same")}


async def test_other_words_are_refused(store):
    for wrong in ("replace", "", None, True):
        with pytest.raises(ValueError, match="if_exists"):
            await store.save("t", {}, "a", if_exists=wrong)
