"""``ttl_seconds``: a thread lives so long after its last save; afterwards no read sees it. No test waits for a clock."""

from __future__ import annotations

import pytest
from histories import message

from locus_store.core.errors import ConflictError


@pytest.fixture
def store(open_store, clock):
    return open_store(clock=clock, ttl_seconds=60)


async def fill(store, thread_id="t"):
    for i in range(3):
        await store.save(thread_id, {"messages": [message(j) for j in range(i + 1)]}, f"c{i}", {"i": i})
    await store.put_records(thread_id, "scope", {"k": 1})


async def assert_gone(store, thread_id="t"):
    assert await store.exists(thread_id) is False
    assert await store.exists(thread_id, "c1") is False
    assert await store.load(thread_id) is None
    assert await store.load(thread_id, "c1") is None
    assert await store.list_checkpoints(thread_id) == []
    assert await store.history(thread_id) == []
    assert thread_id not in await store.list_threads()
    assert await store.get_metadata(thread_id) is None
    assert await store.query_by_metadata({"i": 2}) == []
    assert await store.query_by_metadata({}, versions="all", thread_id=thread_id) == []
    assert thread_id not in [r["thread_id"] for r in await store.list_with_metadata()]
    assert await store.records(thread_id, "scope") == {}


async def test_until_then_everything_is_there_and_then_nothing(store, open_store, clock):
    await fill(store)
    clock.advance(seconds=59.9)
    assert await store.list_checkpoints("t") == ["c2", "c1", "c0"]
    assert len((await store.load("t"))["messages"]) == 3
    assert await store.records("t", "scope") == {"k": 1}
    clock.advance(seconds=0.2)
    await assert_gone(store)
    # It is the thread that expires, whoever looks.
    await assert_gone(open_store(clock=clock))


async def test_a_save_extends_life_and_a_read_does_not(store, clock):
    await fill(store)
    clock.advance(seconds=50)
    await store.save("t", {"n": 1})
    clock.advance(seconds=50)
    assert await store.list_checkpoints("t") != []
    assert await store.load("t") == {"n": 1}
    assert await store.exists("t") is True
    clock.advance(seconds=11)
    await assert_gone(store)


async def test_all_checkpoints_of_a_thread_expire_together(store, clock):
    await fill(store)
    clock.advance(seconds=50)
    await store.save("t", {"n": 1}, "last")
    clock.advance(seconds=50)
    assert await store.list_checkpoints("t") == ["last", "c2", "c1", "c0"]
    assert len((await store.load("t", "c1"))["messages"]) == 2


async def test_each_thread_by_itself(store, clock):
    await fill(store, "a")
    clock.advance(seconds=30)
    await fill(store, "b")
    clock.advance(seconds=40)
    assert await store.list_threads() == ["b"]


async def test_without_one_nothing_expires(open_store, clock):
    store = open_store(clock=clock)
    await fill(store)
    clock.advance(days=10_000)
    assert len(await store.list_checkpoints("t")) == 3


async def test_a_save_without_one_takes_the_end_away(store, open_store, clock):
    await fill(store)
    await open_store(clock=clock).save("t", {"n": 1})
    clock.advance(days=10_000)
    assert await store.load("t") == {"n": 1}
    assert len(await store.list_checkpoints("t")) == 4


async def test_a_fraction_of_a_second(open_store, clock):
    store = open_store(clock=clock, ttl_seconds=0.5)
    await store.save("t", {})
    clock.advance(seconds=0.4)
    assert await store.exists("t")
    clock.advance(seconds=0.2)
    assert not await store.exists("t")


@pytest.mark.parametrize("named", ["new", None])
@pytest.mark.parametrize("expects", [{"expected_version": 0}, {}], ids=["expecting none", "expecting nothing"])
async def test_a_thread_that_expired_begins_anew(store, clock, place, named, expects):
    await fill(store)
    clock.advance(seconds=61)
    with pytest.raises(ConflictError) as caught:
        await store.save("t", {"n": 1}, expected_version=3)
    assert caught.value.actual == 0
    messages = [message(j) for j in range(4)]
    new = await store.save("t", {"messages": messages}, named, **expects)
    (info,) = await store.history("t")
    assert (info.checkpoint_id, info.version, info.parent) == (new, 1, None)
    assert await store.load("t") == {"messages": messages}
    assert await store.records("t", "scope") == {}
    assert await store.query_by_metadata({"i": 2}, versions="all") == []
    await store.delete("t")
    assert place.count() == 0


async def test_records_alone_expire(store, clock):
    await store.put_records("t", "scope", {"k": 1})
    clock.advance(seconds=59)
    assert await store.records("t", "scope") == {"k": 1}
    clock.advance(seconds=2)
    assert await store.records("t", "scope") == {}


async def test_what_expired_cannot_be_deleted_or_copied(store, clock):
    await fill(store)
    clock.advance(seconds=61)
    assert await store.delete("t", "c1") is False
    assert await store.copy_thread("t", "u") is False
    assert await store.delete("t") is False


async def test_what_expired_is_no_obstacle_to_a_copy(store, clock, place):
    await fill(store, "b")
    clock.advance(seconds=61)
    await fill(store, "a")
    assert await store.copy_thread("a", "b") is True
    assert await store.list_checkpoints("b") == ["c2", "c1", "c0"]
    clock.advance(seconds=61)
    await assert_gone(store, "b")
    await store.vacuum()
    assert place.count() == 0


def test_a_wrong_life_is_refused(place):
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="ttl_seconds"):
            place.open(ttl_seconds=wrong)
