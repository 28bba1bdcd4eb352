"""A PgBouncer in transaction mode between the store and the server: three sessions for a dozen clients."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import servers
from conftest import unavailable
from drivers.plans import KEY, make_plan, tick
from pgbouncer import PgBouncer
from postgresql.steps import chain, fresh, lines, save
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from locus_store import BackendError, PostgreSQLBackend, SearchNotEnabledError
from locus_store.backends.postgresql import PostgreSQLDriver
from locus_store.core.backend import Backend

RECIPE = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": lambda: "",
}

Open = Callable[..., Backend]


@pytest.fixture(scope="module")
def pooler(postgresql_server: servers.PostgreSQLServer) -> Iterator[PgBouncer]:
    try:
        started = PgBouncer(postgresql_server)
    except servers.ServerUnavailableError as error:
        unavailable("pgbouncer", error)
    yield started
    started.close()


@pytest.fixture
def pooled(pooler: PgBouncer, postgresql_url: str) -> str:
    """The URL of an empty database, by way of the pooler."""
    servers.note_ran("pgbouncer")
    pooler.server.execute("CREATE SCHEMA agents", url=postgresql_url)
    return pooler.url(postgresql_url)


@contextlib.asynccontextmanager
async def engine(url: str, **connect_args: Any) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(
        url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=3, max_overflow=0, connect_args=connect_args
    )
    try:
        yield made
    finally:
        await made.dispose()


async def mixed_calls(stores: list[Backend]) -> None:
    """A hundred calls of twelve tasks."""
    saved: list[dict[str, list[Any]]] = [{} for _ in range(12)]

    async def task(i: int) -> None:
        store, mine, thread = stores[i % len(stores)], saved[i], f"t{i}"
        for n in range(3):
            for name in (None, f"named{n}"):
                document = {"messages": [*range(100 * n), "é"], "task": i, "name": name}
                mine[await store.save(thread, document, name, metadata={"task": i})] = document
        assert await store.load(thread) == document
        await store.save("shared", {"task": i})
        assert set(await store.list_checkpoints(thread, None)) == mine.keys()

    await asyncio.gather(*map(task, range(12)))
    for i, mine in enumerate(saved):
        store = random.choice(stores)
        for checkpoint_id, document in random.sample(list(mine.items()), 2):
            assert await store.load(f"t{i}", checkpoint_id) == document
    one, another = stores[0], stores[-1]
    assert len(await one.list_checkpoints("shared", None)) == 12
    assert len(await another.list_threads(limit=None)) == 13
    assert await one.copy_thread("t1", "copy")
    assert await another.load("copy", "named2") == await one.load("t1", "named2")
    assert [found["thread_id"] for found in await another.query_by_metadata({"task": 3})] == ["t3"]
    assert await another.delete("t2", ["named1"])
    assert await one.delete("copy")
    assert await another.exists("t2")
    assert not await another.exists("copy")
    await one.vacuum()


@pytest.fixture(params=["found out", "told in the URL", "told", "an engine", "a schema"])
async def open_store(request: pytest.FixtureRequest, pooled: str) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def open_one() -> Backend:
            if request.param == "an engine":
                driver = PostgreSQLDriver(engine=await stack.enter_async_context(engine(pooled, **RECIPE)))
                return await stack.enter_async_context(Backend(driver))
            options: dict[str, Any] = {
                "found out": {},
                "told in the URL": {"dsn": f"{pooled}?statement_cache_size=0"},
                "told": {"connect_args": {"statement_cache_size": 0}},
                "a schema": {"schema_name": "agents"},
            }[request.param]
            return await stack.enter_async_context(PostgreSQLBackend(**({"dsn": pooled, "max_pool_size": 3} | options)))

        yield open_one


async def test_case_61_a_hundred_mixed_calls(open_store: Any, pooled: str, postgresql_server: Any) -> None:
    await mixed_calls([await open_store() for _ in range(4)])
    # Nothing is left in the sessions that the pooler gives to the next one.
    direct = await asyncpg.connect(pooled, statement_cache_size=0)
    try:
        for _ in range(6):
            async with direct.transaction():
                assert await direct.fetchval("SHOW lock_timeout") == "0"
                assert await direct.fetchval("SHOW search_path") == '"$user", public'
                locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
                assert await direct.fetchval(locks) == 0
    finally:
        await direct.close()


async def test_searches(open_store: Any) -> None:
    stores = [await open_store() for _ in range(3)]
    await stores[0].save("early", {"messages": ["needle"]})
    await asyncio.gather(*[store.enable_search() for store in stores])

    async def task(i: int) -> None:
        for n in range(4):
            await stores[i % 3].save(f"t{i}", {"messages": [f"needle {n}"]})
            await stores[(i + 1) % 3].search("needle")

    await asyncio.gather(*map(task, range(6)))
    assert len(await stores[1].search("needle", limit=None)) == 1 + 6 * 4
    await stores[2].disable_search()
    with pytest.raises(SearchNotEnabledError):
        await stores[0].search("needle")


async def test_case_61_sessions_of_a_host(pooled: str) -> None:
    """Twelve transactions of a host's at once, each with a store bound to it."""
    async with PostgreSQLBackend(dsn=pooled) as store, engine(pooled, **RECIPE) as made:
        await store.setup()

        async def request(i: int) -> None:
            for n in range(8):
                async with AsyncSession(made) as session, session.begin():
                    bound = store.bind(session)
                    found = await bound.load(f"t{i}") or {"lines": []}
                    assert found["lines"] == [*range(n)]
                    await bound.save(f"t{i}", {"lines": [*range(n + 1)]}, f"named{n}" if n % 2 else None)
            assert len(await store.list_checkpoints(f"t{i}")) == 8

        await asyncio.gather(*map(request, range(12)))
        assert len(await store.list_threads(limit=None)) == 12


