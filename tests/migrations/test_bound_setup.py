"""`setup` of a store that is bound to something of the caller's."""

from __future__ import annotations

from typing import Any

import pytest
from migrations.conftest import OURS, Database
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from locus_store import SchemaNotReadyError, TransactionNotAllowedError, open_backend


async def test_case_67_in_the_callers_transaction(transactional: Database) -> None:
    transactional.execute("CREATE TABLE hosts (id INTEGER)")
    engine = transactional.async_engine()
    async with open_backend(transactional.url) as store:
        for commit in (False, True):
            async with engine.connect() as connection:
                await connection.execute(text("INSERT INTO hosts VALUES (1)"))
                bound = store.bind(connection)
                await bound.setup()
                await bound.setup()
                await bound.save("t", {"n": 1})
                assert await bound.load("t") == {"n": 1}
                await (connection.commit() if commit else connection.rollback())
            assert transactional.tables() == ({"hosts", *OURS} if commit else {"hosts"})
            assert transactional.execute("SELECT count(*) FROM hosts")[0][0] == int(commit)
        assert await store.load("t") == {"n": 1}
    await engine.dispose()


@pytest.mark.parametrize("first", [True, False])
async def test_in_a_session_it_is_undone_with_it(transactional: Database, first: bool) -> None:
    engine = transactional.async_engine()
    async with open_backend(transactional.url) as store, AsyncSession(engine) as session:
        if not first:
            await session.execute(text("SELECT 1"))
        bound = store.bind(session)
        await bound.setup()
        await bound.save("t", {"n": 1})
        await session.rollback()
        assert transactional.tables() == set()
        with pytest.raises(SchemaNotReadyError):
            await bound.load("t")
        await session.rollback()
        await bound.setup()
        await bound.save("t", {"n": 2})
        await session.commit()
        assert await store.load("t") == {"n": 2}
    await engine.dispose()


def test_by_plain_calls(transactional: Database) -> None:
    store = open_backend(transactional.url)

    def work(connection: Connection) -> None:
        session = Session(connection)
        bound = store.bind(session)
        bound.setup()
        bound.save("t", {"n": 1})
        assert OURS.issubset(inspect(connection).get_table_names())

    transactional(work)
    assert transactional.tables() == OURS


async def test_in_a_schema(postgresql: Database) -> None:
    postgresql.execute("CREATE SCHEMA agents")
    engine = postgresql.async_engine()
    async with open_backend(postgresql.url, schema="agents") as store, AsyncSession(engine) as session:
        await store.bind(session).setup()
        await session.commit()
        await store.save("t", {"n": 1})
    await engine.dispose()
    assert postgresql.tables() == set()
    assert postgresql.tables("agents") == OURS


async def test_where_ddl_would_end_it_nothing_is_committed(mariadb: Database) -> None:
    mariadb.execute("CREATE TABLE hosts (id INTEGER)")
    engine = mariadb.async_engine()
    async with open_backend(mariadb.url) as store, AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO hosts VALUES (1)"))
        with pytest.raises(TransactionNotAllowedError, match="DDL would commit"):
            await store.bind(session).setup()
        await session.rollback()
        assert mariadb.execute("SELECT * FROM hosts") == []
        assert mariadb.tables() == {"hosts"}
        await store.setup()
        await store.bind(session).setup()
        await session.rollback()
    await engine.dispose()


@pytest.mark.parametrize("how", ["missing", "ready"])
async def test_what_may_not_make_tables_only_looks(database: Database, how: str) -> None:
    engine = database.async_engine()
    if how == "ready":
        async with open_backend(database.url) as maker:
            await maker.setup()
    async with open_backend(database.url, create_schema=False) as store, AsyncSession(engine) as session:
        bound: Any = store.bind(session)
        if how == "ready":
            await bound.setup()
        else:
            with pytest.raises(SchemaNotReadyError):
                await bound.setup()
            await session.rollback()
            assert database.tables() == set()
    await engine.dispose()
