"""Stores that are bound to a host's transactions, or use its engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import servers
from backends import SQLitePlace
from embedding.hosts import TARGETS, Begin, Host, host_on, opener
from search.conftest import indexed, said, words
from session_places import empty_sqlite_file
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import create_async_engine

from locus_store import (
    PostgreSQLBackend,
    SearchNotEnabledError,
    SQLiteBackend,
    StoreBusyError,
    TransactionConflictError,
)


@pytest.fixture(params=["sqlite", "postgresql"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    made = host_on(request.param, request, tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=TARGETS)
def begin(request: pytest.FixtureRequest, host: Host) -> Begin:
    return opener(host, request.param)


@pytest.fixture
def begin_session(host: Host) -> Begin:
    return opener(host, "AsyncSession")


async def found(transaction, query="needle"):
    return sorted([hit["thread_id"] for hit in await transaction.call("search", query, limit=None)])


async def found_by(store, query="needle"):
    return sorted([hit["thread_id"] for hit in await store.search(query, limit=None)])


async def test_enabled_and_disabled_in_a_transaction(host: Host, begin: Begin):
    store = host.own()
    await store.save("t", said("needle"))
    async with begin(store) as transaction:
        with pytest.raises(SearchNotEnabledError):
            await transaction.call("search", "needle")
        await transaction.rollback()
        await transaction.call("enable_search")
        assert await found(transaction) == ["t"]
        await transaction.rollback()
    with pytest.raises(SearchNotEnabledError):
        await store.search("needle")
    async with begin(store) as transaction:
        await transaction.call("enable_search")
        await transaction.commit()
        assert await found(transaction) == ["t"]
        await transaction.call("disable_search")
        await transaction.rollback()
    assert await found_by(store) == ["t"]
    async with begin(store) as transaction:
        await transaction.call("disable_search")
        await transaction.commit()
    with pytest.raises(SearchNotEnabledError):
        await store.search("needle")


async def test_a_transaction_finds_its_own_saves_and_others_do_so_after_it(host: Host, begin: Begin):
    store = host.own()
    await store.enable_search()
    await store.save("t", said("needle"))
    await found_by(store)
    async with begin(store) as transaction:
        await transaction.call("save", "u", said("needle"))
        await transaction.call("save", "t", said("other needle"))
        assert await found(transaction) == ["t", "t", "u"]
        assert await found_by(store) == ["t"]
        await transaction.rollback()
        assert await found(transaction) == ["t"]
        await transaction.call("save", "u", said("needle"))
        await transaction.call("delete", "t")
        assert await found(transaction) == ["u"]
        await transaction.commit()
    assert await found_by(store) == ["u"]
    assert indexed(host.place)[0] == 0
    assert words(host.place).count("needle") == 1


async def test_what_was_rolled_back_is_never_found(host: Host, begin: Begin):
    store = host.own()
    await store.enable_search()
    for n in range(3):
        async with begin(store) as transaction:
            await transaction.call("save", "t", said("undone needle"), f"c{n}")
            await transaction.rollback()
            await transaction.call("save", "t", said("kept needle"), f"c{n}")
            await transaction.commit()
        assert await found_by(store, "undone") == []
        assert await found_by(store, "kept") == ["t"]
    assert "undone" not in words(host.place)


async def test_a_sweep_in_a_transaction_leaves_the_queue(host: Host, begin_session: Begin):
    store = host.own()
    await store.enable_search()
    await store.save("t", said("needle"))
    async with begin_session(store) as transaction:
        await transaction.call("vacuum")
        await transaction.commit()
    assert indexed(host.place)[0] == 1
    assert await found_by(store) == ["t"]


async def test_over_a_hosts_engine(host: Host):
    make = SQLiteBackend if isinstance(host.place, SQLitePlace) else PostgreSQLBackend
    async with make(engine=host.engine()) as store, make(engine=host.engine()) as other:
        await store.save("t", said("needle"))
        with pytest.raises(SearchNotEnabledError):
            await store.search("needle")
        await store.enable_search()
        assert indexed(host.place)[0] == 0
        await other.save("u", said("needle"))
        assert await found_by(store) == ["t", "u"]
        await other.delete("t")
        assert await found_by(store) == await found_by(host.own()) == ["u"]
        await other.disable_search()
        with pytest.raises(SearchNotEnabledError):
            await store.search("needle")


async def test_in_an_attached_database_of_sqlite(tmp_path: Path):
    servers.note_ran("sqlite")
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{tmp_path / 'host.db'}",
        execution_options={"schema_translate_map": {None: "the agents"}},
    )
    (tmp_path / "agents.db").write_bytes(empty_sqlite_file(tmp_path))
    attach = f"ATTACH '{tmp_path / 'agents.db'}' AS \"the agents\""
    event.listen(engine.sync_engine, "connect", lambda raw, _: raw.execute(attach))
    async with SQLiteBackend(engine=engine) as store:
        await store.save("t", said("needle"))
        await store.enable_search()
        await store.save("u", said("needle"))
        assert await found_by(store) == ["t", "u"]
        await store.delete("t")
        await store.save("u", said("hay"), "c")
        assert await found_by(store) == ["u"]
        await store.disable_search()
    await engine.dispose()
    async with SQLiteBackend(path=tmp_path / "agents.db") as inside:
        await inside.enable_search()
        assert await found_by(inside) == ["u"]


# --- PostgreSQL's isolation and locks ---------------------------------------------------------------------------------


on_postgresql = pytest.mark.parametrize("host", ["postgresql"], indirect=True)


@on_postgresql
@pytest.mark.parametrize("what", ["thread", "checkpoint"])
async def test_an_old_snapshot_that_does_not_show_the_index(host: Host, what: str):
    store = host.own()
    await store.save("t", said("needle"), "a")
    await store.save("t", said("hay"), "b")
    begin = opener(host, "AsyncConnection")
    async with begin(store, isolation_level="REPEATABLE READ") as transaction:
        assert await transaction.call("exists", "t")
        await store.enable_search()
        assert await found_by(store) == ["t"]
        await transaction.call("delete", "t", *(["a"] if what == "checkpoint" else []))
        await transaction.commit()
    assert await found_by(store) == []
    assert indexed(host.place)[0] == 0
    assert "needle" not in words(host.place)


@on_postgresql
async def test_an_old_snapshot_that_shows_what_waited_is_a_conflict(host: Host):
    store = host.own()
    await store.enable_search()
    await store.save("t", said("needle"))
    begin = opener(host, "AsyncConnection")
    async with begin(store, isolation_level="REPEATABLE READ") as transaction:
        assert await transaction.call("exists", "t")
        assert await found_by(store) == ["t"]
        with pytest.raises(TransactionConflictError):
            await transaction.call("delete", "t")
        await transaction.rollback()
        await transaction.call("delete", "t")
        await transaction.commit()
    assert await found_by(store) == []
    assert words(host.place) == ""


@on_postgresql
async def test_a_search_does_not_wait_for_a_transaction_that_has_the_thread(host: Host, begin_session: Begin):
    store = host.own()
    await store.enable_search()
    await store.save("t", said("needle"))
    await store.save("u", said("needle"))
    async with begin_session(store) as transaction:
        await transaction.call("save", "t", said("other needle"))
        assert await asyncio.wait_for(found_by(store), 8) == ["t", "u"]
        assert indexed(host.place)[:2] == (1, 1)
        await transaction.commit()
    assert await found_by(store) == ["t", "t", "u"]
    assert indexed(host.place)[0] == 0


@on_postgresql
async def test_enabling_gives_up_waiting_for_a_transaction_that_writes(host: Host, begin_session: Begin):
    store = host.own()
    impatient = host.own(lock_timeout=0.2)
    async with begin_session(store) as transaction:
        await transaction.call("save", "t", said("needle"))
        with pytest.raises(StoreBusyError):
            await impatient.enable_search()
        await transaction.commit()
    await impatient.enable_search()
    assert await found_by(store) == ["t"]


@on_postgresql
async def test_where_nothing_may_be_written_the_queue_is_read_as_it_is(host: Host):
    store = host.own()
    await store.enable_search()
    await store.save("t", said("needle"))
    await found_by(store)
    await store.save("u", said("needle"))
    options = {"server_settings": {"default_transaction_read_only": "on"}}
    async with PostgreSQLBackend(dsn=host.place.url, connect_args=options) as reader:
        assert await found_by(reader) == ["t", "u"]
    assert indexed(host.place)[0] == 1


async def test_a_read_only_file(tmp_path: Path):
    servers.note_ran("sqlite")
    place = SQLitePlace(folder=tmp_path)
    async with place.open() as store:
        await store.enable_search()
        await store.save("t", said("needle"))
    engine = create_async_engine(f"sqlite+aiosqlite:///file:{place.path}?mode=ro&uri=true")
    async with engine.connect() as connection:
        backend = SQLiteBackend(engine=engine, create_schema=False)
        bound = backend.bind(connection)
        assert [hit["thread_id"] for hit in await bound.search("needle")] == ["t"]
        assert await connection.scalar(text("SELECT count(*) FROM locus_store_search_queue")) == 1
        assert await found_by(backend) == ["t"]
        await backend.close()
    await engine.dispose()
    assert indexed(place)[0] == 1
