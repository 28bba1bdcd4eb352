"""An engine of the host's: used, and otherwise left as it is; and options for an engine that the store makes."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any
from uuid import uuid4

import pytest
from embedding.hosts import Host
from sqlalchemy import StaticPool, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.schema import CreateSchema, DropSchema

from locus_store import (
    MySQLBackend,
    MySQLCheckpointer,
    PostgreSQLBackend,
    PostgreSQLCheckpointer,
    SQLiteBackend,
    SQLiteCheckpointer,
    open_backend,
)
from locus_store.core.backend import Backend
from locus_store.core.errors import StoreBusyError, UnsupportedOperationError
from locus_store.core.state import AgentState

BACKENDS: dict[str, Any] = {"sqlite": SQLiteBackend, "postgresql": PostgreSQLBackend, "mariadb": MySQLBackend}
CHECKPOINTERS: dict[str, Any] = {
    "sqlite": SQLiteCheckpointer,
    "postgresql": PostgreSQLCheckpointer,
    "mariadb": MySQLCheckpointer,
}
MESSAGES = [{"content": f"{i} " * 200} for i in range(30)]


def over(at: Host, engine: Any, /, **options: Any) -> Backend:
    made: Backend = BACKENDS[at.place.name](engine=engine, **options)
    return made


async def test_a_store_over_the_hosts_engine(host: Host):
    engine = host.engine()
    store = over(host, engine)
    await store.setup()
    for i in range(1, 31):
        await store.save("t", {"messages": MESSAGES[:i]}, str(i), {"k": i})
    await store.put_records("t", "s", {"r": 1})
    assert await store.copy_thread("t", "u", upto="20") is True
    assert await store.delete("t", ["5", "30"]) is True
    assert await store.vacuum(older_than_days=0, keep_last=10) == 28
    other = host.own()
    for reader in (store, other):
        assert await reader.load("t") == {"messages": MESSAGES[:29]}
        assert await reader.load("u", "11") == {"messages": MESSAGES[:11]}
        assert len(await reader.list_checkpoints("u", None)) == 10
        assert [r["thread_id"] for r in await reader.query_by_metadata("k", 20)] == ["u"]
        assert await reader.records("t", "s") == {"r": 1}
        assert await reader.list_threads() == ["u", "t"]
    assert await store.delete("t") is True
    assert await other.load("t") is None
    await store.close()


async def test_several_tasks_and_several_stores(host: Host):
    stores = [over(host, host.engine()), host.own()]
    await asyncio.gather(*[stores[i % 2].save("t", {"i": i}, str(i)) for i in range(30)])
    assert sorted(map(int, await stores[0].list_checkpoints("t", None))) == list(range(30))
    assert [info.version for info in await stores[0].history("t", None)] == list(range(30, 0, -1))


async def test_the_engine_stays_open_and_as_it_was(host: Host):
    engine = host.engine()
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
    closed: list[Any] = []
    event.listen(engine.sync_engine, "engine_disposed", closed.append)
    pool = engine.sync_engine.pool
    hooks = listeners(engine)
    options = dict(engine.get_execution_options())
    async with over(host, engine) as store:
        await store.save("t", {"n": 1})
        assert await store.load("t") == {"n": 1}
    await store.close()
    assert closed == []
    assert engine.sync_engine.pool is pool
    assert listeners(engine) == hooks
    assert dict(engine.get_execution_options()) == options
    assert pool.checkedout() == 0
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
        assert "isolation_level" not in connection.sync_connection.get_execution_options()
    assert await store.load("t") == {"n": 1}


def listeners(engine: Any) -> dict[str, int]:
    found = {}
    for target in (engine.sync_engine, engine.sync_engine.pool, engine.sync_engine.dialect):
        names = [name for name in dir(target.dispatch) if not name.startswith("_")]
        found |= {f"{type(target).__name__}.{name}": len(list(getattr(target.dispatch, name))) for name in names}
    return found


async def test_an_engine_that_streams_results(host: Host):
    engine = host.engine(execution_options={"yield_per": 1})
    store = over(host, engine)
    for i in range(1, 4):
        await store.save("t", {"messages": MESSAGES[:i]}, str(i), {"k": i, "l": i})
    async with AsyncSession(engine) as session:
        bound = store.bind(session)
        await bound.save("u", {"messages": MESSAGES}, "1", {"k": 1, "l": 1})
        assert await bound.load("t") == {"messages": MESSAGES[:3]}
        await session.commit()
    assert await store.load("u") == {"messages": MESSAGES}


async def test_an_engine_with_one_connection_for_all(host: Host):
    """As SQLAlchemy makes it for a SQLite database in memory: without taking turns, two saves would be one."""
    engine = host.engine(poolclass=StaticPool)
    stores = [over(host, engine), over(host, engine)]
    await asyncio.gather(*[stores[i % 2].save(f"t{i % 3}", {"m": [i]}, str(i)) for i in range(30)])
    for i in range(3):
        assert sorted(map(int, await stores[0].list_checkpoints(f"t{i}", None))) == list(range(i, 30, 3))


async def test_an_engine_that_translates_the_schema(host: Host):
    """Every way to the database leads to the same tables, those that the engine means."""
    if host.place.name == "sqlite":
        pytest.skip("SQLite has no schemas")
    schema = f"host_{uuid4().hex[:12]}"
    plain = host.engine()
    async with plain.begin() as connection:
        await connection.execute(CreateSchema(schema))
    try:
        engine = host.engine(execution_options={"schema_translate_map": {None: schema}})
        store, named, elsewhere = over(host, engine), over(host, plain, schema=schema), host.own()
        await store.save("t", {"messages": MESSAGES[:1]})
        assert await store.copy_thread("t", "u") is True
        for reader in (store, named):
            assert await reader.load("t") == {"messages": MESSAGES[:1]}
            assert await reader.list_threads() == ["u", "t"]
        assert await elsewhere.list_threads() == []
    finally:
        async with plain.begin() as connection:
            await connection.execute(DropSchema(schema, cascade=host.place.name == "postgresql"))


async def test_no_pragma_is_sent_to_sqlite(host: Host):
    if host.place.name != "sqlite":
        pytest.skip("only SQLite has pragmas")
    engine = host.engine()
    statements: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda c, k, statement, *_: statements.append(statement))
    store = over(host, engine)
    await store.save("t", {"messages": MESSAGES}, metadata={"k": 1})
    await store.load("t")
    await store.history("t")
    assert not [s for s in statements if re.match(r"(?i)pragma.*=", s)]
    assert (await store.vacuum()) == 0
    with pytest.raises(UnsupportedOperationError, match="reclaim"):
        await store.vacuum(reclaim=True)
    assert store.capabilities.reclaim is False


async def test_another_writer_holds_the_database(host: Host):
    """The store waits for as long as it was told to, whatever the engine's own client waits."""
    if host.place.name != "sqlite":
        pytest.skip("how long others wait is a setting of their sessions")
    engine = host.engine(connect_args={"timeout": 0})
    store, patient = over(host, engine, busy_timeout=0.2), over(host, engine, busy_timeout=60)
    await store.save("t", {"n": 1})
    async with engine.connect() as connection:
        await connection.execute(text("UPDATE locus_store_threads SET version = version"))
        with pytest.raises(StoreBusyError, match="open transaction"):
            await store.save("t", {"n": 2})
        waiting = asyncio.ensure_future(patient.save("t", {"n": 3}))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await connection.commit()
    await waiting
    assert await store.load("t") == {"n": 3}


