"""What only the memory driver does; the rest is in `test_driver_contract.py`."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from drivers.plans import KEY, base_of, document, grown, make_plan, tick

from locus_store.backends.memory import MemoryDriver
from locus_store.core.driver import Saved
from locus_store.core.references import Range


async def grow(driver: MemoryDriver, first: int, count: int) -> None:
    base = None
    for i in range(first, first + count):
        stored = await driver.get(KEY, None, now=tick()) if base is None else None
        base = base_of(stored) if stored else base
        plan = make_plan(
            f"c{i}", {1: [f'"x{i}"']}, {1: [Range(1, i - 1)]} if i > 1 else {}, base=base if i > 1 else None
        )
        saved = await driver.put(KEY, plan)
        assert isinstance(saved, Saved)
        base = grown(plan, saved)


async def test_a_save_costs_what_is_new() -> None:
    driver = MemoryDriver()
    times = []
    for first in range(1, 6001, 200):
        start = time.process_time()
        await grow(driver, first, 200)
        times.append(time.process_time() - start)
    # The best of ten: what else the machine does only makes it longer.
    assert min(times[20:]) < 3 * min(times[:10]) + 0.005
    stored = await driver.get(KEY, None, now=tick())
    assert document(stored) == {1: [f'"x{i}"' for i in range(1, 6001)]}


def test_used_from_several_threads() -> None:
    driver = MemoryDriver()

    async def work(name: int) -> None:
        for i in range(200):
            assert isinstance(await driver.put(KEY, make_plan(f"{name}-{i}", {1: ['"x"']}, keep=50)), Saved)
            assert await driver.get(KEY, None, now=tick()) is not None
            await driver.infos(KEY, before=None, limit=None, now=tick())
            await driver.threads("default", "*", limit=None, offset=0, now=tick())

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(asyncio.run, work(n)) for n in range(8)]:
            done.result()
    infos = asyncio.run(driver.infos(KEY, before=None, limit=None, now=tick()))
    assert [i.version for i in infos] == list(range(1600, 1550, -1))


def test_no_primitive_needs_an_event_loop() -> None:
    step = MemoryDriver().put(KEY, make_plan("c1"))
    with pytest.raises(StopIteration) as done:
        step.send(None)
    assert isinstance(done.value.value, Saved)
