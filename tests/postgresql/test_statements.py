"""How many statements the server is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import servers
from drivers.plans import KEY, grown, tick
from postgresql.steps import fresh, save

from locus_store.backends.postgresql import PostgreSQLDriver
from locus_store.core.driver import Base, Plan
from locus_store.core.references import Range

Count = Callable[[Callable[[], Awaitable[Any]]], Awaitable[list[str]]]


@pytest.fixture(scope="module")
def counting_server() -> Iterator[servers.PostgreSQLServer]:
    try:
        server = servers.start_postgresql(
            {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top"}, external=False
        )
    except servers.ServerUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture(params=[None, 'odd"schema'])
async def driver(
    request: pytest.FixtureRequest, counting_server: servers.PostgreSQLServer
) -> AsyncIterator[PostgreSQLDriver]:
    servers.note_ran("postgresql", f"PostgreSQL {counting_server.version}")
    url = counting_server.create_database()
    counting_server.execute("CREATE EXTENSION pg_stat_statements", 'CREATE SCHEMA "odd""schema"', url=url)
    opened = PostgreSQLDriver(url, schema=request.param, max_pool_size=1)
    yield opened
    await opened.aclose()
    counting_server.drop_database(url)


@pytest.fixture
def count(counting_server: servers.PostgreSQLServer, driver: PostgreSQLDriver) -> Count:
    """Runs a call, and returns the statements that the server was sent meanwhile."""

    async def run(call: Callable[[], Awaitable[Any]]) -> list[str]:
        await call()  # so that the connection is there, the tables were looked at and the types are known
        counting_server.execute("SELECT pg_stat_statements_reset()", url=_url(driver))
        await call()
        found = counting_server.execute(
            "SELECT query, calls FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'", url=_url(driver)
        )
        return [query for query, calls in found for _ in range(calls)]

    return run


def _url(driver: PostgreSQLDriver) -> str:
    return f"postgresql://postgres@{driver._place}"


async def _base(driver: PostgreSQLDriver) -> tuple[Plan, Base]:
    plan = fresh("x")
    return plan, grown(plan, await save(driver, plan))


async def test_a_save_is_one(driver: PostgreSQLDriver, count: Count) -> None:
    for options in ({}, {"terms": (b"t" * 16,), "metadata": b"{}"}):
        statements = await count(lambda: save(driver, fresh("x", **options)))  # noqa: B023
        assert len(statements) == 1, statements
        assert "locus_store_threads" in statements[0]
    assert len(await count(lambda: save(driver, fresh()))) == 1


async def test_a_save_on_a_base_is_one(driver: PostgreSQLDriver, count: Count) -> None:
    async def step() -> None:
        _, base = await _base(driver)
        before = {1: [Range(1, 1)]}
        await save(driver, fresh("y", base=base, reused=before))
        await save(driver, fresh("y", base=base, reused=before, expected_version=base.version + 1, terms=(b"t" * 16,)))

    assert len(await count(step)) == 3


async def test_reads_are_one(driver: PostgreSQLDriver, count: Count) -> None:
    plan, base = await _base(driver)
    for i in range(5):
        await save(driver, fresh(f"y{i}", base=base, reused={1: [Range(1, 1)]}))
    found = plan.checkpoint_id
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: driver.get(KEY, None, now=tick()),
        lambda: driver.get(KEY, found, now=tick()),
        lambda: driver.info(KEY, None, now=tick()),
        lambda: driver.info(KEY, found, now=tick()),
        lambda: driver.infos(KEY, before=None, limit=10, now=tick()),
        lambda: driver.infos(KEY, before=3, limit=None, now=tick()),
        lambda: driver.threads("default", "*", limit=100, offset=0, now=tick()),
        lambda: driver.threads("default", "?*", limit=None, offset=1, now=tick()),
        lambda: driver.find("default", [b"t" * 16], thread_id=None, newest_only=False, limit=9, offset=0, now=tick()),
        lambda: driver.records(KEY, None, now=tick()),
    ]
    for i, call in enumerate(calls):
        statements = await count(call)
        assert len(statements) == 1, (i, statements)


async def test_no_ddl_where_all_is_ready(driver: PostgreSQLDriver, counting_server: servers.PostgreSQLServer) -> None:
    await driver.prepare()
    counting_server.execute("SELECT pg_stat_statements_reset()", url=_url(driver))
    again = PostgreSQLDriver(_url(driver), schema=driver._schema)
    await again.prepare()
    await again.aclose()
    found = counting_server.execute("SELECT query FROM pg_stat_statements", url=_url(driver))
    assert found
    assert not [query for (query,) in found if query.split()[0].upper() in ("CREATE", "ALTER", "DROP", "LOCK")]


async def test_listings_read_no_payloads(driver: PostgreSQLDriver, count: Count) -> None:
    await _base(driver)
    for call in (
        lambda: driver.infos(KEY, before=None, limit=10, now=tick()),
        lambda: driver.threads("default", "*", limit=100, offset=0, now=tick()),
    ):
        (statement,) = await count(call)
        assert "payload" not in statement
        assert "locus_store_blocks" not in statement
