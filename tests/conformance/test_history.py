"""``history``: checkpoints without their documents, newest first, page by page."""

from __future__ import annotations

import pytest

from locus_store.core.infos import CheckpointInfo


@pytest.fixture
async def ids(store):
    return [await store.save("t", {"n": i}, metadata={"n": i} if i % 2 else None) for i in range(25)]


async def test_what_it_says(open_store, clock):
    store = open_store(clock=clock)
    await store.save("t", {"n": 0}, "a", {"k": [1]})
    clock.advance(seconds=5)
    await store.save("t", {"n": 1}, "b")
    newest, oldest = await store.history("t")
    assert isinstance(oldest, CheckpointInfo)
    assert (oldest.thread_id, oldest.checkpoint_id, oldest.version, oldest.parent) == ("t", "a", 1, None)
    assert (newest.thread_id, newest.checkpoint_id, newest.version, newest.parent) == ("t", "b", 2, "a")
    assert (oldest.metadata, newest.metadata) == ({"k": [1]}, None)
    assert oldest.size > 0
    assert oldest.created_at < newest.created_at == newest.updated_at == oldest.updated_at


async def test_newest_first_ten_unless_told_otherwise(store, ids):
    assert [i.checkpoint_id for i in await store.history("t")] == ids[:14:-1]
    assert [i.version for i in await store.history("t", limit=None)] == list(range(25, 0, -1))
    assert [i.version for i in await store.history("t", 2)] == [25, 24]
    assert await store.history("t", 0) == []


@pytest.mark.parametrize("by", ["checkpoint_id", "version"])
async def test_page_by_page_everything_once(store, ids, by):
    seen, before = [], None
    while page := await store.history("t", limit=7, before=before):
        seen += [i.checkpoint_id for i in page]
        before = getattr(page[-1], by)
    assert seen == ids[::-1]


async def test_pages_stay_true_while_others_save_and_delete(store, other, ids):
    first = await store.history("t", limit=5)
    await other.save("t", {"n": "new"})
    await other.delete("t", ids[23])
    second = await store.history("t", limit=5, before=first[-1].version)
    assert [i.checkpoint_id for i in second] == ids[19:14:-1]


async def test_before_the_first_there_is_nothing(store, ids):
    assert await store.history("t", before=1) == []
    assert await store.history("t", before=0) == []
    assert await store.history("t", before=ids[0]) == []


async def test_before_a_checkpoint_that_is_not_there_there_is_nothing(store, ids):
    assert await store.history("t", before="nowhere") == []
    assert await store.history("nobody", before="nowhere") == []


async def test_before_a_version_that_is_gone(store, ids):
    await store.delete("t", ids[9])
    assert [i.version for i in await store.history("t", 2, before=10)] == [9, 8]
    assert [i.version for i in await store.history("t", 2, before=11)] == [9, 8]


async def test_before_a_version_that_is_yet_to_come(store, ids):
    assert [i.version for i in await store.history("t", 1, before=10**12)] == [25]


async def test_a_missing_thread_has_none(store):
    assert await store.history("nobody") == []


async def test_a_wrong_before_is_refused(store):
    for before, error in ((-1, ValueError), (True, TypeError), (1.0, TypeError), ("", ValueError)):
        with pytest.raises(error):
            await store.history("t", before=before)


async def test_metadata_of_every_checkpoint(store, ids):
    found = {i.version - 1: i.metadata for i in await store.history("t", limit=None)}
    assert found == {n: {"n": n} if n % 2 else None for n in range(25)}
