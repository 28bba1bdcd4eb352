"""Many writers of one thread, and removers among them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from drivers.plans import KEY, grown, make_plan, tick
from postgresql.steps import Writer, chain, fresh, lines, save

from locus_store.backends.postgresql import PostgreSQLDriver
from locus_store.core.driver import Conflict, Key, Stale
from locus_store.core.ids import new_epoch
from locus_store.core.references import Range
from locus_store.sql import sealing

Open = Callable[..., PostgreSQLDriver]


@pytest.fixture
def only_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if a save needs more than its one statement."""

    write = PostgreSQLDriver._write

    async def refuse(self: PostgreSQLDriver, function: Any, *args: Any, **kwargs: Any) -> Any:
        assert function is sealing.seal, "a save needed a transaction"
        return await write(self, function, *args, **kwargs)

    monkeypatch.setattr(PostgreSQLDriver, "_write", refuse)


async def assert_is_chain(driver: PostgreSQLDriver, count: int) -> None:
    found = await chain(driver)
    assert [version for version, _, _ in found] == list(range(1, count + 1))
    assert [parent for _, _, parent in found] == [None, *[checkpoint_id for _, checkpoint_id, _ in found[:-1]]]


@pytest.mark.usefixtures("only_at_once")
async def test_sixteen_writers_make_one_chain(open_driver: Open) -> None:
    """Parent of version n is n - 1, without a gap: what a save knows of the thread is the row's newest state."""
    writers = [Writer(open_driver(max_pool_size=8), f"w{i}-") for i in range(2)]
    saves = [Writer(w.driver, f"{w.name}{i}-") for w in writers for i in range(8)]

    async def run(writer: Writer) -> None:
        for _ in range(50):
            await writer.step()

    await asyncio.gather(*map(run, saves))
    await assert_is_chain(writers[0].driver, 800)
    for writer in saves:
        assert len(writer.saved) == 50
        await writer.check(random.sample(list(writer.saved), 5))
        last = list(writer.saved)[-1]
        assert await lines(writer.driver, last) == writer.saved[last]


@pytest.mark.usefixtures("only_at_once")
async def test_sixteen_writers_without_bases(driver: PostgreSQLDriver) -> None:
    results = await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(160)])
    assert sorted(r.version for r in results) == list(range(1, 161))
    assert sorted(r.block for r in results) == list(range(1, 161))
    assert len({r.epoch for r in results}) == 1
    await assert_is_chain(driver, 160)


@pytest.mark.usefixtures("only_at_once")
async def test_saves_that_wait_for_the_row(driver: PostgreSQLDriver, session: Any) -> None:
    """All of them begin with the same snapshot, and still each finds the head that the one before it made."""
    first = fresh("x")
    base = grown(first, await save(driver, first))
    async with session.transaction():
        await session.execute("SELECT 1 FROM locus_store_threads FOR UPDATE")
        plans = [fresh(f"y{i}", base=base, reused={1: [Range(1, 1)]}) for i in range(4)]
        plans += [fresh(f"z{i}") for i in range(4)]
        saves = [asyncio.ensure_future(save(driver, plan)) for plan in plans]
        while await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    await asyncio.gather(*saves)
    await assert_is_chain(driver, 9)
    for plan in plans[:4]:
        assert (await lines(driver, plan.checkpoint_id) or [""])[0] == "x"


async def test_a_base_that_goes_while_the_save_waits(driver: PostgreSQLDriver, session: Any) -> None:
    """The base is in the statement's snapshot; that its entries went is seen on the row."""
    first = fresh("x")
    base = grown(first, await save(driver, first))
    async with session.transaction():
        await session.execute("UPDATE locus_store_threads SET epoch = $1", new_epoch())
        await session.execute("DELETE FROM locus_store_blocks")
        waiting = asyncio.ensure_future(driver.put(KEY, fresh("y", base=base, reused={1: [Range(1, 1)]})))
        while await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0:
            await asyncio.sleep(0.01)
    assert await waiting == Stale()
    assert [version for version, _, _ in await chain(driver)] == [1]


async def test_a_thread_deleted_and_made_again(driver: PostgreSQLDriver) -> None:
    first = fresh("x")
    base = grown(first, await save(driver, first))
    await driver.drop(KEY, None, now=tick())
    stale = fresh("y", base=base, reused={1: [Range(1, 1)]})
    assert await driver.put(KEY, stale) == Stale()
    assert await driver.get(KEY, None, now=tick()) is None
    assert await driver.threads("default", "*", limit=None, offset=0, now=tick()) == []
    await save(driver, fresh("other"))
    assert await driver.put(KEY, stale) == Stale()
    assert await lines(driver) == ["other"]


