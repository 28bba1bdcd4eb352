"""Lost connections and lost answers: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import servers
from drivers.plans import KEY, grown, make_plan, tick
from fault_proxy import FaultProxy
from mariadb.conftest import Open
from postgresql.steps import chain, fresh, lines, save

from locus_store.core.driver import Conflict
from locus_store.core.errors import BackendUnavailableError
from locus_store.core.references import Range


@pytest.fixture
async def proxy(mariadb_server: servers.MariaDBServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(mariadb_server.host, mariadb_server.port) as found:
        yield found


@pytest.fixture
def through(open_driver: Open, mariadb_url: str, proxy: FaultProxy) -> Open:
    """Opens drivers that reach the server through the proxy."""
    user = mariadb_url.rpartition("@")[0]
    return lambda **options: open_driver(f"{user}@127.0.0.1:{proxy.port}/{mariadb_url.rpartition('/')[2]}", **options)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", ["insert", "commit"])
@pytest.mark.parametrize("based", [False, True])
async def test_a_save_whose_answer_is_lost(through: Open, proxy: FaultProxy, when: Any, lost: str, based: bool) -> None:
    driver = through(max_pool_size=1)
    first = fresh("x")
    base = grown(first, await save(driver, first))
    plan = fresh("y", base=base, reused={1: [Range(1, 1)]}, expected_version=1) if based else fresh("y")
    proxy.cut(plan.checkpoint_id.encode() if lost == "insert" else b"COMMIT", when)
    saved = await save(driver, plan)
    assert proxy.cuts == 1
    assert saved.version == 2
    assert [(version, i) for version, i, _ in await chain(driver)] == [
        (1, first.checkpoint_id),
        (2, plan.checkpoint_id),
    ]
    assert await lines(driver) == (["x", "y"] if based else ["y"])


async def test_a_conflict_is_told_after_a_lost_answer(through: Open, proxy: FaultProxy, open_driver: Open) -> None:
    """The save never came to the server, and somebody else's came first."""
    driver, other = through(max_pool_size=1), open_driver()
    first = fresh("x")
    base = grown(first, await save(driver, first))
    plan = fresh("y", base=base, reused={1: [Range(1, 1)]}, expected_version=1)
    await save(other, fresh("z"))
    proxy.cut(b"START TRANSACTION", "before")
    assert await driver.put(KEY, plan) == Conflict(2)
    assert proxy.cuts == 1


async def test_sessions_that_are_killed_between_calls(
    open_driver: Open, mariadb_url: str, mariadb_server: servers.MariaDBServer
) -> None:
    driver = open_driver(max_pool_size=4)
    await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(8)])

    async def kill() -> None:
        assert await asyncio.to_thread(mariadb_server.sessions, mariadb_url)
        await asyncio.to_thread(mariadb_server.throw_out, mariadb_url)

    await kill()
    await asyncio.gather(*[driver.get(KEY, None, now=tick()) for _ in range(8)])
    await kill()
    assert len(await driver.infos(KEY, before=None, limit=None, now=tick())) == 8
    await kill()
    await save(driver, fresh("y"))
    await kill()
    await save(driver, make_plan("named", {1: ["z"]}))
    assert await lines(driver) == ["z"]
    await kill()
    assert (await driver.drop(KEY, None, now=tick())).count == 10


async def test_the_server_is_not_there_for_a_while(through: Open, proxy: FaultProxy) -> None:
    driver = through()
    await save(driver, fresh("x"))
    await proxy.set("refuse")
    for call in (
        lambda: driver.put(KEY, fresh("y")),
        lambda: driver.get(KEY, None, now=tick()),
        lambda: driver.drop(KEY, None, now=tick()),
        lambda: driver.reclaim(),
        lambda: through().prepare(),
    ):
        with pytest.raises(BackendUnavailableError) as raised:
            await call()
        assert raised.value.__cause__ is not None
    await proxy.set("pass")
    assert await lines(driver) == ["x"]
