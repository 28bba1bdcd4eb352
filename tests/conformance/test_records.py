"""Records: small keyed values beside a thread's checkpoints."""

from __future__ import annotations

import asyncio

import pytest
from cases import IDS, VALUES, assert_same

from locus_store.core.errors import SerializationError


async def test_in_the_order_in_which_the_keys_came(store, other):
    await store.put_records("t", "s", {"b": 1, "a": 2})
    await other.put_records("t", "s", {"c": 3, "b": 4})
    assert list((await store.records("t", "s")).items()) == [("b", 4), ("a", 2), ("c", 3)]


async def test_keep_leaves_what_is_there(store, other):
    await store.put_records("t", "s", {"a": 1})
    await other.put_records("t", "s", {"a": 2, "b": 2}, keep=True)
    assert await store.records("t", "s") == {"a": 1, "b": 2}


async def test_scopes_are_apart(store):
    await store.put_records("t", "s1", {"a": 1})
    await store.put_records("t", "s2", {"a": 2})
    await store.put_records("u", "s1", {"a": 3})
    assert await store.records("t", "s1") == {"a": 1}
    assert await store.records("t", "s2") == {"a": 2}
    assert await store.records("t", "s") == {}
    assert await store.records("u", "s1") == {"a": 3}


async def test_deleting_a_scope_or_all_of_them(store, place):
    for scope in ("s1", "s2", "s3"):
        await store.put_records("t", scope, {"a": 1, "b": 2})
    assert await store.delete_records("t", "s1") == 2
    assert await store.delete_records("t", "s1") == 0
    assert await store.records("t", "s2") == {"a": 1, "b": 2}
    assert await store.delete_records("t") == 4
    assert await store.delete_records("t") == 0
    assert await store.delete_records("nobody") == 0
    assert place.count() == 0


async def test_deleting_them_leaves_the_checkpoints(store):
    await store.save("t", {"a": 1})
    await store.put_records("t", "s", {"a": 1})
    await store.delete_records("t")
    assert await store.load("t") == {"a": 1}


async def test_they_need_no_checkpoint_and_make_no_thread(store):
    await store.put_records("t", "to come", {"a": 1})
    assert await store.exists("t") is False
    assert await store.list_threads() == []
    assert await store.query_by_metadata({}) == []
    await store.save("t", {"n": 1}, "to come", expected_version=0)
    assert await store.records("t", "to come") == {"a": 1}
    assert [i.version for i in await store.history("t")] == [1]


async def test_deleting_a_thread_of_records_only(store, place):
    await store.put_records("t", "s", {"a": 1})
    await store.delete("t")
    assert await store.records("t", "s") == {}
    assert place.count() == 0


async def test_they_move_no_thread_to_the_front(store):
    await store.save("a", {})
    await store.save("b", {})
    await store.put_records("a", "s", {"k": 1})
    assert await store.list_threads() == ["b", "a"]


async def test_nothing_at_all(store, place):
    await store.put_records("t", "s", {})
    assert await store.records("t", "s") == {}
    assert place.count() == 0


async def test_values_come_back_as_they_are(store, other):
    await store.put_records("t", "s", VALUES)
    found = await other.records("t", "s")
    assert list(found) == list(VALUES)
    for name, value in VALUES.items():
        assert_same(found[name], value)


async def test_any_scope_and_key(store, place):
    for i, name in enumerate(IDS):
        await store.put_records("t", name, {name: i})
    for i, name in enumerate(IDS):
        assert await store.records("t", name) == {name: i}
    await store.put_records("u", "s", {name: name for name in IDS})
    assert list(await store.records("u", "s")) == IDS


async def test_what_cannot_be_stored_is_refused_whole(store, place):
    with pytest.raises(SerializationError) as caught:
        await store.put_records("t", "s", {"good": 1, "bad": [object()]})
    assert caught.value.path == "$.bad[0]"
    assert await store.records("t", "s") == {}
    assert place.count() == 0


async def test_wrong_scopes_and_keys_are_refused(store, place):
    for wrong in ("", "a\x00", "x" * 513, 5):
        with pytest.raises((TypeError, ValueError), match="scope"):
            await store.put_records("t", wrong, {"a": 1})
        with pytest.raises((TypeError, ValueError), match="scope"):
            await store.records("t", wrong)
        with pytest.raises((TypeError, ValueError), match="scope"):
            await store.delete_records("t", wrong)
        with pytest.raises((TypeError, ValueError), match="key"):
            await store.put_records("t", "s", {"good": 1, wrong: 1})
    assert place.count() == 0


async def test_many_at_the_same_time_are_all_there(store, other):
    await asyncio.gather(
        *[(store, other)[i % 2].put_records("t", "s", {f"k{i}": i, "shared": i}) for i in range(30)],
        *[store.save("t", {"i": i}) for i in range(10)],
    )
    found = await store.records("t", "s")
    assert {k: v for k, v in found.items() if k != "shared"} == {f"k{i}": i for i in range(30)}
    assert found["shared"] in range(30)
    assert len(await other.list_checkpoints("t")) == 10


async def test_keep_lets_only_the_first_of_many_in(store, other):
    await asyncio.gather(*[(store, other)[i % 2].put_records("t", "s", {"k": i}, keep=True) for i in range(20)])
    first = (await store.records("t", "s"))["k"]
    await other.put_records("t", "s", {"k": "later"}, keep=True)
    assert await other.records("t", "s") == {"k": first}


async def test_what_is_loaded_is_the_callers_own(store):
    await store.put_records("t", "s", {"a": [1]})
    (await store.records("t", "s"))["a"].append(2)
    assert await store.records("t", "s") == {"a": [1]}
