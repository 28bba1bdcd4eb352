"""``list_checkpoints``: ids, newest first."""

from __future__ import annotations

import pytest


async def test_newest_first(store):
    for name in ("b", "c", "a"):
        await store.save("t", {}, name)
    assert await store.list_checkpoints("t") == ["a", "c", "b"]


async def test_ten_unless_told_otherwise(store):
    ids = [await store.save("t", {}) for _ in range(13)]
    newest_first = ids[::-1]
    assert await store.list_checkpoints("t") == newest_first[:10]
    assert await store.list_checkpoints("t", 3) == newest_first[:3]
    assert await store.list_checkpoints("t", limit=13) == newest_first
    assert await store.list_checkpoints("t", limit=99) == newest_first
    assert await store.list_checkpoints("t", limit=None) == newest_first
    assert await store.list_checkpoints("t", limit=0) == []


async def test_a_missing_thread_has_none(store):
    assert await store.list_checkpoints("nobody") == []


async def test_only_its_own(store):
    await store.save("t", {}, "a")
    await store.save("u", {}, "b")
    assert await store.list_checkpoints("t") == ["a"]


async def test_a_wrong_limit_is_refused(store):
    for limit, error in ((-1, ValueError), ("5", TypeError), (True, TypeError), (2.0, TypeError)):
        with pytest.raises(error, match="limit"):
            await store.list_checkpoints("t", limit)
