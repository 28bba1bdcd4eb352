"""Many writers of one thread, while others read, delete, and make anew."""

from __future__ import annotations

import asyncio
import json

import backends
import pytest
from processes.workers import SHARED, check, check_named, document
from store_fixtures import only


async def look(place, acknowledged):
    """Everything that was acknowledged is there and nothing else, in versions without a gap, and loads."""
    expected = len(acknowledged)
    async with place.open() as store:
        history = await store.history(SHARED, limit=None)
        assert [i.version for i in history] == list(range(expected, 0, -1))
        assert await store.list_checkpoints(SHARED, limit=None) == [i.checkpoint_id for i in history]
        assert {i.checkpoint_id for i in history} == set(acknowledged)
        for name, label in acknowledged.items():
            found = await store.load(SHARED, name)
            assert found is not None
            check(found, label)
        assert [i.parent for i in history] == [*[i.checkpoint_id for i in history[1:]], None]
        for thread in await store.list_threads(limit=None):
            for name in await store.list_checkpoints(thread, limit=None):
                check_named(await store.load(thread, name), name)


def said(writers):
    """What the writers said of each save: its id, what it was, how long it took."""
    return [json.loads(line) for writer in writers for line in writer.lines()]


@only(*backends.SHARED)
@pytest.mark.parametrize(
    ("processes", "tasks", "saves"), [(2, 2, 20), pytest.param(4, 4, 50, marks=pytest.mark.endurance)]
)
def test_every_save_of_many_writers_is_there(place, nursery, tmp_path, processes, tasks, saves):
    if place.name == "s3-moto" and processes > 2:
        pytest.skip("moto goes through its whole bucket for each listing: ten minutes of that; SeaweedFS does it")
    go, stop = tmp_path / "go", tmp_path / "stop"
    disturbers = [nursery.begin("disturb", place.address, f"d{i}", str(go), str(stop)) for i in range(2)]
    writers = [nursery.begin("save_many", place.address, f"p{i}", tasks, saves, str(go)) for i in range(processes)]
    go.touch()
    assert [w.wait() for w in writers] == [0] * processes, "".join(w.output.read_text()[-3000:] for w in writers)
    stop.touch()
    assert [d.wait() for d in disturbers] == [0, 0], "".join(d.output.read_text()[-3000:] for d in disturbers)
    assert all(json.loads(d.lines()[-1])[1] > 1 for d in disturbers)
    acknowledged = {name: label for name, label, _ in said(writers)}
    assert len(acknowledged) == processes * tasks * saves
    asyncio.run(look(place, acknowledged))


@only("sqlite")
def test_case_51_two_processes_on_one_file(place, nursery, tmp_path):
    """Which is not there yet when both begin."""
    go = tmp_path / "go"
    writers = [nursery.begin("save_many", place.address, f"p{i}", 1, 200, str(go)) for i in range(2)]
    go.touch()
    assert [w.wait() for w in writers] == [0, 0], "".join(w.output.read_text()[-3000:] for w in writers)
    acknowledged = {name: label for name, label, _ in said(writers)}
    assert len(acknowledged) == 400
    asyncio.run(look(place, acknowledged))
    took = sorted(seconds for _, _, seconds in said(writers))
    assert took[int(len(took) * 0.99)] < 5  # 2 s where nothing else runs


def test_documents_tell_what_they_are():
    """What the other tests of this folder rely on."""
    check_named(document("p0", 1, 7), "p0/1/7 3")
    wrong = document("p0", 1, 7)
    wrong["messages"][3] = document("p1", 1, 7)["messages"][3]
    with pytest.raises(AssertionError, match="not what was saved"):
        check(wrong)
    with pytest.raises(AssertionError):
        check(document("p0", 1, 7), "p0/1/8")
