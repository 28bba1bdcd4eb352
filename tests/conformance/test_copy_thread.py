"""``copy_thread``: a thread under another name, whole or up to a checkpoint, then each on its own."""

from __future__ import annotations

import asyncio
import random

import pytest
from cases import assert_same
from histories import HISTORIES, MIXED, message

from locus_store.core.errors import CheckpointNotFoundError, ThreadExistsError


async def fill(store, thread_id="a", count=4):
    documents = {}
    for i in range(count):
        documents[f"c{i}"] = {"messages": [message(f"{thread_id} {j}") for j in range(i + 1)], "step": i}
        await store.save(thread_id, documents[f"c{i}"], f"c{i}", {"step": i, "of": thread_id})
    return documents


def shape(history):
    return [(i.checkpoint_id, i.version, i.parent, i.created_at, i.metadata, i.size) for i in history]


async def test_ids_order_parents_metadata_and_times_come_along(store, other):
    documents = await fill(store)
    await store.save("a", {}, "d", parent="c0")
    assert await store.copy_thread("a", "b") is True
    assert shape(await other.history("b")) == shape(await other.history("a"))
    for name, document in documents.items():
        assert_same(await other.load("b", name), document)
    assert await other.load("b") == {}
    assert await store.list_threads() == ["b", "a"]


async def test_records_come_along(store):
    await fill(store)
    await store.put_records("a", "scope", {"k": [1, (2,)], "l": None})
    await store.copy_thread("a", "b")
    await store.delete_records("a")
    assert await store.records("b", "scope") == {"k": [1, (2,)], "l": None}


async def test_metadata_of_the_copy_is_found(store):
    await fill(store)
    await store.copy_thread("a", "b")
    assert [r["thread_id"] for r in await store.query_by_metadata({"step": 3})] == ["b", "a"]
    found = await store.query_by_metadata({"step": 1}, versions="all", thread_id="b")
    assert [r["checkpoint_id"] for r in found] == ["c1"]


@pytest.mark.parametrize("upto", ["c0", "c2", "c3"])
async def test_up_to_a_checkpoint(store, other, upto):
    documents = await fill(store)
    assert await store.copy_thread("a", "b", upto=upto) is True
    names = list(documents)[: list(documents).index(upto) + 1]
    assert await other.list_checkpoints("b") == names[::-1]
    assert_same(await other.load("b"), documents[upto])
    for name in names:
        assert_same(await other.load("b", name), documents[name])
    assert await other.query_by_metadata({"step": len(names)}, versions="all", thread_id="b") == []
    await store.save("b", {"n": 1}, metadata={"step": len(names), "of": "a"})
    (info,) = await store.history("b", 1)
    assert (info.version, info.parent) == (len(names) + 1, upto)
    assert await store.list_checkpoints("a") == list(documents)[::-1]


async def test_up_to_a_checkpoint_copies_no_later_entry(store, place):
    await fill(store, count=2)
    await store.save("a", {"secret": [message("s3cr3t", 50_000)]})
    # Its number is below that of what is copied.
    await store.save("a", {"messages": [message("anew")] * 3}, "c1", if_exists="in_place")
    before = place.size()
    await store.copy_thread("a", "b", upto="c1")
    assert place.size() - before < 10_000
    assert await store.load("b") == {"messages": [message("anew")] * 3}


@pytest.mark.parametrize("history", MIXED)
async def test_any_part_of_any_history_loads(store, other, history):
    documents = HISTORIES[history]
    ids = [await store.save("a", d) for d in documents]
    for upto in random.Random(history).sample(range(len(ids)), min(3, len(ids))):
        assert await other.copy_thread("a", "b", upto=ids[upto], overwrite=True) is True
        for name, document in zip(ids[: upto + 1], documents, strict=False):
            assert_same(await store.load("b", name), document)
        assert len(await store.list_checkpoints("b", None)) == upto + 1
        await store.save("b", documents[-1])
        assert_same(await other.load("b"), documents[-1])


async def test_then_each_goes_on_alone(store, other):
    documents = await fill(store)
    await store.copy_thread("a", "b")
    for thread in ("a", "b"):
        more = {"messages": [*documents["c3"]["messages"], message(f"more {thread}")]}
        await store.save(thread, more, "more")
        assert_same(await other.load(thread), more)
    await store.delete("a", ["c0", "c2"])
    await other.vacuum(older_than_days=0, keep_last=1)
    assert (await store.load("b"))["messages"][-1] == message("more b")
    assert (await store.load("a"))["messages"][-1] == message("more a")


