"""Opening and closing: in any order, in any event loop, or not at all."""

from __future__ import annotations

import asyncio
import time

import backends
import pytest
from elsewhere import run


async def test_closing_twice_and_before_anything(store):
    await store.close()
    await store.close()
    await store.save("t", {"n": 1})
    await store.close()
    await store.close()


async def test_the_next_call_after_closing_opens_again(store):
    await store.save("t", {"n": 1})
    for i in range(3):
        await store.close()
        assert await store.load("t") == {"n": i + 1}
        await store.close()
        await store.save("t", {"n": i + 2})


async def test_closing_leaves_nothing_open(store, place):
    left = backends.Left()
    for i in range(3):
        await asyncio.gather(*[store.save(f"t{j}", {"n": i}) for j in range(8)], store.list_threads())
        await store.close()
        await left.assert_nothing()
        place.assert_nothing_open()


async def test_as_a_context_manager(place, store):
    left = backends.Left()
    async with store as entered:
        assert entered is store
        await store.save("t", {"n": 1})
    await left.assert_nothing()
    async with store:
        assert await store.load("t") == {"n": 1}
    with pytest.raises(ZeroDivisionError):
        async with store:
            raise ZeroDivisionError
    await left.assert_nothing()


async def test_closing_a_checkpointer_closes_its_backend(store, checkpointer):
    left = backends.Left()
    await checkpointer.save(checkpointer.state_type(), "t")
    async with checkpointer as entered:
        assert entered is checkpointer
    await left.assert_nothing()
    assert await checkpointer.load("t") is not None


async def test_a_tenant_needs_no_closing_of_its_own(store):
    left = backends.Left()
    await store.tenant("acme").save("t", {"n": 1})
    await store.close()
    await left.assert_nothing()


@pytest.mark.usefixtures("own_connections")
async def test_closing_while_others_are_at_work(store, other):
    """What was begun ends, well or with an error of ours; what was acknowledged is there."""
    tasks = [asyncio.ensure_future(store.save("t", {"n": i}, str(i))) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [f for f in found if isinstance(f, BaseException) and not is_ours(f)]
    acknowledged = {f for f in found if isinstance(f, str)}
    assert acknowledged <= set(await other.list_checkpoints("t", None))
    assert await store.save("t", {"n": "after"}, "after") == "after"


def is_ours(error):
    return type(error).__module__.startswith("locus_store")


async def test_constructors_do_nothing(place, tmp_path):
    left = backends.Left()
    before = sorted(tmp_path.rglob("*"))
    stores = [place.open() for _ in range(3)]
    for store in stores:
        store.checkpointer()
        store.tenant("acme")
        assert store.capabilities == place.capabilities
        assert repr(store)
    assert left.now() == []
    assert sorted(tmp_path.rglob("*")) == before


async def test_setting_up_explicitly_again_and_at_the_same_time(store, other):
    await asyncio.gather(*[s.setup() for s in (store, other)] * 4)
    await store.setup()
    await store.save("t", {"n": 1})
    await other.setup()
    assert await other.load("t") == {"n": 1}


async def test_neither_face_has_a_length_or_a_truth(store, checkpointer):
    """``checkpointer or default`` must not ask the storage, nor take an empty one for none."""
    for face in (store, checkpointer):
        assert not hasattr(face, "__len__")
        assert "__bool__" not in dir(type(face))
        assert face


# ---------------------------------------------------------------------------------------------- several event loops


@pytest.mark.usefixtures("own_connections")
def test_one_store_in_several_event_loops(place):
    """Closed or not in between."""
    store = place.open()
    for i in range(6):
        asyncio.run(_one_round(store, i, close=i % 2 == 0))
    asyncio.run(store.close())


async def _one_round(store, i, *, close):
    assert await store.load("t") == (None if i == 0 else {"n": i - 1, "l": ["x" * 300] * i})
    await asyncio.gather(*[store.save(f"u{j}", {"n": i}) for j in range(5)])
    await store.save("t", {"n": i, "l": ["x" * 300] * (i + 1)})
    assert len(await store.list_checkpoints("t", None)) == i + 1
    if close:
        await store.close()


@pytest.mark.usefixtures("own_connections")
def test_descriptors_and_threads_do_not_pile_up_over_event_loops(place):
    store = place.open(**(place.pooled or {}))
    left = backends.Left()
    counts = []
    for i in range(30):
        asyncio.run(_one_round(store, i, close=False))
        counts.append(len(left.now()))
    # A pool may grow until it has what it needs; something left in each loop would be 27 of them.
    assert counts[-1] - counts[2] < 13
    asyncio.run(store.close())
    assert left.now() == []


# ------------------------------------------------------------------------------------------------- whole programs


PREAMBLE = """
import asyncio, sys, time
from elsewhere import connect
"""


@pytest.mark.usefixtures("own_connections")
def test_three_runs_in_a_row_with_closing_warn_of_nothing(place):
    done = run(
        PREAMBLE
        + """
store = connect(sys.argv[1])

async def main(i):
    # The debug mode tells which steps took long, as any may on a busy machine.
    asyncio.get_running_loop().slow_callback_duration = 60
    async with store:
        await store.save("t", {"n": i})
        assert await store.load("t") == {"n": i}
        assert len(await store.list_checkpoints("t")) == i + 1

for i in range(3):
    asyncio.run(main(i))
print("done")
""",
        place.address,
        options=("-W", "error", "-X", "dev"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.usefixtures("own_connections")
@pytest.mark.parametrize("saves_under_way", [0, 20])
def test_a_program_that_forgets_to_close_ends_at_once(place, saves_under_way):
    done = run(
        PREAMBLE
        + """
store = connect(sys.argv[1])
tasks = []

async def main(i):
    await asyncio.gather(*[store.save("t", {"n": i}, f"{i}.{j}") for j in range(10)])
    assert len(await store.list_checkpoints("t", None)) >= 10 * (i + 1)
    print(time.time(), flush=True)
    tasks.extend(asyncio.ensure_future(store.save("t", {})) for _ in range(int(sys.argv[2])))
    await asyncio.sleep(0)

for i in range(3):
    asyncio.run(main(i))
""",
        place.address,
        str(saves_under_way),
    )
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert ended - float(done.stdout.split()[-1]) < 10  # 2 s where nothing else runs: it waits for nothing
    assert "Traceback" not in done.stderr
    assert "Event loop is closed" not in done.stderr
    if place.capabilities.persistent:
        acknowledged = {f"{i}.{j}" for i in range(3) for j in range(10)}
        assert acknowledged <= set(asyncio.run(ids(place)))


async def ids(place):
    async with place.open() as store:
        found = await store.list_checkpoints("t", None)
        assert await store.load("t") in ({}, {"n": 2})
        return found