async def test_several_processes_one_after_another(pooled: str) -> None:
    """What a process prepared is still there when the next one comes, which gives its statements the same numbers."""
    for round_ in range(6):
        async with PostgreSQLBackend(dsn=pooled, max_pool_size=2) as store:
            await asyncio.gather(*[store.save("t", {"n": n}) for n in range(5)])
            assert len(await store.list_checkpoints("t", None)) == 5 * (round_ + 1)


async def test_no_statement_has_a_name_once_it_is_told(
    pooled: str, postgresql_server: servers.PostgreSQLServer
) -> None:
    async with PostgreSQLBackend(dsn=pooled, connect_args={"statement_cache_size": 0}) as store:
        await mixed_calls([store])
    direct = await asyncpg.connect(pooled, statement_cache_size=0)
    try:
        for _ in range(6):
            assert await direct.fetch("SELECT name FROM pg_prepared_statements") == []
    finally:
        await direct.close()


async def test_an_engine_without_the_recipe_is_told_what_to_do(pooled: str) -> None:
    """It breaks at a moment that nobody can foretell; when it does, the error says why."""
    async with PostgreSQLBackend(dsn=pooled) as store:
        await store.save("t", {})
    async with engine(pooled) as made, engine(pooled) as another:
        drivers = [PostgreSQLDriver(engine=made), PostgreSQLDriver(engine=another)]

        async def use(driver: PostgreSQLDriver, i: int) -> None:
            await save(driver, fresh("x"))
            await save(driver, make_plan(f"named{i}", {1: ["y"]}))
            await chain(driver)

        done = await asyncio.gather(*[use(drivers[i % 2], i) for i in range(60)], return_exceptions=True)
        failures = [error for error in done if error is not None]
        assert failures
        assert all(isinstance(error, BackendError) for error in failures), failures
        assert any("statement_cache_size" in str(error) and "PgBouncer" in str(error) for error in failures), failures


async def test_what_the_documentation_says(pooled: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pooler.md").read_text()
    place = pooled.partition("://")[2]
    first, second, third = [
        textwrap.dedent(block).replace("app:secret@pooler:6432/agents", place)
        for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    ]
    made: list[Any] = []
    names = {
        "PostgreSQLBackend": lambda **options: made.append(PostgreSQLBackend(**options)),
        "create_async_engine": lambda *args, **options: made.append(create_async_engine(*args, **options)),
        "url": pooled,
    }
    for block in (first, second, third):
        exec(block, dict(names))
    assert len(made) == 4
    made[3:] = [Backend(PostgreSQLDriver(engine=made[3])), *made[3:]]
    for i, store in enumerate(made[:4]):
        await asyncio.gather(*[store.save("t", {"i": i}) for _ in range(5)])
        assert len(await store.list_checkpoints("t", None)) == 5 * (i + 1)
        await store.close()
    await made[4].dispose()


async def test_cancelled_calls_leave_no_session_behind(
    pooled: str, postgresql_server: servers.PostgreSQLServer
) -> None:
    driver = PostgreSQLDriver(pooled, max_pool_size=6)
    await save(driver, fresh("x"))

    async def one(i: int) -> None:
        call = save(driver, fresh("y") if i % 2 else make_plan(f"named{i}", {1: ["y"]}))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call, random.uniform(0, 0.02))

    await asyncio.gather(*map(one, range(60)))
    await save(driver, fresh("last"))
    assert await lines(driver) == ["last"]
    assert (await driver.drop(KEY, None, now=tick())).count >= 2
    await driver.aclose()


async def test_a_session_without_a_pooler_keeps_its_statements(postgresql_url: str) -> None:
    driver = PostgreSQLDriver(postgresql_url, max_pool_size=1)
    for _ in range(3):
        await save(driver, fresh("x"))
        assert await lines(driver) == ["x"]
    (opened,) = driver._engines._opened.values()
    async with opened.lease() as connection:
        names = {row["name"] for row in await connection.fetch("SELECT name FROM pg_prepared_statements")}
    assert len(names) >= 2
    await driver.aclose()
