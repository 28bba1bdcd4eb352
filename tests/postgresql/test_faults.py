"""Lost connections, lost answers, servers that stop: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import servers
from drivers.plans import KEY, grown, make_plan, tick
from fault_proxy import FaultProxy
from postgresql.steps import Writer, chain, fresh, lines, save

from locus_store.backends.postgresql import PostgreSQLDriver
from locus_store.core.driver import Conflict
from locus_store.core.errors import BackendUnavailableError, LocusStoreError
from locus_store.core.references import Range

Open = Callable[..., PostgreSQLDriver]


@pytest.fixture
async def proxy(postgresql_server: servers.PostgreSQLServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(postgresql_server.host, postgresql_server.port) as found:
        yield found


@pytest.fixture
def through(open_driver: Open, postgresql_url: str, proxy: FaultProxy) -> Open:
    """Opens drivers that reach the server through the proxy."""
    name = postgresql_url.rpartition("/")[2]

    def new(**options: Any) -> PostgreSQLDriver:
        return open_driver(f"postgresql://postgres:s3cret-pw@127.0.0.1:{proxy.port}/{name}", **options)

    return new


async def terminate(session: Any) -> int:
    """End all sessions but this one, as an administrator would."""
    return int(
        await session.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("based", [False, True])
async def test_a_save_whose_answer_is_lost(through: Open, proxy: FaultProxy, when: Any, based: bool) -> None:
    driver = through(max_pool_size=1)
    first = fresh("x")
    base = grown(first, await save(driver, first))
    plan = fresh("y", base=base, reused={1: [Range(1, 1)]}, expected_version=1) if based else fresh("y")
    proxy.cut(plan.checkpoint_id.encode(), when)
    saved = await save(driver, plan)
    assert proxy.cuts == 1
    assert saved.version == 2
    assert [version for version, _, _ in await chain(driver)] == [1, 2]
    assert await lines(driver) == (["x", "y"] if based else ["y"])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_transaction_whose_commit_is_lost(through: Open, proxy: FaultProxy, when: Any) -> None:
    driver = through(max_pool_size=1)
    await save(driver, fresh("x"))
    proxy.cut(b"COMMIT", when)
    plan = make_plan("named", {1: ["y"]}, expected_version=1, if_exists="error")
    assert (await save(driver, plan)).version == 2
    assert proxy.cuts == 1
    assert [i for _, i, _ in await chain(driver)][1:] == ["named"]


async def test_a_save_that_is_still_running_when_it_is_tried_again(
    through: Open, proxy: FaultProxy, session: Any
) -> None:
    """The connection broke while the server's side waits for the row: both attempts run, one of them counts."""
    driver = through(max_pool_size=1)
    await save(driver, fresh("x"))
    plan = fresh("y")
    async with session.transaction():
        await session.execute("SELECT 1 FROM locus_store_threads FOR UPDATE")
        saving = asyncio.ensure_future(save(driver, plan))
        while await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < 1:
            await asyncio.sleep(0.01)
        await proxy.set("reset")
        await proxy.set("pass")
        while await session.fetchval("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted") < 2:
            await asyncio.sleep(0.01)
    await saving
    # The attempt whose client is gone ends in its own time.
    while await session.fetchval("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") > 1:
        await asyncio.sleep(0.01)
    assert [i for _, i, _ in await chain(driver)][1:] == [plan.checkpoint_id]


async def test_terminated_sessions(open_driver: Open, session: Any) -> None:
    driver = open_driver(max_pool_size=5)
    await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(20)])
    head = (await chain(driver))[-1][1]
    for _ in range(3):
        assert await terminate(session) >= 1
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert stored.checkpoint_id == head
        assert await terminate(session) >= 1
        await asyncio.gather(*[driver.get(KEY, None, now=tick()) for _ in range(10)])
    await terminate(session)
    assert len(await driver.infos(KEY, before=None, limit=None, now=tick())) == 20
    await terminate(session)
    await save(driver, fresh("y"))
    await terminate(session)
    await save(driver, make_plan("named"))
    await terminate(session)
    assert (await driver.drop(KEY, None, now=tick())).count == 22


async def test_sessions_are_terminated_all_the_time(open_driver: Open, session: Any) -> None:
    driver = open_driver(max_pool_size=4)
    writers = [Writer(driver, f"w{i}-") for i in range(4)]
    await writers[0].step()
    going = True

    async def write(writer: Writer) -> None:
        while going:
            # One that failed may be there; the next goes on from what was acknowledged.
            with contextlib.suppress(BackendUnavailableError):
                await writer.step()

    async def killer() -> None:
        nonlocal going
        kills = 0
        while kills < 25 or sum(len(w.saved) for w in writers) < 60:
            await asyncio.sleep(0.08)
            await terminate(session)
            kills += 1
        going = False

    await asyncio.gather(*map(write, writers), killer())
    acknowledged = {i for w in writers for i in w.saved}
    assert len(acknowledged) > 50
    found = [i for _, i, _ in await chain(driver)]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    for writer in writers:
        await writer.check(random.sample(list(writer.saved), min(20, len(writer.saved))))


