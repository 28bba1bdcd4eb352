"""A writer that ends at any of its calls: what was acknowledged is there, the next one goes on, a sweep leaves nothing.

Every scenario is run once for each call that it makes on the bucket, and ends there. Then another process looks, repeats what was not acknowledged, and sweeps two hours later.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from objects.memory_port import Bucket, CrashError, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend
from locus_store.core.clock import IncreasingClock

Work = Callable[[Backend], Awaitable[Any]]
START = time.time_ns() // 1000
HOUR = 3_600_000_000


def store_of(bucket: Bucket, *, hours: int = 0, **options: Any) -> Backend:
    """A store in a process of its own, some hours after the start."""
    options.setdefault("clock", IncreasingClock(lambda: START + hours * HOUR))
    return Backend(ObjectDriver(MemoryPort(bucket)), **options)


@dataclass(frozen=True)
class Scenario:
    """Something that is done to a store, and can be repeated until it is done.

    Attributes:
        before: What is done first.
        work: What is cut off.
        options: Of the store that does it.
    """

    before: Work
    work: Work
    options: dict[str, Any]


async def three(store: Backend) -> None:
    for name in "abc":
        await store.save("t", {"of": name}, name, metadata={"of": name})
    await store.put_records("t", "s", {"k": 1})
    await store.save("other", {"n": 1}, "o")


async def nothing(store: Backend) -> None:
    pass


async def copied(store: Backend) -> None:
    await three(store)
    await store.copy_thread("t", "u")
    await store.delete("t")
    await store.copy_thread("u", "t")


def scenario(before: Work, work: Work, **options: Any) -> Any:
    return Scenario(before, work, options)


SCENARIOS = {
    "the first save": scenario(nothing, lambda s: s.save("t", {"of": "d"}, "d", metadata={"of": "d"})),
    "a save": scenario(three, lambda s: s.save("t", {"of": "d"}, "d", metadata={"of": "d"})),
    "a save after a copy": scenario(copied, lambda s: s.save("t", {"of": "d"}, "d")),
    "an old id again": scenario(three, lambda s: s.save("t", {"of": "new"}, "a")),
    "the newest id again": scenario(three, lambda s: s.save("t", {"of": "new"}, "c")),
    "an old one in place": scenario(three, lambda s: s.save("t", {"of": "new"}, "a", if_exists="in_place")),
    "the newest one in place": scenario(three, lambda s: s.save("t", {"of": "new"}, "c", if_exists="in_place")),
    "a copied one in place": scenario(copied, lambda s: s.save("t", {"of": "new"}, "a", if_exists="in_place")),
    "keeping two": scenario(three, lambda s: s.save("t", {"of": "d"}, "d"), keep_checkpoints=2),
    "a thread is deleted": scenario(three, lambda s: s.delete("t")),
    "a copy is deleted": scenario(copied, lambda s: s.delete("t")),
    "the newest is deleted": scenario(three, lambda s: s.delete("t", "c")),
    "two are deleted": scenario(copied, lambda s: s.delete("t", ["a", "c"])),
    "all are deleted one by one": scenario(three, lambda s: s.delete("t", ["a", "b", "c"])),
    "a thread is copied": scenario(three, lambda s: s.copy_thread("t", "u", overwrite=True)),
    "a thread is copied over another": scenario(three, lambda s: s.copy_thread("t", "other", overwrite=True)),
    "a thread is copied in part": scenario(three, lambda s: s.copy_thread("t", "u", upto="b", overwrite=True)),
    "records": scenario(three, lambda s: s.put_records("t", "s", {"k": 2, "l": 3})),
    "records of a new thread": scenario(nothing, lambda s: s.put_records("t", "s", {"k": 2})),
    "records are deleted": scenario(three, lambda s: s.delete_records("t")),
    "a thread of records only is deleted": scenario(
        lambda s: s.put_records("t", "s", {"k": 2}), lambda s: s.delete_records("t")
    ),
    "a save beside records": scenario(
        lambda s: s.put_records("t", "s", {"k": 2}), lambda s: s.save("t", {"of": 1}, "d")
    ),
}


async def shown(store: Backend) -> dict[str, Any]:
    """All that can be seen in a store, but for versions and times."""
    found: dict[str, Any] = {}
    for thread in ("t", "u", "other"):
        history = await store.history(thread, limit=None)
        versions = [i.version for i in history]
        assert versions == sorted(set(versions), reverse=True)
        loaded = [(i.checkpoint_id, await store.load(thread, i.checkpoint_id), i.metadata) for i in history]
        newest = await store.load(thread)
        assert newest == (loaded[0][1] if loaded else None)
        found[thread] = loaded, await store.records(thread, "s")
    found["threads"] = sorted(await store.list_threads())
    assert found["threads"] == sorted(t for t in ("t", "u", "other") if found[t][0])
    found["metadata"] = sorted(row["checkpoint_id"] for row in await store.query_by_metadata("of", "a", versions="all"))
    return found


def kinds(bucket: Bucket) -> list[str]:
    """What the objects are, whatever the names that were drawn."""
    return sorted(key.split("/d/")[-1][:3] if "/d/" in key else key.rsplit(".", 1)[-1] for key in bucket.objects)


def copy_of(bucket: Bucket) -> Bucket:
    made = Bucket(pauses=False)
    for key, data in bucket.objects.items():
        made.write(key, data)
    return made


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_crash_at_any_call(name: str) -> None:
    """What was done before the call is done; so a call that is carried out and not answered is the next one's case."""
    one = SCENARIOS[name]
    start = Bucket()
    await one.before(store_of(start))
    whole = copy_of(start)
    states = [await shown(store_of(whole))]
    for _ in range(2):
        await one.work(store_of(whole, **one.options))
        states.append(await shown(store_of(whole)))
    assert states.pop() == states[1], "the scenario cannot be repeated"
    await store_of(whole, hours=3).vacuum(older_than_days=3650)
    number, finished = 0, False
    while not finished:
        number += 1
        bucket = copy_of(start)
        port = MemoryPort(bucket)
        driver = ObjectDriver(port)
        await driver.prepare()
        port.crash_at(number)
        with suppress(CrashError):
            await one.work(Backend(driver, clock=IncreasingClock(lambda: START), **one.options))
            finished = True
        found = await shown(store_of(bucket))
        assert found in (states[1:] if finished else states), f"cut off before call {number}: {port.calls}"
        if number % 2:  # a sweep comes first, or the one who tries again
            await store_of(bucket, hours=3).vacuum(older_than_days=3650)
            assert await shown(store_of(bucket)) == found
        await one.work(store_of(bucket, hours=3, **one.options))
        await store_of(bucket, hours=6).vacuum(older_than_days=3650)
        assert await shown(store_of(bucket)) == states[1], f"cut off before call {number}: {port.calls}"
        assert kinds(bucket) == kinds(whole), f"cut off before call {number}: {port.calls}"
    assert number > 3


async def test_a_crash_while_it_is_found_out_what_the_service_can_do() -> None:
    for number in range(1, 5):
        bucket = Bucket()
        port = MemoryPort(bucket)
        port.crash_at(number)
        with pytest.raises(CrashError):
            await ObjectDriver(port).prepare()
        await store_of(bucket).vacuum()
        assert len(bucket.objects) == (number > 1), "it may be at work still"
        await store_of(bucket, hours=3).vacuum()
        assert not bucket.objects
