"""Cases 34 to 41: order, pages, listings."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from histories import message
from store_fixtures import OBJECTS, briefly, only

ENDURANCE = pytest.mark.endurance


@briefly(*OBJECTS)
async def test_case_34_the_newest_is_the_last_even_if_the_clock_stands(open_store, clock):
    store = open_store(clock=clock)
    elsewhere = open_store(clock=clock)
    for i in range(100):
        await store.save(f"t{i}", {"n": 1}, "b")
        await (store, elsewhere)[i % 2].save(f"t{i}", {"n": 2}, "a")
    for i in range(100):
        assert await store.load(f"t{i}") == {"n": 2}
        assert await store.list_checkpoints(f"t{i}") == ["a", "b"]


@only("sqlite", "postgresql", "mariadb")
async def test_case_36_times_are_utc_wherever_client_and_server_are(open_store, place, monkeypatch):
    options = {
        "postgresql": {"connect_args": {"server_settings": {"timezone": "America/St_Johns"}}},
        "mariadb": {"connect_args": {"init_command": "SET SESSION time_zone = '-03:30'"}},
    }.get(place.name, {})
    for zone in ("Asia/Kolkata", "America/New_York", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        try:
            store = open_store(**options)
            before = datetime.now(UTC)
            await store.save("t", {})
            (info,) = await store.history("t", 1)
            assert info.created_at.utcoffset() == timedelta(0)
            assert (
                timedelta(0) <= info.created_at - before.replace(microsecond=before.microsecond) < timedelta(seconds=1)
            )
            exact = open_store(clock=lambda: 1_767_323_045_678_901, tenant=f"in {zone.lower()}", **options)
            await exact.save("t", {})
            assert (await exact.history("t"))[0].created_at == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        finally:
            monkeypatch.undo()
            time.tzset()


@only("file", "sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("threads", [60, pytest.param(10_000, marks=ENDURANCE)])
async def test_case_37_listing_reads_no_payload(place, threads):
    blobs = [os.urandom(50_000).hex() for _ in range(7)]
    async with place.open() as store:
        for i in range(threads):
            await store.save(f"t{i}", {"b": blobs[i % 7], "l": [blobs[i % 7][:5000]], "i": i}, metadata={"i": i})
    assert place.size() > threads * 100_000

    async def listings(store):
        assert len(await store.list_threads(limit=20)) == 20
        assert len(await store.list_threads(limit=20, pattern="*9*")) > 5
        assert len(await store.list_checkpoints("t7")) == 1
        assert len(await store.history("t7")) == 1
        assert await store.exists("t8") is True
        assert (await store.get_metadata("t9"))["metadata"] == {"i": 9}
        assert len(await store.list_with_metadata(limit=20)) == 20
        assert len(await store.query_by_metadata({"i": 7})) == 1

    async with place.open() as warm:
        await listings(warm)
    store = place.open()
    with place.reading() as read:
        await listings(store)
        await store.close()
        listed = read()
    with place.reading() as read:
        await store.load("t7")
        await store.close()
        loaded = read()
    await store.close()
    assert loaded > 80_000  # what is measured does see payloads
    # Files are looked at one by one: a header each, in each of five listings.
    assert listed < (40_000 + 25_000 * threads if place.name == "file" else 500_000 + 300 * threads)
    assert listed < threads * 100_000 / 2


@briefly(*OBJECTS)
@pytest.mark.parametrize("count", [1001])
async def test_case_38_nothing_is_cut_off_in_a_thread(store, place, count):
    for i in range(count):
        await store.save("t", {"i": i}, str(i))
    assert await store.list_checkpoints("t", limit=None) == [str(i) for i in range(count - 1, -1, -1)]
    assert len(await store.history("t", limit=None)) == count
    assert await store.delete("t", [str(i) for i in range(0, count, 2)]) is True
    assert len(await store.list_checkpoints("t", limit=None)) == count // 2
    assert await store.delete("t") is True
    assert place.count() == 0


@briefly("oracle-standin", *OBJECTS)
@pytest.mark.parametrize("count", [1001, pytest.param(10_001, marks=ENDURANCE)])
async def test_case_38_nothing_is_cut_off_in_a_listing(store, place, count):
    if count > 1001 and place.name in OBJECTS:
        pytest.skip("a bucket lists 1,000 at a time, and each deletion is a few requests")
    for i in range(count):
        await store.save(f"t{i}", {}, "c", {"k": 1})
    assert await store.list_threads(limit=5, offset=count - 1) == ["t0"]
    assert len(await store.list_threads(limit=None)) == count
    assert len(await store.query_by_metadata({"k": 1}, limit=None)) == count
    assert len(await store.list_with_metadata(limit=None)) == count
    assert await store.vacuum(older_than_days=0, keep_last=0) == count
    assert place.count() == 0


@only("file")
async def test_case_41_the_newest_of_a_thousand_needs_few_files(open_store, place):
    store = open_store()
    messages = [message(i, 100) for i in range(1000)]
    for i in range(1000):
        await store.save("t", {"messages": messages[: i + 1]})
    fresh = place.open()
    await fresh.list_threads()
    opened = []
    sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" and counting else None)
    counting = True
    assert len((await fresh.load("t"))["messages"]) == 1000
    loading, opened[:] = list(opened), []
    assert len(await fresh.list_checkpoints("t", 10)) == 10
    listing = list(opened)
    counting = False
    await fresh.close()
    assert 0 < len(loading) <= 80, len(loading)
    assert len(listing) <= 25, len(listing)
    assert not [path for path in listing if os.path.basename(str(path)).startswith("b0")]
