"""Cases 14 to 23: size, growth, cleaning up."""

from __future__ import annotations

import os
import random

import pytest
from cases import assert_same
from histories import message
from store_fixtures import only

from locus_store.core.errors import CorruptCheckpointError, PayloadTooLargeError

ENDURANCE = pytest.mark.endurance


@only("postgresql", "mariadb")
@pytest.mark.parametrize("size", [30_000_000, pytest.param(300_000_000, marks=ENDURANCE)])
async def test_case_14_a_long_session_in_one_piece(store, other, size):
    await store.save("t", {"n": 1}, "earlier")
    document = {"b": "x" * size}
    try:
        await store.save("t", document, "large")
    except PayloadTooLargeError as e:
        assert e.size > e.limit
        assert await other.list_checkpoints("t") == ["earlier"]
    else:
        found = await other.load("t")
        assert found.keys() == {"b"}
        assert len(found["b"]) == size
        assert found["b"] == document["b"]
    assert await other.load("t", "earlier") == {"n": 1}
    await store.save("t", {"n": 2}, "later")
    assert await other.load("t") == {"n": 2}


async def test_case_18_a_list_that_grows_is_stored_once(store, other, place, clock, open_store):
    incremental = store.capabilities.incremental
    steps = 500 if incremental else 100
    rng = random.Random(18)
    messages = [{"role": "user", "content": rng.randbytes(512).hex()} for _ in range(steps)]
    for i in range(steps):
        await store.save("t", {"messages": messages[: i + 1], "step": i})
    once, copies = steps * 1024, steps * (steps + 1) // 2 * 1024
    stored = place.size()
    if incremental:
        assert stored < 1.5 * once
        assert stored < copies / 10
    else:  # or not at all, but compressed: of hexadecimal digits half is left, and more at its fastest
        assert copies / 2 < stored < copies * 0.65
    clock.advance(days=400)
    sweeper = open_store(clock=lambda: clock() * 2)
    assert await sweeper.vacuum(older_than_days=30, keep_last=5) == steps - 5
    assert place.size() < (1.3 if incremental else 5 * 0.65) * once
    assert len(await other.list_checkpoints("t", None)) == 5
    for i, name in enumerate(await other.list_checkpoints("t")):
        assert_same(await other.load("t", name), {"messages": messages[: steps - i], "step": steps - 1 - i})
    # And what slides out of a window goes.
    for i in range(5):
        await store.save("t", {"messages": messages[-10:], "step": i})
    await sweeper.vacuum(older_than_days=30, keep_last=5)
    assert place.size() < 35 * 1024


async def test_case_19_keeping_the_newest_only(open_store, clock, place):
    store = open_store(clock=clock)
    shared = [message(i) for i in range(4)]
    documents = {f"c{i}": {"messages": shared[: i + 1], "own": [message(f"own {i}")] * 2} for i in (1, 2, 3)}
    for name, document in documents.items():
        await store.save("t", document, name)
    await store.copy_thread("t", "fork", upto="c2")
    await store.save("fork", {"messages": [*shared[:3], message("fork")]}, "f")
    await store.save("t", {"messages": [*shared[:3], message("branch")]}, "branch", parent="c2")
    await store.save("t", documents["c3"], "c3")
    clock.advance(days=400)
    assert await store.vacuum(keep_last=1) == 3 + 2
    other = open_store(clock=clock)
    assert await other.list_checkpoints("t") == ["c3"]
    assert await other.list_checkpoints("fork") == ["f"]
    assert_same(await other.load("t"), documents["c3"])
    assert_same(await other.load("fork"), {"messages": [*shared[:3], message("fork")]})
    # No more is left than these two would take by themselves.
    left = place.size()
    await store.delete("t")
    await store.delete("fork")
    await store.save("t", documents["c3"], "c3")
    await store.save("fork", {"messages": [*shared[:3], message("fork")]}, "f")
    assert left < place.size() + 1000


async def test_case_20_deleting_a_thread_leaves_nothing(open_store, place):
    store = open_store(ttl_seconds=3600)
    await store.save("other", {"messages": [message(1)]}, metadata={"k": 1})
    before = place.count()
    for i in range(3):
        await store.save("t", {"messages": [message(j) for j in range(i + 1)]}, metadata={"i": i, "tags": ["a", "b"]})
    await store.put_records("t", "scope", {"k": 1})
    assert place.count() > before
    assert await store.delete("t") is True
    assert place.count() == before
    assert await store.delete("t") is False
    assert await store.exists("t") is False
    await store.delete("other")
    assert place.count() == 0


@only("sqlite", "postgresql", "mariadb")
async def test_case_22_deleted_space_is_given_back(store, other, place):
    await store.save("kept", {"n": 1})
    assert await other.load("kept") == {"n": 1}  # a connection that is idle from here on
    blob = os.urandom(10_000_000)
    for i in range(5):
        await store.save("t", {"b": blob, "i": i, "l": [blob[:1000]]})
    used = place.disk()
    assert used > 50_000_000
    await store.delete("t")
    result = await store.vacuum(reclaim=True)
    assert result.bytes_freed > 45_000_000
    assert place.disk() < used - 45_000_000
    assert await other.load("kept") == {"n": 1}
    await other.save("kept", {"n": 2})
    assert await store.load("kept") == {"n": 2}


async def test_case_23_a_thread_expires_whole(open_store, clock, place):
    store = open_store(clock=clock, ttl_seconds=2)
    for i in range(3):
        await store.save("t", {"messages": [message(j) for j in range(i + 1)]}, f"c{i}", {"k": 1})
    clock.advance(seconds=1)
    for i in range(3):
        assert len((await store.load("t", f"c{i}"))["messages"]) == i + 1
    clock.advance(seconds=1.5)  # reading did not extend its life
    assert await store.exists("t") is False
    assert await store.list_threads() == []
    assert await store.query_by_metadata({"k": 1}) == []
    assert await store.load("t", "c0") is None
    await store.vacuum()
    assert place.count() == 0


async def test_case_23_the_save_and_its_expiry_are_one_step(open_store, clock, place):
    """What a refused save would have set is not set."""
    store = open_store(clock=clock, ttl_seconds=100)
    await store.save("t", {"n": 1}, "c")
    clock.advance(seconds=60)
    place.damage("c", lambda _: b"null")
    with pytest.raises(CorruptCheckpointError):
        await store.load("t")
    assert await store.list_checkpoints("t") == ["c"]
    clock.advance(seconds=60)
    assert await store.load("t") is None
    assert await store.list_checkpoints("t") == []