async def test_a_forged_base(driver: PostgreSQLDriver) -> None:
    first = fresh("x")
    base = grown(first, await save(driver, first))
    reused = {1: [Range(1, 1)]}
    for wrong in (
        base._replace(version=2),
        base._replace(version=0),
        base._replace(stamp=b"?" * 16),
        base._replace(epoch=base.epoch ^ 1),
    ):
        assert await driver.put(KEY, fresh("y", base=wrong, reused=reused)) == Stale(), wrong


async def test_the_head_went_back(driver: PostgreSQLDriver) -> None:
    """With the newest checkpoint deleted the one statement matches nothing, and the parent is right all the same."""
    plans = [fresh("x"), fresh("y")]
    for plan in plans:
        await save(driver, plan)
    await driver.drop(KEY, [plans[1].checkpoint_id], now=tick())
    third = fresh("z")
    assert (await save(driver, third)).version == 3
    assert await chain(driver) == [(1, plans[0].checkpoint_id, None), (3, third.checkpoint_id, plans[0].checkpoint_id)]


@pytest.mark.parametrize("based", [True, False])
async def test_expected_versions(driver: PostgreSQLDriver, based: bool) -> None:
    first = fresh("x")
    base = grown(first, await save(driver, first))
    options: dict[str, Any] = {"base": base, "reused": {1: [Range(1, 1)]}} if based else {}
    results = await asyncio.gather(*[driver.put(KEY, fresh("y", expected_version=1, **options)) for _ in range(8)])
    assert sorted(type(r).__name__ for r in results) == ["Conflict"] * 7 + ["Saved"]
    assert results.count(Conflict(2)) == 7


async def test_an_id_that_was_not_fresh(driver: PostgreSQLDriver) -> None:
    """Nobody draws an id twice; if it were, it would be an ordinary replacement."""
    plan = fresh("x")
    await save(driver, plan)
    again = make_plan(plan.checkpoint_id, {1: ["y"]}, fresh_id=False)
    assert (await save(driver, again)).version == 2
    assert await lines(driver) == ["y"]


async def test_expired_threads_begin_anew(driver: PostgreSQLDriver) -> None:
    now = tick()
    first = fresh("x", now=now, expires_at=now + 10)
    base = grown(first, await save(driver, first))
    later = now + 10
    assert await driver.put(KEY, fresh("y", base=base, reused={1: [Range(1, 1)]}, now=later)) == Stale()
    saved = await save(driver, fresh("z", now=later))
    assert (saved.version, saved.block) == (1, 1)
    assert saved.epoch != base.epoch
    assert await lines(driver) == ["z"]


async def test_never_anothers_data(open_driver: Open) -> None:
    """Writers with old knowledge, while threads are deleted, cut and made again: a load is what was saved or None."""
    drivers = [open_driver(max_pool_size=4), open_driver(max_pool_size=4)]
    keys = [Key("default", f"t{i}") for i in range(2)]
    writers = [
        Writer(driver, f"{key.thread_id}-{i}-{j}-", key)
        for i, driver in enumerate(drivers)
        for key in keys
        for j in range(2)
    ]
    going = True

    async def write(writer: Writer) -> None:
        while going:
            checkpoint_id = await writer.step()
            await writer.check([checkpoint_id])
            if random.random() < 0.05:
                await writer.load()

    async def remove(driver: PostgreSQLDriver) -> None:
        while going:
            await asyncio.sleep(random.uniform(0, 0.05))
            key = random.choice(keys)
            if random.random() < 0.5:
                await driver.drop(key, None, now=tick())
            else:
                shown = await driver.infos(key, before=None, limit=None, now=tick())
                await driver.drop(key, [i.checkpoint_id for i in shown if random.random() < 0.5], now=tick())

    async def stop() -> None:
        nonlocal going
        deadline = asyncio.get_running_loop().time() + 60
        while min(len(writer.saved) for writer in writers) < 40 and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        going = False

    await asyncio.gather(*map(write, writers), *map(remove, drivers), stop())
    for writer in writers:
        assert len(writer.saved) > 10
        await writer.check(list(writer.saved)[-30:])


async def test_terms_of_a_save(driver: PostgreSQLDriver) -> None:
    digests = [bytes([i]) * 16 for i in range(3)]
    plan = fresh("x", metadata=b"{}", terms=(digests[0], digests[1], digests[0]))
    await save(driver, plan)
    for wanted, count in (([digests[0]], 1), (digests[:2], 1), ([digests[2]], 0), ([], 1)):
        found = await driver.find("default", wanted, thread_id=None, newest_only=True, limit=None, offset=0, now=tick())
        assert len(found) == count
