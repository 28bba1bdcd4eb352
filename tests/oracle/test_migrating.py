"""Migrating an Oracle database, on the stand-in: the lock of a second session, and what a killed one leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from oracle.oracle_standin import creator
from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from locus_store import OracleBackend, SchemaNotReadyError, TransactionNotAllowedError
from locus_store.migrations import upgrade
from locus_store.sql.models import Schema, metadata
from locus_store.sql.schema import VERSION_TABLE, check

OURS = {*metadata.tables, VERSION_TABLE}


@pytest.fixture
async def engine(empty_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(
        "oracle+oracledb_async://", connect_args={"async_creator_fn": creator(empty_url)}, pool_size=1, max_overflow=0
    )
    yield made
    await made.dispose()


async def call(engine: AsyncEngine, work: Any) -> Any:
    async with engine.connect() as connection:
        return await connection.run_sync(work)


def names(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


async def test_an_empty_database_gets_all_tables_through_a_pool_of_one_connection(engine: AsyncEngine) -> None:
    await call(engine, upgrade)
    await call(engine, check)
    assert await call(engine, names) == OURS


async def test_in_a_transaction_of_the_callers_nothing_is_migrated(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("SELECT 1 FROM dual"))
        with pytest.raises(TransactionNotAllowedError, match="oracle"):
            await connection.run_sync(upgrade)
    assert await call(engine, names) == set()


async def test_several_that_begin_at_once_make_one_schema(empty_url: str) -> None:
    async def one() -> None:
        made = create_async_engine("oracle+oracledb_async://", connect_args={"async_creator_fn": creator(empty_url)})
        try:
            await call(made, upgrade)
            await call(made, check)
        finally:
            await made.dispose()

    await asyncio.gather(*[one() for _ in range(5)])


async def test_what_a_killed_migrator_left_half_done_is_finished(engine: AsyncEngine) -> None:
    await call(engine, lambda c: metadata.tables["locus_store_threads"].create(c))
    await call(engine, upgrade)
    await call(engine, check)
    assert await call(engine, lambda c: c.scalar(select(Schema.revision))) == "ls0001"


async def test_case_48_first_saves_of_several_stores_on_an_empty_database(empty_url: str) -> None:
    stores = [OracleBackend("standin", connect_args={"async_creator_fn": creator(empty_url)}) for _ in range(2)]
    saves = [store.save(f"t{i}", {"i": i}) for i in range(13) for store in stores]
    assert len(set(await asyncio.gather(*saves))) == 26
    assert len(await stores[0].list_threads()) == 13
    for store in stores:
        await store.close()


async def test_case_69_a_store_that_may_not_create_tables_says_what_to_run(empty_url: str) -> None:
    async with OracleBackend(
        "standin", create_schema=False, connect_args={"async_creator_fn": creator(empty_url)}
    ) as store:
        with pytest.raises(SchemaNotReadyError, match="upgrade head"):
            await store.save("t", {})
