"""Processes on one bucket, of a real server: writers at once, and callers that are killed in the middle of a call."""

from __future__ import annotations

import asyncio
import json
import random
import time

import pytest
from processes.test_killed import look as look_at_thread
from processes.test_many_writers import look, said
from processes.workers import SHARED, document, label_of

pytestmark = pytest.mark.parametrize("place", ["s3"], indirect=True)

LONG = pytest.param(30, marks=pytest.mark.endurance)
LONG_COPY = pytest.param(30, False, marks=pytest.mark.endurance)
LONG_OVERWRITE = pytest.param(30, True, marks=pytest.mark.endurance)


def objects_for(checkpoints):
    """A record and what says where it is, for each; the log's beginning and a marker for the thread."""
    return 2 * checkpoints + 2


def test_two_processes_save_to_one_thread(place, nursery, tmp_path):
    """A small one of `test_many_writers`, which goes over this server in the long tests."""
    go = tmp_path / "go"
    writers = [nursery.begin("save_many", place.address, f"p{i}", 2, 8, str(go)) for i in range(2)]
    go.touch()
    assert [w.wait() for w in writers] == [0, 0], "".join(w.output.read_text()[-3000:] for w in writers)
    acknowledged = {name: label for name, label, _ in said(writers)}
    assert len(acknowledged) == 32
    asyncio.run(look(place, acknowledged))
    assert place.count() == objects_for(32)


def killed_in(nursery, place, rng, method, *arguments, **options):
    """A process that is killed in the middle of a call, or right after it; whether it had come to its end."""
    child = nursery.begin("call_once", place.address, method, arguments, options)
    child.wait_for_lines(1)
    time.sleep(rng.random() * 0.06)
    child.kill()
    return child.lines()[-1] == "done"


async def fill(place, count):
    """A thread with so many checkpoints; their ids, by what they are."""
    async with place.open() as store:
        return {await store.save(SHARED, document("p", 1, n)): label_of("p", 1, n) for n in range(count)}


async def empty(place):
    """Afterwards everything can be removed."""
    async with place.open() as store:
        for thread in await store.list_threads(limit=None):
            assert await store.delete(thread)
        assert await store.list_threads() == []
        place.grow_old()
        await store.vacuum()
    assert place.count() == 0, sorted(place.objects())


async def whole_or_not_there(place, thread, labels):
    """Whether a thread is there; if so, all of it."""
    async with place.open() as store:
        names = await store.list_checkpoints(thread, limit=None)
        there = thread in await store.list_threads(limit=None)
        assert there == await store.exists(thread) == bool(names) == (await store.load(thread) is not None)
        for name in labels:
            found = await store.load(thread, name)
            assert (found is not None) == there, name
            if there:
                assert label_of(*found["label"]) == labels[name]
        assert names in ([], [*labels][::-1])
        return there


@pytest.mark.parametrize("kills", [3, LONG])
def test_what_dead_writers_left_is_swept(place, nursery, kills):
    rng = random.Random(1)
    acknowledged, removed = {}, set()
    for n in range(kills):
        child = nursery.begin("save_until_killed", place.address, f"p{n}")
        child.wait_for_lines(rng.choice([5, 10, 20]))
        time.sleep(rng.random() * 0.02)
        child.kill()
        for line in child.lines():
            match json.loads(line):
                case {"removing": names}:
                    removed.update(names)
                case [name, label]:
                    acknowledged[name] = label

    async def sweep():
        async with place.open() as store:
            before = place.count()
            await store.vacuum()
            names = await store.list_checkpoints(SHARED, limit=None)
            assert objects_for(len(names)) <= place.count() <= before, "what may be of a save under way stays"
            place.grow_old()
            await store.vacuum()
            assert place.count() == objects_for(len(names)), sorted(place.objects())

    asyncio.run(sweep())
    asyncio.run(look_at_thread(place, acknowledged, removed))
    asyncio.run(empty(place))


@pytest.mark.parametrize("kills", [3, LONG])
def test_a_deletion_that_was_killed_is_whole_and_is_resumed(place, nursery, kills):
    rng = random.Random(2)
    for _ in range(kills):
        labels = asyncio.run(fill(place, 15))
        done = killed_in(nursery, place, rng, "delete", SHARED)
        there = asyncio.run(whole_or_not_there(place, SHARED, labels))
        assert not (done and there)

        async def again(there=there):
            async with place.open() as store:
                assert await store.delete(SHARED) == there
                assert place.count() == 0, sorted(place.objects())

        asyncio.run(again())


@pytest.mark.parametrize(("kills", "overwrite"), [(3, True), LONG_COPY, LONG_OVERWRITE])
def test_a_copy_that_was_killed_is_whole_or_not_there(place, nursery, kills, overwrite):
    rng = random.Random(3)
    labels = asyncio.run(fill(place, 15))

    async def prepare():
        async with place.open() as store:
            await store.delete("copy")
            return {await store.save("copy", document("c", 2, n)): label_of("c", 2, n) for n in range(3 * overwrite)}

    async def look_at_copy(before, done):
        async with place.open() as store:
            names = set(await store.list_checkpoints("copy", limit=None))
        assert names in ({*before}, {*labels})
        assert not done or names == {*labels}
        await whole_or_not_there(place, "copy", labels if names == {*labels} else before)
        async with place.open() as store:
            assert await store.copy_thread(SHARED, "copy", overwrite=True)
        assert await whole_or_not_there(place, "copy", labels)
        assert await whole_or_not_there(place, SHARED, labels)

    for _ in range(kills):
        before = asyncio.run(prepare())
        done = killed_in(nursery, place, rng, "copy_thread", SHARED, "copy", overwrite=overwrite)
        asyncio.run(look_at_copy(before, done))
    asyncio.run(empty(place))


@pytest.mark.parametrize("kills", [3, LONG])
def test_a_vacuum_that_was_killed_is_done_by_the_next(place, nursery, kills):
    rng = random.Random(4)

    async def look_at_rest(labels):
        async with place.open() as store:
            names = await store.list_checkpoints(SHARED, limit=None)
            assert names in ([*labels][::-1], [*labels][:-4:-1])
            for name in names:
                assert label_of(*(await store.load(SHARED, name))["label"]) == labels[name]
            await store.vacuum(older_than_days=0, keep_last=3)
            assert await store.list_checkpoints(SHARED, limit=None) == [*labels][:-4:-1]
            assert await store.delete(SHARED)
        assert place.count() == 0, sorted(place.objects())

    for _ in range(kills):
        labels = asyncio.run(fill(place, 15))
        killed_in(nursery, place, rng, "vacuum", older_than_days=0, keep_last=3)
        asyncio.run(look_at_rest(labels))
