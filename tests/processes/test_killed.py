"""Processes that are killed in the middle of whatever they do."""

from __future__ import annotations

import asyncio
import json
import random
import time

import backends
import pytest
from processes.workers import SHARED, TASKS, check, check_named
from store_fixtures import only


async def look(place, acknowledged, removed):
    """Everything acknowledged is there and loads; nothing half-written is seen."""
    async with place.open() as store:
        found = await read_undisturbed(store)
    names = [i.checkpoint_id for i in found["history"]]
    assert found["names"] == names
    assert len(set(names)) == len(names)
    versions = [i.version for i in found["history"]]
    assert versions == sorted(set(versions), reverse=True)
    for name, loaded in found["documents"].items():
        assert loaded is not None, name
        check_named(loaded, name)
        check(loaded, acknowledged.get(name))
    assert acknowledged.keys() - removed <= set(names)
    assert (found["newest"] is None) == (not names)
    check(found["newest"])
    assert set(found["threads"]) <= {SHARED}


async def read_undisturbed(store):
    """Reads all there is, between two readings of the history that agree.

    What the dead writer had sent last may still be on its way, or be worked at: a server does not know that nobody waits.
    Each of its tasks had one call under way, so the history may yet change a few times, and then no more.
    """
    history = await store.history(SHARED, limit=None)
    for _ in range(2 * TASKS):
        names = await store.list_checkpoints(SHARED, limit=None)
        found = {
            "history": history,
            "names": names,
            "documents": {name: await store.load(SHARED, name) for name in names},
            "newest": await store.load(SHARED),
            "threads": await store.list_threads(),
        }
        history = await store.history(SHARED, limit=None)
        if history == found["history"]:
            return found
    raise AssertionError("the history still changes, and its writer is dead")


@only(*backends.SHARED)
@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.endurance)])
def test_case_53_a_writer_is_killed_again_and_again(place, nursery, kills):
    rng = random.Random(53)
    acknowledged: dict[str, str] = {}
    removed: set[str] = set()
    for n in range(kills):
        child = nursery.begin("save_until_killed", place.address, f"p{n}")
        child.wait_for_lines(rng.choice([1, 2, 5, 20, 60]))
        time.sleep(rng.random() * 0.02)  # anywhere within a save
        child.kill()
        for line in child.lines():
            match json.loads(line):
                case {"removing": names}:
                    removed.update(names)
                case [name, label]:
                    acknowledged[name] = label
        asyncio.run(look(place, acknowledged, removed))
    assert len(acknowledged) > kills
    asyncio.run(goes_on(place))


async def goes_on(place):
    """Afterwards everything works, and nothing is left of what was never finished."""
    async with place.open() as store:
        document = await store.load(SHARED)
        await store.save(SHARED, document, "after")
        assert await store.load(SHARED, "after") == document
        await store.vacuum(older_than_days=0, keep_last=1)
        assert await store.load(SHARED) == document
        await store.delete(SHARED)
        place.grow_old()
        await store.vacuum(older_than_days=0, keep_last=0)
        assert place.count() == 0
