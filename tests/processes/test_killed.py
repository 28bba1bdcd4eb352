"""Processes that are killed in the middle of whatever they do."""

from __future__ import annotations

import asyncio
import json
import random
import time

import backends
import pytest
from processes.workers import SHARED, check, check_named
from store_fixtures import only


async def look(place, acknowledged, removed):
    """Everything acknowledged is there and loads; nothing half-written is seen."""
    async with place.open() as store:
        names = await store.list_checkpoints(SHARED, limit=None)
        assert len(set(names)) == len(names)
        history = await store.history(SHARED, limit=None)
        assert [i.checkpoint_id for i in history] == names
        versions = [i.version for i in history]
        assert versions == sorted(set(versions), reverse=True)
        for name in names:
            found = await store.load(SHARED, name)
            assert found is not None, name
            check_named(found, name)
            check(found, acknowledged.get(name))
        assert acknowledged.keys() - removed <= set(names)
        found = await store.load(SHARED)
        assert (found is None) == (not names)
        check(found)
        assert set(await store.list_threads()) <= {SHARED}


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
