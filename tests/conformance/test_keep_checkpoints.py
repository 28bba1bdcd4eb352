"""``keep_checkpoints``: so many of a thread's newest stay after each save."""

from __future__ import annotations

import asyncio

import pytest
from cases import assert_same
from histories import HISTORIES, MIXED, message


@pytest.mark.parametrize("history", MIXED)
async def test_the_newest_stay_and_load(open_store, other, history):
    keep = 2
    store = open_store(keep_checkpoints=keep)
    documents = HISTORIES[history]
    for i, document in enumerate(documents):
        await store.save("t", document, str(i))
        kept = list(range(max(0, i + 1 - keep), i + 1))
        assert await store.list_checkpoints("t") == [str(n) for n in kept][::-1]
        for n in kept:
            assert_same(await other.load("t", str(n)), documents[n])


async def test_what_is_stored_does_not_grow(open_store, place):
    store = open_store(keep_checkpoints=2)
    sizes = []
    for i in range(60):
        await store.save("t", {"messages": [message(j, 500) for j in range(i, i + 5)]})
        sizes.append(place.size())
    assert max(sizes[30:]) <= 1.5 * max(sizes[5:15])


async def test_versions_go_on(open_store):
    store = open_store(keep_checkpoints=1)
    for i in range(5):
        await store.save("t", {"i": i}, str(i))
    (info,) = await store.history("t")
    assert (info.version, info.checkpoint_id) == (5, "4")


async def test_only_the_thread_that_is_saved(open_store, store):
    for i in range(4):
        await store.save("t", {"i": i})
        await store.save("u", {"i": i})
    short = open_store(keep_checkpoints=2)
    await short.save("t", {"i": 4})
    assert len(await store.list_checkpoints("t")) == 2
    assert len(await store.list_checkpoints("u")) == 4


async def test_one_that_is_replaced_in_place_is_not_lost(open_store, store):
    """Its place is beyond what is kept, but the save that returns its id has made it."""
    for i in range(5):
        await store.save("t", {"i": i}, str(i))
    short = open_store(keep_checkpoints=2)
    assert await short.save("t", {"i": "new"}, "0", if_exists="in_place") == "0"
    assert await store.load("t", "0") == {"i": "new"}


async def test_what_goes_is_no_longer_found(open_store, place):
    store = open_store(keep_checkpoints=1)
    await store.save("t", {}, metadata={"k": 1})
    await store.save("t", {}, metadata={"k": 2})
    assert await store.query_by_metadata({"k": 1}, versions="all") == []
    await store.delete("t")
    assert place.count() == 0


async def test_several_writers(open_store):
    a, b = open_store(keep_checkpoints=3), open_store(keep_checkpoints=3)
    documents = {str(i): {"messages": [message(j) for j in range(i)]} for i in range(30)}
    await asyncio.gather(*[(a, b)[i % 2].save("t", d, str(i)) for i, d in enumerate(documents.values())])
    kept = await a.list_checkpoints("t")
    assert [i.version for i in await b.history("t")] == [30, 29, 28]
    for name in kept:
        assert_same(await b.load("t", name), documents[name])


def test_a_wrong_number_is_refused(place):
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="keep_checkpoints"):
            place.open(keep_checkpoints=wrong)
