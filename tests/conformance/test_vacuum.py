"""``vacuum``: old checkpoints go, the newest of each thread stay, and nothing unneeded is left."""

from __future__ import annotations

import asyncio

import pytest
from cases import assert_same
from histories import HISTORIES, MIXED, message


async def fill(store, clock, thread_id="t", days=5):
    """One checkpoint a day, the last of them today."""
    documents = {}
    for i in range(days):
        documents[f"d{i}"] = {"messages": [message(f"{thread_id} {j}") for j in range(i + 1)], "i": i}
        await store.save(thread_id, documents[f"d{i}"], f"d{i}", {"i": i})
        if i < days - 1:
            clock.advance(days=1)
    return documents


@pytest.fixture
def store(open_store, clock):
    return open_store(clock=clock)


async def left(store, thread_id="t"):
    return (await store.list_checkpoints(thread_id, limit=None))[::-1]


SWEEPS = [
    ({}, ["d0", "d1", "d2", "d3", "d4"]),
    ({"older_than_days": 2.5}, ["d2", "d3", "d4"]),
    ({"older_than_days": 2.5, "keep_last": 4}, ["d1", "d2", "d3", "d4"]),
    ({"older_than_days": 0.5}, ["d4"]),
    ({"older_than_days": 0}, ["d4"]),
    ({"older_than_days": 0, "keep_last": 2}, ["d3", "d4"]),
    ({"older_than_days": 0, "keep_last": 9}, ["d0", "d1", "d2", "d3", "d4"]),
    ({"older_than_days": 1.5, "keep_last": 0}, ["d3", "d4"]),
    ({"older_than_days": 10**9}, ["d0", "d1", "d2", "d3", "d4"]),
]


async def test_older_checkpoints_go_but_not_the_newest(store, other, clock):
    for i, (arguments, kept) in enumerate(SWEEPS):
        mine, others = store.tenant(f"case {i}"), other.tenant(f"case {i}")
        documents = await fill(mine, clock)
        assert await mine.vacuum(**arguments) == 5 - len(kept), arguments
        assert await left(mine) == kept, arguments
        for name in kept:
            assert_same(await others.load("t", name), documents[name])
            assert_same(await mine.load("t", name), documents[name])
        more = {"messages": [*documents["d4"]["messages"], message("more")]}
        await mine.save("t", more)
        assert_same(await others.load("t"), more)


async def test_thirty_days_and_one_checkpoint_unless_told_otherwise(store, clock):
    await fill(store, clock)
    clock.advance(days=27)
    assert await store.vacuum() == 1
    clock.advance(days=300)
    assert await store.vacuum() == 3
    assert await store.vacuum() == 0
    assert await left(store) == ["d4"]


async def test_every_thread_keeps_its_newest(store, clock):
    for i in range(30):
        await fill(store, clock, f"t{i}", days=3)
    clock.advance(days=100)
    assert await store.vacuum() == 60
    assert len(await store.list_threads()) == 30
    assert await left(store, "t7") == ["d2"]


async def test_with_nothing_to_keep_whole_threads_go(store, clock, place):
    await fill(store, clock, "old")
    await store.put_records("old", "scope", {"k": 1})
    clock.advance(days=100)
    await fill(store, clock, "new", 2)
    assert await store.vacuum(older_than_days=50, keep_last=0) == 5
    assert await store.list_threads() == ["new"]
    assert await store.records("old", "scope") == {}
    await store.delete("new")
    assert place.count() == 0


async def test_the_order_of_threads_stays(store, clock):
    for name in "abc":
        await fill(store, clock, name, 2)
    clock.advance(days=100)
    await store.vacuum()
    assert await store.list_threads() == ["c", "b", "a"]


@pytest.mark.parametrize("history", MIXED)
async def test_any_history_keeps_what_it_keeps(store, other, clock, place, history):
    documents = HISTORIES[history]
    ids = [await store.save("t", d) for d in documents]
    clock.advance(days=1)
    assert await store.vacuum(older_than_days=0.5, keep_last=2) == len(ids) - 2
    for name, document in list(zip(ids, documents, strict=True))[-2:]:
        assert_same(await store.load("t", name), document)
        assert_same(await other.load("t", name), document)
    before = place.size()
    assert await store.vacuum(older_than_days=0.5, keep_last=2) == 0
    assert place.size() == before


async def test_what_expired_goes(open_store, clock, place):
    store = open_store(clock=clock, ttl_seconds=60)
    await fill(store, clock, "t", 1)
    await store.save("t", {})
    await store.put_records("u", "scope", {"k": 1})
    clock.advance(seconds=61)
    assert await store.vacuum() == 2
    assert place.count() == 0


async def test_what_the_result_says(store, clock):
    await fill(store, clock)
    clock.advance(days=100)
    result = await store.vacuum()
    assert isinstance(result, int)
    assert result == 4
    assert result.blocks >= 0
    assert result.bytes_freed == 0


async def test_while_others_save_and_load(open_store, clock, other):
    store = open_store()
    documents = [{"messages": [message(j) for j in range(i)], "i": i} for i in range(60)]

    async def write():
        for i, d in enumerate(documents):
            await store.save("t", d, str(i))

    async def sweep():
        for _ in range(15):
            await other.vacuum(older_than_days=0, keep_last=3)
            await asyncio.sleep(0)

    async def read():
        for _ in range(60):
            found = await other.load("t")
            assert found is None or found == documents[found["i"]]
            await asyncio.sleep(0)

    await asyncio.gather(write(), sweep(), read())
    for name in await left(store):
        assert_same(await other.load("t", name), documents[int(name)])
    assert_same(await store.load("t"), documents[-1])


async def test_wrong_arguments_are_refused(store, clock):
    await fill(store, clock)
    clock.advance(days=100)
    for name, value, error in (
        ("older_than_days", -1, ValueError),
        ("older_than_days", float("nan"), ValueError),
        ("older_than_days", "30", (TypeError, ValueError)),
        ("keep_last", -1, ValueError),
        ("keep_last", 1.0, TypeError),
        ("keep_last", None, TypeError),
    ):
        with pytest.raises(error, match=name):
            await store.vacuum(**{name: value})
    assert len(await left(store)) == 5
