"""Cancelled calls leave nothing behind: no connection, no transaction, no lock, no half of a save."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from drivers.plans import KEY, make_plan, tick
from postgresql.steps import Writer, chain, fresh, lines, save

from locus_store.backends.postgresql import PostgreSQLDriver

Open = Callable[..., PostgreSQLDriver]

_SESSIONS = """SELECT state, count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' GROUP BY state"""


async def states(session: Any) -> dict[str, int]:
    """How many sessions of others are in which state."""
    return dict(await session.fetch(_SESSIONS))


async def assert_only_one_idle(session: Any) -> None:
    """Asserts that the pool of one has its connection and nothing else is left; the server needs a moment to tell."""
    for _ in range(1000):
        if await states(session) == {"idle": 1}:
            return
        await asyncio.sleep(0.01)
    assert await states(session) == {"idle": 1}


async def cancel_after(call: Awaitable[Any], seconds: float) -> bool:
    """Returns whether the call was cancelled, and not finished before."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(seconds)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


@pytest.mark.parametrize("kind", ["at once", "transaction", "load", "listing", "all"])
async def test_two_hundred_times(open_driver: Open, session: Any, kind: str) -> None:
    driver = open_driver(max_pool_size=1)
    await save(driver, fresh("x" * 100_000))
    plans = []

    def call() -> Awaitable[Any]:
        which = random.choice(["at once", "transaction", "load", "listing", "drop"]) if kind == "all" else kind
        if which == "load":
            return driver.get(KEY, None, now=tick())
        if which == "listing":
            return driver.infos(KEY, before=None, limit=None, now=tick())
        if which == "drop":
            return driver.drop(KEY, [f"named{random.randrange(200)}"], now=tick())
        plan = fresh("y") if which == "at once" else make_plan(f"named{len(plans)}", {1: ["z"]})
        plans.append(plan)
        return save(driver, plan)

    cancelled = 0
    for _ in range(200):
        cancelled += await cancel_after(
            call(), random.choice([0, 0, random.uniform(0, 0.003), random.uniform(0, 0.01)])
        )
    assert cancelled
    last = fresh("last")
    await asyncio.wait_for(save(driver, last), 10)
    assert await lines(driver) == ["last"]
    await assert_only_one_idle(session)
    assert not await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
    found = await chain(driver)
    assert found[-1][1] == last.checkpoint_id
    for _, checkpoint_id, _ in found:
        assert await lines(driver, checkpoint_id) in (["x" * 100_000], ["y"], ["z"], ["last"])
    (opened,) = driver._engines._opened.values()
    assert opened.engine.sync_engine.pool.checkedout() == len(opened._kept)  # type: ignore[attr-defined]


async def test_while_it_waits_for_a_lock(open_driver: Open, session: Any) -> None:
    """The server is told, so what waits there ends too, and does not save after all when the lock is free."""
    driver = open_driver(max_pool_size=1, lock_timeout=60)
    await save(driver, fresh("x"))

    async def until(waiting: int) -> None:
        async with asyncio.timeout(30):
            while await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") != waiting:
                await asyncio.sleep(0.002)

    async with session.transaction():
        await session.execute("SELECT 1 FROM locus_store_threads FOR UPDATE")
        for i in range(20):
            plan = fresh("y") if i % 2 else make_plan(f"named{i}", {1: ["z"]})
            saving = asyncio.ensure_future(driver.put(KEY, plan))
            # A server that has not begun yet would not hear of it.
            await until(1)
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
            await until(0)
        assert await asyncio.wait_for(lines(driver), 10) == ["x"]
    assert len(await chain(driver)) == 1
    await assert_only_one_idle(session)


async def test_while_it_waits_for_a_connection(open_driver: Open, session: Any) -> None:
    driver = open_driver(max_pool_size=1)
    await save(driver, fresh("x"))
    async with session.transaction():
        await session.execute("SELECT 1 FROM locus_store_threads FOR UPDATE")
        first = asyncio.ensure_future(save(driver, fresh("y")))
        await asyncio.sleep(0.02)
        for _ in range(20):
            assert await cancel_after(driver.get(KEY, None, now=tick()), 0.002)
    await first
    assert await asyncio.wait_for(lines(driver), 10) == ["y"]
    (opened,) = driver._engines._opened.values()
    async with asyncio.timeout(15):
        while opened._settling:  # what still waits gets its turn and gives it back; closing need not wait for it
            await asyncio.sleep(0.01)
    await assert_only_one_idle(session)


async def test_while_it_connects(open_driver: Open, session: Any) -> None:
    driver = open_driver(max_pool_size=1)
    await driver.prepare()
    for i in range(40):
        await driver.aclose()
        await cancel_after(driver.get(KEY, None, now=tick()), i * 0.0005)
    await asyncio.wait_for(save(driver, fresh("x")), 10)
    await assert_only_one_idle(session)


async def test_many_tasks_of_which_some_are_cancelled(open_driver: Open, session: Any) -> None:
    driver = open_driver(max_pool_size=3)
    writers = [Writer(driver, f"w{i}-") for i in range(8)]
    kept: set[str] = set()

    async def write(writer: Writer) -> None:
        for _ in range(25):
            if random.random() < 0.3:
                await cancel_after(writer.step(), random.uniform(0, 0.01))
                await writer.load()
            else:
                kept.add(await writer.step())

    await asyncio.gather(*map(write, writers))
    found = [i for _, i, _ in await chain(driver)]
    assert kept <= set(found)
    assert len(found) == len(set(found))
    await writers[0].check(list(writers[0].saved)[-5:])
    assert (await states(session)).keys() <= {"idle"}
