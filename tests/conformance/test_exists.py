"""``exists``: a thread, or one checkpoint of it."""

from __future__ import annotations


async def test_a_thread(store, other):
    assert await store.exists("t") is False
    await other.save("t", {})
    assert await store.exists("t") is True
    assert await store.exists("T") is False
    await other.delete("t")
    assert await store.exists("t") is False


async def test_a_checkpoint(store):
    await store.save("t", {}, "a")
    await store.save("t", {}, "b")
    assert await store.exists("t", "a") is True
    assert await store.exists("t", checkpoint_id="b") is True
    assert await store.exists("t", "c") is False
    assert await store.exists("u", "a") is False
    await store.delete("t", "a")
    assert await store.exists("t", "a") is False
    assert await store.exists("t") is True


async def test_the_thread_goes_with_its_last_checkpoint(store):
    await store.save("t", {}, "a")
    await store.delete("t", "a")
    assert await store.exists("t") is False


async def test_records_alone_are_no_thread(store):
    await store.put_records("t", "scope", {"k": 1})
    assert await store.exists("t") is False
