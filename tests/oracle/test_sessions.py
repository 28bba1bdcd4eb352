"""Databases and sessions in which two ids could be taken for one are refused; the stand-in says what Oracle would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import servers
from backends import database_of
from oracle.oracle_standin import creator
from oracle.oracle_standin.backend import StandInBackend
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from locus_store import OracleBackend
from locus_store.core.errors import BackendError
from locus_store.sql.dialects.oracle_session import BINARY

OTHER = [("NLS_COMP", "LINGUISTIC"), ("NLS_SORT", "GERMAN")]


@pytest.fixture
def default(postgresql_server: servers.PostgreSQLServer, empty_url: str) -> Callable[[str, str], None]:
    """Sets what a database's new sessions have."""

    def change(name: str, value: str) -> None:
        database = database_of(empty_url)
        postgresql_server.execute(f"ALTER DATABASE {database} SET oracle.{name} = '{value}'", url=empty_url)

    return change


@pytest.fixture
async def engine(empty_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine("oracle+oracledb_async://", connect_args={"async_creator_fn": creator(empty_url)})
    yield made
    await made.dispose()


def begin_with(engine: AsyncEngine, statement: str) -> None:
    """Has the host's sessions begin with a statement."""

    def connected(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()

    event.listen(engine.sync_engine, "connect", connected)


async def test_a_character_set_without_all_of_unicode(
    empty_url: str, default: Callable[[str, str], None], engine: AsyncEngine
) -> None:
    default("NLS_CHARACTERSET", "WE8MSWIN1252")
    for store in (StandInBackend(empty_url), OracleBackend(engine=engine)):
        async with store:
            for call in (store.setup, lambda s=store: s.save("t", {}), lambda s=store: s.load("t")):
                with pytest.raises(BackendError, match=r"WE8MSWIN1252.*AL32UTF8"):
                    await call()
            async with AsyncSession(engine) as session:
                with pytest.raises(BackendError, match=r"WE8MSWIN1252.*AL32UTF8"):
                    await store.bind(session).load("t")


@pytest.mark.parametrize(("name", "value"), OTHER)
async def test_an_engine_whose_sessions_do_not_compare_bytes(engine: AsyncEngine, name: str, value: str) -> None:
    begin_with(engine, f"ALTER SESSION SET {name} = {value}")
    async with OracleBackend(engine=engine) as store:
        for call in (store.setup, lambda: store.save("t", {}), lambda: store.load("t")):
            with pytest.raises(BackendError, match=f"{name} = {value}.*{BINARY}"):
                await call()


@pytest.mark.parametrize(("name", "value"), OTHER)
async def test_a_session_that_is_bound_and_does_not_compare_bytes(
    empty_url: str, engine: AsyncEngine, name: str, value: str
) -> None:
    """Also by a store whose own sessions do, and which has seen that."""
    begin_with(engine, f"ALTER SESSION SET {name} = {value}")
    async with StandInBackend(empty_url) as store:
        await store.save("t", {"n": 1})
        async with AsyncSession(engine) as session:
            bound = store.bind(session)
            for call in (lambda: bound.load("t"), lambda: bound.save("t", {"n": 2})):
                with pytest.raises(BackendError, match=f"{name} = {value}.*{BINARY}"):
                    await call()
            await session.commit()
        assert await store.load("t") == {"n": 1}


@pytest.mark.parametrize(("name", "value"), OTHER)
async def test_a_database_whose_sessions_would_not_compare_bytes_is_used_by_those_that_do(
    empty_url: str, default: Callable[[str, str], None], engine: AsyncEngine, name: str, value: str
) -> None:
    default(name, value)
    begin_with(engine, BINARY)
    async with StandInBackend(empty_url) as store, OracleBackend(engine=engine) as over:
        await store.save("t", {"n": 1})
        assert await over.load("t") == {"n": 1}
        async with AsyncSession(engine) as session:
            await store.bind(session).save("t", {"n": 2})
            await session.commit()
        assert await over.load("t") == {"n": 2}


async def test_a_connection_that_is_bound_to_is_asked_once(empty_url: str, engine: AsyncEngine) -> None:
    async with StandInBackend(empty_url) as store:
        await store.save("t", {"n": 1})
    seen: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *args: seen.append(args[2]))

    async def asked() -> int:
        async with AsyncSession(engine) as session:
            assert await store.bind(session).load("t") == {"n": 1}
        return sum("nls_session_parameters" in statement for statement in seen)

    assert [await asked() for _ in range(3)] == [1, 1, 1]
    await engine.dispose()
    assert [await asked() for _ in range(2)] == [2, 2]
