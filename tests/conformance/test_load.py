"""``load``: what is there, whatever was saved before and after it."""

from __future__ import annotations

import asyncio

import pytest
from cases import assert_same
from histories import HISTORIES, growing, message


@pytest.mark.parametrize("history", list(HISTORIES))
async def test_every_checkpoint_of_a_history_loads(store, other, history):
    documents = HISTORIES[history]
    ids = [await store.save("t", d) for d in documents]
    for name, document in zip(ids, documents, strict=True):
        assert_same(await store.load("t", name), document)
        assert_same(await other.load("t", name), document)
    assert_same(await other.load("t"), documents[-1])


@pytest.mark.parametrize("history", list(HISTORIES))
async def test_two_who_know_nothing_of_each_other_save_in_turn(store, other, history):
    documents = HISTORIES[history]
    ids = [await (store, other)[i % 2].save("t", d) for i, d in enumerate(documents)]
    for name, document in zip(ids, documents, strict=True):
        assert_same(await store.load("t", name), document)


async def test_back_to_an_older_checkpoint_and_on_from_there(store):
    documents = growing(6)
    ids = [await store.save("t", d) for d in documents]
    old = await store.load("t", ids[1])
    forked = {"messages": [*old["messages"], message("other way")], "step": 99}
    new = await store.save("t", forked, parent=ids[1])
    assert_same(await store.load("t", new), forked)
    for name, document in zip(ids, documents, strict=True):
        assert_same(await store.load("t", name), document)
    (info,) = await store.history("t", limit=1)
    assert info.parent == ids[1]


async def test_what_is_missing_is_none(store):
    assert await store.load("nobody") is None
    assert await store.load("nobody", "c") is None
    await store.save("t", {}, "c")
    assert await store.load("t", "other") is None
    await store.save("u", {}, "d")
    assert await store.load("t", "d") is None


async def test_an_empty_document_is_not_missing(store):
    await store.save("t", {})
    assert await store.load("t") == {}


async def test_what_was_saved_is_there_after_closing(store, other):
    for document in growing():
        await store.save("t", document)
    await store.close()
    assert_same(await store.load("t"), growing()[-1])
    assert_same(await other.load("t"), growing()[-1])


async def test_loads_while_others_save_see_whole_documents(store, other):
    documents = growing(30)

    async def write():
        for d in documents:
            await store.save("t", d)

    async def read():
        seen = 0
        while seen < 29:
            found = await other.load("t")
            if found is not None:
                assert_same(found, documents[found["step"]])
                assert found["step"] >= seen
                seen = found["step"]
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(write(), read(), read()), 60)


async def test_a_long_list_of_large_entries_loads(store, other):
    document = {"messages": [message(i, 20_000) for i in range(100)], "blob": bytes(500_000)}
    await store.save("t", document)
    assert_same(await other.load("t"), document)


async def test_many_versions_load_after_every_fiftieth(store, other):
    """Joining small blocks, where that is done, changes nothing."""
    documents = growing(170)
    ids = [await store.save("t", d) for d in documents]
    for i in (0, 1, 48, 49, 50, 51, 99, 100, 149, 150, 168, 169):
        assert_same(await other.load("t", ids[i]), documents[i])
    again = {"messages": [*documents[77]["messages"], message("new")]}
    new = await other.save("t", again)
    assert_same(await store.load("t", new), again)
