"""Many writers of one thread on MariaDB; what any database must do is taken from the tests of PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from drivers.plans import KEY, grown, make_plan, tick
from mariadb.conftest import Open
from postgresql.steps import Writer, chain, fresh, lines, save
from postgresql.test_races import (
    assert_is_chain,
    test_a_forged_base,
    test_a_thread_deleted_and_made_again,
    test_an_id_that_was_not_fresh,
    test_expected_versions,
    test_expired_threads_begin_anew,
    test_never_anothers_data,
    test_terms_of_a_save,
    test_the_head_went_back,
)

from locus_store.backends.mysql import MySQLDriver
from locus_store.core.driver import Key, Saved
from locus_store.core.errors import StoreBusyError
from locus_store.core.references import Range

__all__ = [
    "test_a_forged_base",
    "test_a_thread_deleted_and_made_again",
    "test_an_id_that_was_not_fresh",
    "test_expected_versions",
    "test_expired_threads_begin_anew",
    "test_never_anothers_data",
    "test_terms_of_a_save",
    "test_the_head_went_back",
]


Hold = Callable[..., Any]


@pytest.fixture
async def hold(mariadb_url: str, mariadb_server: Any) -> Any:
    """Locks rows by a session of its own, until what is returned is called."""
    import asyncmy

    held: list[Any] = []

    async def begin(statement: str) -> Any:
        name = mariadb_url.rpartition("/")[2]
        place = {"host": mariadb_server.host, "port": mariadb_server.port, "user": "root"}
        connection = await asyncmy.connect(**place, db=name)
        held.append(connection)
        await connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await connection.query(statement)

        async def release() -> None:
            await connection.rollback()

        return release

    yield begin
    for connection in held:
        await connection.ensure_closed()


async def test_a_hundred_conflicts_of_first_saves(open_driver: Open) -> None:
    """No exception reaches the caller, nothing is lost, and nothing is there twice."""
    drivers = [open_driver(max_pool_size=4), open_driver(max_pool_size=4)]
    for driver in drivers:
        await asyncio.gather(*[driver.threads("default", "*", limit=1, offset=0, now=tick()) for _ in range(4)])
    for i in range(100):
        key = Key("default", f"t{i}")
        count = 2 + i % 5
        plans = [fresh(f"x{n}", key=key) for n in range(count)]
        calls = [drivers[n % 2].put(key, plan) for n, plan in enumerate(plans)]
        if i % 3 == 0:
            records = [("k", b"1 1 r - 0 0 00000000\n")]
            calls.append(drivers[0].put_records(key, "s", records, keep=True, now=tick(), expires_at=None))
        done = await asyncio.gather(*calls)
        assert sorted(r.version for r in done if isinstance(r, Saved)) == list(range(1, count + 1))
        found = await chain(drivers[1], key)
        assert sorted(i for _, i, _ in found) == sorted(plan.checkpoint_id for plan in plans)
        assert [parent for _, _, parent in found] == [None, *[i for _, i, _ in found[:-1]]]
    assert len(await drivers[0].threads("default", "*", limit=None, offset=0, now=tick())) == 100


async def test_sixteen_writers_make_one_chain(open_driver: Open) -> None:
    writers = [open_driver(max_pool_size=8) for _ in range(2)]
    saves = [Writer(driver, f"w{i}-{j}-") for i, driver in enumerate(writers) for j in range(8)]

    async def run(writer: Writer) -> None:
        for _ in range(20):
            await writer.step()

    await asyncio.gather(*map(run, saves))
    await assert_is_chain(writers[0], 320)  # type: ignore[arg-type]
    for writer in saves:
        assert len(writer.saved) == 20
        await writer.check(random.sample(list(writer.saved), 3))


async def test_writers_of_neighbouring_threads_do_not_wait_for_each_other(open_driver: Open, hold: Hold) -> None:
    """A thread is locked without the gap beside it, in which others make threads of their own."""
    driver = open_driver(lock_timeout=1)
    for name in ("a", "c"):
        await save(driver, fresh("x", key=Key("default", name)), Key("default", name))
    release = await hold("SELECT * FROM locus_store_threads WHERE thread_id = 'a' FOR UPDATE")
    for name in ("b", "c", "d"):
        await save(driver, fresh("y", key=Key("default", name)), Key("default", name))
    with pytest.raises(StoreBusyError):
        await save(driver, fresh("y", key=Key("default", "a")), Key("default", "a"))
    await release()
    await save(driver, fresh("y", key=Key("default", "a")), Key("default", "a"))


async def test_saves_that_wait_for_the_row(driver: MySQLDriver, hold: Hold) -> None:
    first = fresh("x")
    base = grown(first, await save(driver, first))
    release = await hold("SELECT * FROM locus_store_threads FOR UPDATE")
    plans = [fresh(f"y{i}", base=base, reused={1: [Range(1, 1)]}) for i in range(4)]
    plans += [fresh(f"z{i}") for i in range(4)]
    saves = [asyncio.ensure_future(save(driver, plan)) for plan in plans]
    await asyncio.sleep(0.3)
    assert not any(save.done() for save in saves)
    await release()
    await asyncio.gather(*saves)
    await assert_is_chain(driver, 9)  # type: ignore[arg-type]
    for plan in plans[:4]:
        assert (await lines(driver, plan.checkpoint_id) or [""])[0] == "x"


async def test_copies_in_opposite_directions(open_driver: Open) -> None:
    drivers = [open_driver(max_pool_size=4), open_driver(max_pool_size=4)]
    keys = [Key("default", name) for name in "ab"]
    for key in keys:
        await save(drivers[0], fresh("x", key=key), key)
    for _ in range(20):
        done = await asyncio.gather(
            drivers[0].clone(keys[0], keys[1], upto=None, overwrite=True, now=tick()),
            drivers[1].clone(keys[1], keys[0], upto=None, overwrite=True, now=tick()),
            save(drivers[0], fresh("y", key=keys[0]), keys[0]),
            save(drivers[1], make_plan(f"n{tick()}", {1: ["z"]}, key=keys[1]), keys[1]),
        )
        assert done[:2] == ["copied", "copied"]


async def test_a_lock_that_is_not_free_in_time_leaves_nothing(open_driver: Open, hold: Hold) -> None:
    driver = open_driver(lock_timeout=0.5, max_pool_size=1)
    await save(driver, fresh("x"))
    release = await hold("SELECT * FROM locus_store_threads FOR UPDATE")
    calls: list[Callable[[], Any]] = [
        lambda: save(driver, fresh("y")),
        lambda: driver.drop(KEY, None, now=tick()),
        lambda: driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None),
    ]
    for call in calls:
        with pytest.raises(StoreBusyError):
            await call()
    assert await lines(driver) == ["x"]
    await release()
    await save(driver, fresh("y"))
    assert len(await chain(driver)) == 2
