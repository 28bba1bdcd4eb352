"""The first use of a database, options, engines of the host, and what is not there."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import servers
from drivers.plans import KEY, make_plan, tick
from postgresql.steps import Writer, chain, fresh, lines, save
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from locus_store.backends.postgresql import PostgreSQLDriver
from locus_store.backends.postgresql.options import address
from locus_store.core.errors import (
    MissingDependencyError,
    PayloadTooLargeError,
    SchemaIncompleteError,
    SchemaNotReadyError,
    StoreBusyError,
)
from locus_store.core.frames import numbered
from locus_store.sql.models import metadata

Open = Callable[..., PostgreSQLDriver]


@pytest.fixture
async def engine(postgresql_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine as a host may have it."""
    made = create_async_engine(postgresql_url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=2)
    yield made
    await made.dispose()


# ------------------------------------------------------------------------------------------------------- first use


async def test_twenty_five_first_saves_of_two_stores(open_driver: Open) -> None:
    drivers = [open_driver(), open_driver()]
    results = await asyncio.gather(*[save(drivers[i % 2], fresh(f"x{i}")) for i in range(25)])
    assert sorted(r.version for r in results) == list(range(1, 26))


@pytest.mark.parametrize("seconds", [0, 0.005, 0.02, 0.05, 0.1, 0.2])
async def test_the_first_one_is_cancelled(open_driver: Open, seconds: float) -> None:
    drivers = [open_driver(), open_driver()]
    first = [asyncio.ensure_future(save(driver, fresh("gone"))) for driver in drivers]
    others = [asyncio.ensure_future(save(drivers[i % 2], fresh(f"x{i}"))) for i in range(25)]
    await asyncio.sleep(seconds)
    for task in first:
        task.cancel()
    done = await asyncio.gather(*others, *first, return_exceptions=True)
    assert all(not isinstance(r, BaseException) for r in done[:25]), done
    assert len(await chain(drivers[0])) in (25, 26, 27)


async def test_processes_that_begin_together(postgresql_url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from locus_store.backends.postgresql import PostgreSQLDriver\n"
        "asyncio.run(PostgreSQLDriver(sys.argv[1]).prepare())\n"
    )
    running = [
        await asyncio.create_subprocess_exec(sys.executable, "-W", "error", "-c", program, postgresql_url)
        for _ in range(4)
    ]
    assert [await process.wait() for process in running] == [0] * 4


@pytest.fixture
async def poor_url(postgresql_url: str, session: Any) -> AsyncIterator[str]:
    """The database for a role that may not create anything."""
    name = f"poor_{postgresql_url.rpartition('_')[2]}_{id(session)}"
    await session.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await session.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw'")
    yield f"postgresql://{name}:pw@{postgresql_url.rpartition('@')[2]}"
    await session.execute(f"DROP OWNED BY {name}")
    await session.execute(f"DROP ROLE {name}")


async def test_a_role_that_may_not_create(open_driver: Open, poor_url: str, session: Any) -> None:
    poor = open_driver(poor_url)
    with pytest.raises(SchemaNotReadyError, match="may not create"):
        await save(poor, fresh("x"))
    await open_driver().prepare()
    role = poor_url.partition("//")[2].partition(":")[0]
    await session.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    await save(poor, fresh("x"))
    assert await lines(open_driver(poor_url)) == ["x"]


async def test_without_create_schema(open_driver: Open, session: Any) -> None:
    driver = open_driver(create_schema=False)
    for _ in range(2):
        with pytest.raises(SchemaNotReadyError):
            await save(driver, fresh("x"))
    assert await session.fetchval("SELECT to_regclass('locus_store_threads')") is None
    await open_driver().prepare()
    await save(driver, fresh("x"))


async def test_half_a_schema(open_driver: Open, session: Any) -> None:
    await open_driver().prepare()
    await session.execute("DROP TABLE locus_store_terms")
    with pytest.raises(SchemaIncompleteError):
        await save(open_driver(), fresh("x"))


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_tables_go_under_a_running_store(open_driver: Open, session: Any, at_once: bool) -> None:
    driver, strict = open_driver(), open_driver(create_schema=False)
    await save(driver, fresh("x"))
    await save(strict, fresh("x"))
    await session.execute(f"DROP TABLE {', '.join(metadata.tables)}, locus_store_alembic")
    with pytest.raises(SchemaNotReadyError):
        await lines(strict)
    await save(driver, fresh("y") if at_once else make_plan("y", {1: ["y"]}))
    assert await lines(driver) == ["y"]
    assert await lines(strict) == ["y"]


# ---------------------------------------------------------------------------------------------------------- schemas