async def test_the_tables_are_made_where_that_is_allowed(tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'new.db'}")
    stores = [SQLiteBackend(engine=engine) for _ in range(3)]
    await asyncio.gather(*[store.save("t", {"i": i}) for i, store in enumerate(stores)])
    assert len(await stores[0].list_checkpoints("t")) == 3
    assert stores[0].path == str(tmp_path / "new.db")
    assert "new.db" in repr(stores[0])
    await engine.dispose()


async def test_the_second_face(host: Host):
    engine = host.engine()
    checkpointer = CHECKPOINTERS[host.place.name](engine=engine)
    await checkpointer.save(AgentState(agent_id="a"), "t")
    assert (await checkpointer.load("t")).agent_id == "a"
    await checkpointer.close()


# ------------------------------------------------------------------------------------------------- what is refused


async def test_a_synchronous_engine_is_to_be_bound(host: Host):
    with pytest.raises(TypeError, match=r"AsyncEngine, got an Engine: .*backend\.bind\(Session\(engine\)\)"):
        over(host, host.sync_engine())
    for wrong in ("sqlite://", object()):
        with pytest.raises(TypeError, match=f"AsyncEngine, got {type(wrong).__name__}"):
            over(host, wrong)


async def test_an_engine_of_another_database(host: Host):
    engine = host.engine()
    for name, cls in BACKENDS.items():
        if name != host.place.name:
            with pytest.raises(ValueError, match=rf"is needed, not {engine.dialect.name}\+{engine.dialect.driver}"):
                cls(engine=engine)


@pytest.mark.parametrize(
    "options",
    [{"dsn": "DSN"}, {"host": "db"}, {"port": 1}, {"user": "u"}, {"password": "secret"}, {"max_pool_size": 3},
     {"min_pool_size": 0}, {"connect_args": {"ssl": True}}, {"engine_options": {"echo": True}}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
async def test_what_the_engine_says_already_is_refused_beside_it(host: Host, options: dict[str, Any]):
    engine = host.engine()
    if host.place.name == "sqlite":
        options = {"path": "other.db"} if "dsn" in options else {"synchronous": "OFF"}
    elif options.get("dsn"):
        options = {"dsn": host.place.url}
    with pytest.raises(ValueError, match="beside an engine of yours") as caught:
        over(host, engine, **options)
    assert "secret" not in str(caught.value)
    if host.place.name != "sqlite":
        with pytest.raises(ValueError, match="beside an engine of yours"):
            open_backend(host.place.url, engine=engine)


# --------------------------------------------------------------------------------- options for an engine of the store's


async def test_options_pass_through_to_an_engine_that_the_store_makes(host: Host):
    if host.place.name != "postgresql":
        pytest.skip("SQLite's has none; MySQL's are tested with it")
    name = f"embedding {os.getpid()}"
    store = host.own(
        connect_args={"server_settings": {"application_name": name}},
        engine_options={"pool_timeout": 0.2, "pool_pre_ping": True},
        max_pool_size=1,
    )
    await store.save("t", {"n": 1})
    rows = host.place.execute(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'")
    assert rows[0][0] == 1
    (opened,) = store._driver._engines._opened.values()
    assert opened.engine.sync_engine.pool._pre_ping is True
    assert opened.engine.sync_engine.pool.size() == 1
    with pytest.raises(TypeError, match="no_such_option"):
        await host.own(engine_options={"no_such_option": 1}).load("t")