@pytest.mark.parametrize("gone", ["a", "b"])
async def test_deleting_one_leaves_the_other(store, other, gone):
    documents = await fill(store)
    await store.copy_thread("a", "b")
    await store.delete(gone)
    left = "b" if gone == "a" else "a"
    for name, document in documents.items():
        assert_same(await other.load(left, name), document)
    assert await store.list_threads() == [left]


async def test_a_missing_source_is_false(store, place):
    assert await store.copy_thread("nobody", "b") is False
    assert await store.copy_thread("nobody", "b", upto="c0") is False
    assert await store.copy_thread("nobody", "b", overwrite=True) is False
    await fill(store, "b")
    assert await store.copy_thread("nobody", "b", overwrite=True) is False
    assert len(await store.list_checkpoints("b")) == 4


async def test_an_existing_destination_is_an_error(store, place):
    await fill(store, "a")
    documents = await fill(store, "b", 2)
    before = place.count()
    with pytest.raises(ThreadExistsError, match="overwrite=True") as caught:
        await store.copy_thread("a", "b")
    assert caught.value.thread_id == "b"
    assert place.count() == before
    assert_same(await store.load("b"), documents["c1"])


async def test_unless_it_is_to_be_overwritten(store, other, place):
    documents = await fill(store, "a")
    await fill(store, "b", 7)
    await store.put_records("b", "old", {"k": 1})
    await other.load("b")
    assert await store.copy_thread("a", "b", overwrite=True) is True
    assert await other.list_checkpoints("b") == list(documents)[::-1]
    assert_same(await other.load("b"), documents["c3"])
    assert await other.load("b", "c5") is None
    assert await other.records("b", "old") == {}
    assert await other.query_by_metadata({"of": "b"}, versions="all") == []
    # What either of them believes of the thread that was there is no longer so.
    for who in (other, store):
        more = {"messages": [*documents["c3"]["messages"], message(id(who))]}
        await who.save("b", more)
        assert_same(await store.load("b"), more)
    await store.delete("b")
    await store.delete("a")
    assert place.count() == 0


async def test_onto_itself_is_refused(store):
    await fill(store)
    with pytest.raises(ValueError, match="onto itself"):
        await store.copy_thread("a", "a")
    with pytest.raises(ValueError, match="onto itself"):
        await store.copy_thread("a", "a", overwrite=True)
    assert len(await store.list_checkpoints("a")) == 4


async def test_an_end_that_is_not_there_is_refused(store, place):
    await fill(store)
    await store.save("u", {}, "elsewhere")
    before = place.count()
    with pytest.raises(CheckpointNotFoundError) as caught:
        await store.copy_thread("a", "b", upto="elsewhere")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("a", "elsewhere")
    assert place.count() == before


async def test_where_only_records_were(store):
    """A thread without checkpoints is not there, so it is no obstacle, and what it held is replaced."""
    await fill(store)
    await store.put_records("b", "old", {"k": 1})
    assert await store.copy_thread("a", "b") is True
    assert await store.records("b", "old") == {}


async def test_records_alone_are_no_source(store):
    await store.put_records("a", "scope", {"k": 1})
    assert await store.copy_thread("a", "b") is False


async def test_copies_while_others_save_are_whole(store, other):
    documents = [{"messages": [message(j) for j in range(i)], "i": i} for i in range(40)]
    for i in range(5):
        await store.save("a", documents[i], str(i))

    async def write():
        for i in range(5, 40):
            await store.save("a", documents[i], str(i))

    async def copy():
        for i in range(8):
            assert await other.copy_thread("a", f"b{i}") is True

    await asyncio.gather(write(), copy())
    for i in range(8):
        names = await store.list_checkpoints(f"b{i}", limit=None)
        assert names == [str(n) for n in range(len(names))][::-1]
        for name in (names[0], names[len(names) // 2]):
            assert_same(await store.load(f"b{i}", name), documents[int(name)])


async def test_only_one_of_several_copies_onto_a_new_thread_wins(store, other):
    for name in "xyz":
        await fill(store, name, 3)
    found = await asyncio.gather(
        *[(store, other)[i % 2].copy_thread(name, "b") for i, name in enumerate("xyz")], return_exceptions=True
    )
    assert sorted(map(str, map(type, found))) == sorted(map(str, [bool, ThreadExistsError, ThreadExistsError]))
    (winner,) = [name for name, result in zip("xyz", found, strict=True) if result is True]
    assert [i.metadata["of"] for i in await store.history("b")] == [winner] * 3