async def test_schemas_are_apart(open_driver: Open, session: Any) -> None:
    await session.execute('CREATE SCHEMA agents; CREATE SCHEMA "Odd ""name"')
    stores = [open_driver(), open_driver(schema="agents"), open_driver(schema='Odd "name')]
    for i, driver in enumerate(stores):
        await save(driver, fresh(f"x{i}"))
        await save(driver, make_plan("named", {1: [f"y{i}"]}, metadata=b"{}", terms=(b"t" * 16,)))
    for i, driver in enumerate(stores):
        assert await lines(driver) == [f"y{i}"]
        assert len(await chain(driver)) == 2
        assert await driver.reclaim() >= 0
        assert (await driver.drop(KEY, ["named"], now=tick())).count == 1
        assert await lines(driver) == [f"x{i}"]


async def test_a_named_schema_needs_no_search_path(open_driver: Open, session: Any, postgresql_url: str) -> None:
    await session.execute("CREATE SCHEMA agents; CREATE SCHEMA elsewhere")
    settings = {"server_settings": {"search_path": "elsewhere"}}
    driver = open_driver(schema="agents", connect_args=settings)
    await save(driver, fresh("x"))
    await save(driver, make_plan("named", {1: ["y"]}))
    assert await driver.threads("default", "*", limit=9, offset=0, now=tick())
    found = await session.fetch("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'locus_store%'")
    assert [row["schemaname"] for row in found] == ["agents"]


async def test_without_a_name_it_is_the_search_path(open_driver: Open, session: Any) -> None:
    await session.execute("CREATE SCHEMA agents")
    driver = open_driver(connect_args={"server_settings": {"search_path": "agents"}})
    await save(driver, fresh("x"))
    assert await session.fetchval("SELECT count(*) FROM agents.locus_store_threads") == 1


# ---------------------------------------------------------------------------------------------------- host's engines


async def test_an_engine_of_the_host(engine: AsyncEngine) -> None:
    driver = PostgreSQLDriver(engine=engine)
    await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(20)])
    await save(driver, make_plan("named", {1: ["y"]}))
    assert await lines(driver) == ["y"]
    await driver.aclose()
    assert engine.pool.checkedin() >= 1  # type: ignore[attr-defined]
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    async with engine.connect() as connection:
        assert (await connection.execute(text("SHOW transaction_isolation"))).scalar() == "read committed"
        assert (await connection.execute(text("SHOW lock_timeout"))).scalar() == "0"
    assert await lines(driver) == ["y"]


def test_a_loop_of_the_host_ends_with_tasks_at_work(postgresql_url: str) -> None:
    async def main() -> None:
        made = create_async_engine(postgresql_url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=4)
        driver = PostgreSQLDriver(engine=made)
        await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(20)])
        tasks = [asyncio.ensure_future(save(driver, fresh(f"y{i}"))) for i in range(20)]
        await asyncio.sleep(0.003)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await driver.aclose()
        assert made.pool.checkedout() == 0  # type: ignore[attr-defined]
        await made.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE READ", "AUTOCOMMIT"])
async def test_whatever_isolation_the_engine_has(postgresql_url: str, level: Any) -> None:
    url = postgresql_url.replace("postgresql:", "postgresql+asyncpg:")
    made = create_async_engine(url, isolation_level=level, pool_size=8)
    driver = PostgreSQLDriver(engine=made)
    try:
        writers = [Writer(driver, f"w{i}-") for i in range(6)]
        await asyncio.gather(*[w.step() for w in writers])
        await asyncio.gather(*[w.step() for w in writers])
        await asyncio.gather(*[save(driver, make_plan(f"named{i}", {1: ["y"]})) for i in range(6)])
        assert len(await chain(driver)) == 18
    finally:
        await driver.aclose()
        await made.dispose()


async def test_sessions_that_are_serializable(open_driver: Open, session: Any, postgresql_url: str) -> None:
    name = postgresql_url.rpartition("/")[2]
    await session.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    driver = open_driver()
    results = await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(60)])
    assert sorted(r.version for r in results) == list(range(1, 61))
    found = await chain(driver)
    assert [parent for _, _, parent in found] == [None, *[i for _, i, _ in found[:-1]]]


async def test_pools_that_do_more(postgresql_url: str) -> None:
    """The host's pool asks, recycles, and has listeners of its own."""
    from sqlalchemy.pool import NullPool

    url = postgresql_url.replace("postgresql:", "postgresql+asyncpg:")
    for options in ({"pool_pre_ping": True, "pool_recycle": 0}, {"poolclass": NullPool}):
        made = create_async_engine(url, **options)
        seen: list[str] = []
        event.listen(made.sync_engine, "checkin", lambda *_, seen=seen: seen.append("in"))
        driver = PostgreSQLDriver(engine=made)
        await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(8)])
        assert await lines(driver) is not None
        assert len(seen) >= 9
        await driver.aclose()
        await made.dispose()


# ---------------------------------------------------------------------------------------------------------- options