async def test_a_restart_in_the_middle(postgresql_server: servers.PostgreSQLServer, open_driver: Open) -> None:
    if not postgresql_server.managed:
        pytest.skip("the server is somebody else's")
    driver = open_driver(max_pool_size=4)
    await driver.prepare()
    acknowledged: list[str] = []
    failures: list[Exception] = []
    restarted = asyncio.Event()

    async def write(count: int) -> None:
        for i in range(count):
            plan = fresh(f"x{i}")
            while True:
                try:
                    await save(driver, plan)
                    break
                except BackendUnavailableError as error:
                    failures.append(error)
                    await asyncio.sleep(0.05)
            acknowledged.append(plan.checkpoint_id)
            if len(acknowledged) > 160:
                await restarted.wait()

    async def restart() -> None:
        while len(acknowledged) < 60:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(postgresql_server.restart)
        restarted.set()

    await asyncio.gather(*[write(50) for _ in range(4)], restart())
    found = [i for _, i, _ in await chain(driver)]
    # A save that is made again by its caller, under the same id, may be there already; it is never there twice.
    assert sorted(found) == sorted(acknowledged)
    assert len(found) == 200


async def test_the_server_is_not_there(through: Open, proxy: FaultProxy) -> None:
    driver = through()
    await save(driver, fresh("x"))
    await proxy.set("refuse")
    calls: list[Callable[[], Any]] = [
        lambda: driver.put(KEY, fresh("y")),
        lambda: driver.put(KEY, make_plan("named")),
        lambda: driver.get(KEY, None, now=tick()),
        lambda: driver.infos(KEY, before=None, limit=None, now=tick()),
        lambda: driver.drop(KEY, None, now=tick()),
        lambda: driver.reclaim(),
        lambda: through().prepare(),
    ]
    for call in calls:
        with pytest.raises(BackendUnavailableError) as raised:
            await call()
        assert isinstance(raised.value.__cause__, OSError)
        assert_secret(raised.value)
    await proxy.set("pass")
    assert await lines(driver) == ["x"]


async def test_a_server_that_does_not_answer(through: Open, proxy: FaultProxy) -> None:
    driver = through(connect_args={"timeout": 2, "command_timeout": 2})
    await save(driver, fresh("x"))
    await proxy.set("blackhole")
    started = time.monotonic()
    with pytest.raises(BackendUnavailableError):
        await driver.get(KEY, None, now=tick())
    with pytest.raises(BackendUnavailableError):
        await through(connect_args={"timeout": 2}).prepare()
    await driver.aclose()
    assert time.monotonic() - started < 40
    await proxy.set("pass")
    assert await lines(driver) == ["x"]


def assert_secret(error: BaseException) -> None:
    """No text of an error, or of those behind it, holds the password."""
    seen: BaseException | None = error
    while seen is not None:
        assert "s3cret" not in f"{seen} {seen!r} {seen.args}"
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://nobody:s3cret-pw@{place}",
        "postgresql://postgres:s3cret-pw@{place}-not-there",
        "postgresql://postgres:s3cret-pw@127.0.0.1:1/x",
        "postgresql://postgres:s3cret-pw@no.such.host.invalid/x",
    ],
)
async def test_no_password_in_errors(open_driver: Open, postgresql_url: str, url: str) -> None:
    driver = open_driver(url.format(place=postgresql_url.rpartition("@")[2]))
    with pytest.raises(LocusStoreError) as raised:
        await driver.get(KEY, None, now=tick())
    assert isinstance(raised.value, BackendUnavailableError)
    assert_secret(raised.value)
    assert "s3cret" not in repr(driver)


async def test_a_conflict_is_told_after_a_lost_answer(through: Open, proxy: FaultProxy, open_driver: Open) -> None:
    """The save never came to the server, and somebody else's came first."""
    driver, other = through(max_pool_size=1), open_driver()
    first = fresh("x")
    base = grown(first, await save(driver, first))
    plan = fresh("y", base=base, reused={1: [Range(1, 1)]}, expected_version=1)
    await save(other, fresh("z"))
    proxy.cut(plan.checkpoint_id.encode(), "before")
    assert await driver.put(KEY, plan) == Conflict(2)
