"""``save``: ids, versions, parents."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta

import pytest
from histories import message

from locus_store.core.errors import CheckpointNotFoundError


async def chain(store, thread_id="t"):
    """Ids and parents, oldest first."""
    return [(i.checkpoint_id, i.parent) for i in reversed(await store.history(thread_id, limit=None))]


async def versions(store, thread_id="t"):
    return [i.version for i in reversed(await store.history(thread_id, limit=None))]


async def test_the_id_that_is_given_comes_back(store):
    assert await store.save("t", {"a": 1}, checkpoint_id="c1") == "c1"
    assert await store.save("t", {"a": 2}, "c2") == "c2"
    assert await store.load("t", "c1") == {"a": 1}
    assert await store.load("t") == {"a": 2}


async def test_a_fresh_id_has_32_hexadecimal_digits_and_is_no_other(store):
    made = [await store.save("t", {"a": i}) for i in range(20)]
    assert len(set(made)) == 20
    assert all(len(i) == 32 and int(i, 16) >= 0 for i in made)
    assert await store.list_checkpoints("t", limit=None) == made[::-1]


async def test_versions_count_from_1_within_each_thread(store):
    for i in range(3):
        await store.save("t", {"a": i})
        await store.save("u", {"a": i})
    assert await versions(store, "t") == [1, 2, 3]
    assert await versions(store, "u") == [1, 2, 3]


async def test_the_parent_is_the_newest_checkpoint_at_that_moment(store, other):
    await store.save("t", {}, "a")
    await other.save("t", {}, "b")
    await store.save("t", {}, "c")
    assert await chain(store) == [("a", None), ("b", "a"), ("c", "b")]


async def test_the_parent_can_be_named(store):
    for name in "abc":
        await store.save("t", {}, name)
    await store.save("t", {}, "d", parent="a")
    await store.save("t", {}, "e")
    assert await chain(store) == [("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "d")]


async def test_a_parent_that_is_not_there_is_refused_and_nothing_is_written(store, place):
    await store.save("t", {"a": 1}, "a")
    await store.save("u", {}, "elsewhere")
    before = place.count()
    for parent in ("nowhere", "elsewhere"):
        with pytest.raises(CheckpointNotFoundError) as caught:
            await store.save("t", {"a": 2}, "b", parent=parent)
        assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", parent)
    with pytest.raises(CheckpointNotFoundError):
        await store.save("new", {"a": 2}, "b", parent="a")
    assert place.count() == before
    assert await store.list_threads() == ["u", "t"]
    await store.save("t", {}, "c")
    assert await versions(store) == [1, 2]


async def test_a_version_is_never_given_out_twice(store, other):
    for name in "abc":
        await store.save("t", {"n": name}, name)
    await store.delete("t", "c")
    await store.save("t", {"n": "d"}, "d")
    await other.delete("t", ["b", "d"])
    await store.save("t", {"n": "e"}, "e")
    assert await versions(store) == [1, 5]
    assert await chain(store) == [("a", None), ("e", "a")]


async def test_all_of_this_with_ids_that_nobody_named(store, other):
    """Where nothing has to be looked up, a save may be done in another way."""
    documents = [{"n": i, "l": [message(j) for j in range(i + 1)]} for i in range(6)]
    ids = [await (store, other)[i % 2].save("t", documents[i]) for i in range(4)]
    assert await chain(store) == list(zip(ids, [None, *ids], strict=False))
    await other.delete("t", ids[3])
    ids.append(await store.save("t", documents[4]))
    assert await versions(store) == [1, 2, 3, 5]
    assert (await chain(store))[-1] == (ids[4], ids[2])
    await other.delete("t", ids[1])
    ids.append(await store.save("t", documents[5]))
    assert await chain(store) == [(ids[0], None), (ids[2], None), (ids[4], ids[2]), (ids[5], ids[4])]
    for i in (0, 2, 4, 5):
        assert await other.load("t", ids[i]) == documents[i]
    await other.delete("t", ids)
    last = await store.save("t", documents[5])
    assert await chain(store) == [(last, None)]
    assert await versions(other) == [1]


async def test_a_parent_that_was_deleted_is_none(store):
    for name in "abc":
        await store.save("t", {"n": name}, name)
    await store.delete("t", "b")
    assert await chain(store) == [("a", None), ("c", None)]


async def test_a_thread_that_was_deleted_begins_again_at_version_1(store):
    await store.save("t", {"a": [1]}, "a")
    await store.save("t", {"a": [1, 2]}, "b")
    await store.delete("t")
    await store.save("t", {"a": [3]}, "c")
    assert await versions(store) == [1]
    assert await chain(store) == [("c", None)]
    assert await store.load("t") == {"a": [3]}


async def test_the_times_are_the_clocks_to_the_microsecond_in_utc(open_store, clock):
    store = open_store(clock=clock)
    await store.save("t", {}, "a")
    saved_at = clock.now
    clock.advance(hours=1)
    await store.save("t", {}, "b")
    newest, oldest = await store.history("t")
    assert oldest.created_at == saved_at
    assert oldest.created_at.tzinfo is UTC
    assert timedelta(0) <= newest.created_at - saved_at - timedelta(hours=1) < timedelta(milliseconds=1)
    assert oldest.updated_at == newest.updated_at == newest.created_at


async def test_times_of_one_thread_never_go_back(open_store, clock):
    for ids in (("a", "b", "c"), (None, None, None)):
        thread = f"named {ids[0]}"
        for name in ids:
            await open_store(clock=clock).save(thread, {}, name)
            clock.advance(days=-1)
        history = await open_store(clock=clock).history(thread)
        assert [i.version for i in history] == [3, 2, 1]
        times = [i.created_at for i in history]
        assert times == sorted(set(times), reverse=True)
        assert history[0].updated_at == times[0]


async def test_the_size_is_what_the_save_stored(store):
    messages = [{"role": "user", "content": f"{i}:" + "x" * 1000} for i in range(50)]
    await store.save("t", {"messages": messages[:49]}, "a")
    await store.save("t", {"messages": messages}, "b")
    await store.save("t", {"messages": messages}, "c")
    same, added, first = [i.size for i in await store.history("t")]
    assert 49_000 < first < 55_000
    if store.capabilities.incremental:
        assert 1_000 < added < 1_500
        assert 0 < same < 500
    else:
        assert first < added <= same < 55_000


async def test_the_arguments_stand_in_the_order_of_the_interface(store):
    await store.save("t", {"a": 1}, "c", {"m": 1})
    (info,) = await store.history("t")
    assert (info.checkpoint_id, info.metadata) == ("c", {"m": 1})


async def test_a_document_is_a_dict_and_so_is_metadata(store):
    for wrong in ([], "text", 5, b"{}", [("a", 1)]):
        with pytest.raises(TypeError, match="document must be a dict"):
            await store.save("t", wrong)
        with pytest.raises(TypeError, match="metadata must be a dict"):
            await store.save("t", {}, metadata=wrong)
    with pytest.raises(TypeError, match="document must be a dict"):
        await store.save("t", None)
    assert await store.exists("t") is False


async def test_an_option_that_is_not_there_is_refused(store):
    with pytest.raises(TypeError, match="overwrite"):
        await store.save("t", {}, overwrite=True)


async def test_saves_at_the_same_time_are_all_there(store, other):
    documents = [{"n": i, "list": ["x" * 300] * i} for i in range(40)]
    ids = await asyncio.gather(*[(store, other)[i % 2].save("t", d) for i, d in enumerate(documents)])
    assert await versions(store) == list(range(1, 41))
    for i, document in zip(ids, documents, strict=True):
        assert await store.load("t", i) == document


async def test_what_is_durable_is_seen_by_everybody_at_once(store, other):
    for i in range(5):
        name = await store.save("t", {"n": i})
        assert await other.load("t") == {"n": i}
        assert await other.list_checkpoints("t", limit=1) == [name]
        assert (await other.list_threads(limit=1)) == ["t"]