async def test_lock_timeout(open_driver: Open, session: Any) -> None:
    driver = open_driver(lock_timeout=0.1)
    await save(driver, fresh("x"))
    plans = [fresh("y"), make_plan("named")]
    async with session.transaction():
        await session.execute("SELECT 1 FROM locus_store_threads FOR UPDATE")
        for plan in plans:
            with pytest.raises(StoreBusyError):
                await driver.put(KEY, plan)
        with pytest.raises(StoreBusyError):
            await driver.drop(KEY, None, now=tick())
        assert await lines(driver) == ["x"]
    for plan in plans:
        await save(driver, plan)
    (opened,) = driver._engines._opened.values()
    async with opened.engine.connect() as connection:
        assert (await connection.execute(text("SHOW lock_timeout"))).scalar() == "0"


async def test_pool_sizes(open_driver: Open, session: Any) -> None:
    driver = open_driver(min_pool_size=3, max_pool_size=4)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await driver.prepare()
    assert await session.fetchval(sessions) == 3
    await asyncio.gather(*[save(driver, fresh("x")) for _ in range(30)])
    assert await session.fetchval(sessions) == 4


async def test_without_prepared_statements(open_driver: Open) -> None:
    """As behind a pooler."""
    driver = open_driver(connect_args={"statement_cache_size": 0, "prepared_statement_cache_size": 0})
    await asyncio.gather(*[save(driver, fresh(f"x{i}")) for i in range(20)])
    await save(driver, make_plan("named", {1: ["y"]}))
    assert await lines(driver) == ["y"]


async def test_reclaim(open_driver: Open, session: Any) -> None:
    driver = open_driver()
    await save(driver, fresh("kept"))
    for _ in range(20):
        await save(
            driver, fresh(os.urandom(50_000).hex(), key=KEY._replace(thread_id="big")), KEY._replace(thread_id="big")
        )
    await driver.drop(KEY._replace(thread_id="big"), None, now=tick())
    size = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'locus_store%' AND relkind = 'r'"
    before = await session.fetchval(size)
    freed = await driver.reclaim()
    assert freed > 0
    assert await session.fetchval(size) == before - freed
    assert await lines(driver) == ["kept"]


def test_constructors_do_no_io() -> None:
    driver = PostgreSQLDriver("postgresql://u:s3cret@no.such.host.invalid/db?application_name=x")
    assert "s3cret" not in repr(driver)
    with pytest.raises(ValueError, match="pass a url"):
        PostgreSQLDriver()


def test_asyncpg_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingDependencyError, match=r"locus-store\[postgresql\]"):
        PostgreSQLDriver("postgresql://localhost/x")


def test_urls() -> None:
    url, connect = address(
        "postgres://u:p@h:1/d?sslmode=disable&application_name=app&statement_cache_size=0&connect_timeout=3", None
    )
    assert url.render_as_string(hide_password=False) == "postgresql+asyncpg://u:p@h:1/d"
    assert connect == {
        "timeout": 3.0,
        "ssl": "disable",
        "statement_cache_size": 0,
        "server_settings": {"application_name": "app"},
    }
    assert address("postgresql+asyncpg://h/d", {"timeout": 1})[1] == {"timeout": 1}
    for wrong in ("mysql://u:s3cret@h/d", "u:s3cret", "postgresql://u:s3cret@h:x/d", "postgresql+psycopg://u:s3cret@h"):
        with pytest.raises(ValueError, match=r"URL|scheme") as raised:
            address(wrong, None)
        assert "s3cret" not in str(raised.value)


def test_engines_that_do_not_fit() -> None:
    made = create_async_engine("sqlite+aiosqlite://") if _has_aiosqlite() else None
    if made is not None:
        with pytest.raises(ValueError, match="asyncpg"):
            PostgreSQLDriver(engine=made)
    fitting = create_async_engine("postgresql+asyncpg://localhost/x")
    with pytest.raises(ValueError, match="engine of yours"):
        PostgreSQLDriver("postgresql://localhost/x", engine=fitting)


def _has_aiosqlite() -> bool:
    import importlib.util

    return importlib.util.find_spec("aiosqlite") is not None


# ------------------------------------------------------------------------------------------------------------- size


async def test_too_large(driver: PostgreSQLDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.dialect, "max_piece", 1000)
    for plan in (fresh("x" * 2000), make_plan("named", {1: ["x" * 2000]})):
        with pytest.raises(PayloadTooLargeError):
            await driver.put(KEY, plan)


@pytest.mark.endurance
async def test_three_hundred_megabytes(
    open_driver: Open, new_postgresql: Callable[..., servers.PostgreSQLServer]
) -> None:
    driver = open_driver(new_postgresql().admin_url)
    block = b"1 b - 1:1 " + b"x" * 300_000_000
    for plan in (fresh(), make_plan("named")):
        large = _with(plan, block=block, payload=block, ranges=b"[[1,[0]]]")
        saved = await save(driver, large)
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert list(stored.blocks) == [numbered(saved.block, block)]
        assert stored.payload == block
        del stored


def _with(plan: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(plan, **changes)
