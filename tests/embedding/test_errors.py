"""What can go wrong in a caller's transaction: each a clear error, and none a hang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from embedding.hosts import Begin, Host, Order
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, MetaData, Table, create_engine, event, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from locus_store import SQLiteBackend
from locus_store.core.backend import Backend
from locus_store.core.errors import (
    BackendError,
    BackendUnavailableError,
    CorruptCheckpointError,
    SchemaIncompleteError,
    SchemaNotReadyError,
    StoreBusyError,
    TransactionConflictError,
)
from locus_store.core.frames import ThreadName
from locus_store.migrations import upgrade
from locus_store.sql.models import Thread

QUICK = {"sqlite": {"busy_timeout": 0.3}, "postgresql": {"lock_timeout": 0.3}, "mariadb": {"lock_timeout": 1}}


def kind(host: Host) -> str:
    return host.place.name


def with_real_transactions(engine: AsyncEngine) -> AsyncEngine:
    """SQLite as its documentation recommends it: BEGIN is sent at the beginning, not at the first write."""

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


# ------------------------------------------------------------------------------------------------------- locks


async def test_an_own_save_of_a_thread_that_the_same_tasks_transaction_holds(host: Host, begin: Begin):
    """No server sees that it will never be free. It ends, and the error names the likely cause."""
    store = host.own(**QUICK[kind(host)])
    await store.save("t", {"n": 1})
    async with begin(store) as transaction:
        await transaction.call("save", "t", {"n": 2})
        with pytest.raises(StoreBusyError, match=r"open transaction.*backend\.bind"):
            await store.save("t", {"n": 3})
        with pytest.raises(StoreBusyError, match="open transaction"):
            await store.delete("t")
        assert await store.load("t") == {"n": 1}
        await transaction.commit()
    assert await store.save("t", {"n": 4}, "c", expected_version=2) == "c"


async def test_a_bound_save_that_waits_longer_than_the_host_allows(host: Host):
    """How long a statement waits there is for the host to say."""
    store = host.own()
    await store.save("t", {"n": 1})
    patience = {
        "sqlite": [],
        "postgresql": ["SET lock_timeout = '200ms'"],
        "mariadb": ["SET innodb_lock_wait_timeout = 1"],
    }[kind(host)]
    options = {"connect_args": {"timeout": 0.2}} if kind(host) == "sqlite" else {}
    holding, waiting = host.engine(), host.engine(**options)
    async with AsyncSession(holding) as one, AsyncSession(waiting) as two:
        await store.bind(one).save("t", {"n": 2})
        for statement in patience:
            await two.execute(text(statement))
        with pytest.raises(StoreBusyError, match="roll your transaction back"):
            await store.bind(two).save("t", {"n": 3})
        await two.rollback()
        await one.commit()
        await store.bind(two).save("t", {"n": 3})
        await two.commit()
    assert [info.version for info in await store.history("t")] == [3, 2, 1]


async def test_two_threads_in_opposite_order(host: Host):
    """One of the two is undone and says that the whole of it must run again; it does, and then both are there."""
    store = host.own()
    for name in "tu":
        await store.save(name, {"n": 0})
    engine = host.engine(connect_args={"timeout": 0.5}) if kind(host) == "sqlite" else host.engine()
    first_is_saved = asyncio.Barrier(2)
    conflicts: list[BaseException] = []

    async def save_both(names: str) -> None:
        first = True
        while True:
            async with AsyncSession(engine) as session:
                bound = store.bind(session)
                try:
                    for name in names:
                        await bound.save(name, {"by": names})
                        if first and name == names[0] and kind(host) != "sqlite":
                            await first_is_saved.wait()
                    await session.commit()
                except (TransactionConflictError, StoreBusyError) as error:
                    conflicts.append(error)
                    first = False
                    await session.rollback()
                else:
                    return

    await asyncio.wait_for(asyncio.gather(save_both("tu"), save_both("ut")), 60)
    if kind(host) != "sqlite":  # where there is one writer at a time, the second one waited
        assert {type(c) for c in conflicts} == {TransactionConflictError}
        assert all(["run the whole" in str(c) for c in conflicts])
    for name in "tu":
        assert len(await store.list_checkpoints(name)) == 3


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_save_on_what_another_has_changed_since(host: Host, level: str):
    """The transaction has seen a state that is gone: it must run again, and the error says so."""
    store, elsewhere = host.own(), host.own(**QUICK[kind(host)])
    await store.save("t", {"n": 1})
    engine = with_real_transactions(host.engine()) if kind(host) == "sqlite" else host.engine(isolation_level=level)
    async with AsyncSession(engine) as session:
        bound = store.bind(session)
        assert await bound.load("t") == {"n": 1}
        if (kind(host), level) == ("mariadb", "SERIALIZABLE"):
            # There a reader shares the row, so it is the other one that must wait.
            with pytest.raises(StoreBusyError):
                await elsewhere.save("t", {"n": 2})
            await bound.save("t", {"n": 3})
            await session.commit()
            assert await store.load("t") == {"n": 3}
            return
        await elsewhere.save("t", {"n": 2})
        assert await bound.load("t") == {"n": 1}
        with pytest.raises(TransactionConflictError, match="run the whole"):
            await bound.save("t", {"n": 3})
        await session.rollback()
        assert await bound.load("t") == {"n": 2}
        await bound.save("t", {"n": 3})
        await session.commit()
    assert await store.load("t") == {"n": 3}
    assert len(await store.list_checkpoints("t")) == 3


async def test_the_first_save_of_a_thread_by_two_at_once(host: Host):
    store = host.own()
    engine = host.engine()

    async def save(i: int) -> None:
        while True:
            async with AsyncSession(engine) as session:
                try:
                    await store.bind(session).save("t", {"i": i}, str(i))
                    await session.commit()
                except TransactionConflictError:
                    continue
                return

    await asyncio.wait_for(asyncio.gather(*[save(i) for i in range(5)]), 60)
    assert sorted(await store.list_checkpoints("t")) == list("01234")
    assert [info.version for info in await store.history("t")] == [5, 4, 3, 2, 1]


async def test_a_hosts_row_that_points_at_a_thread_does_not_wait_for_one_who_saves(host: Host):
    if kind(host) != "postgresql":
        pytest.skip("only PostgreSQL has a lock of rows that lets foreign keys pass")
    tables = MetaData()
    column = Column("thread", BigInteger, ForeignKey(Thread.__table__.c.id))
    notes = Table("host_notes", tables, Column("id", Integer, primary_key=True), column)
    store, engine = host.own(), host.engine()
    await store.save("t", {"n": 1})
    async with engine.begin() as connection:
        await connection.run_sync(tables.create_all)
        thread = (await connection.execute(text("SELECT id FROM locus_store_threads"))).scalar_one()
    try:
        async with AsyncSession(engine) as saver, AsyncSession(engine) as other:
            await store.bind(saver).save("t", {"n": 2})
            await other.execute(text("SET lock_timeout = '2s'"))
            await other.execute(insert(notes).values(thread=thread))
            await other.commit()
            await saver.commit()
        assert await store.load("t") == {"n": 2}
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(tables.drop_all)


# ------------------------------------------------------------------------------------- what was handed in is no use


async def test_a_connection_that_is_closed(host: Host, store: Backend):
    async with host.engine().connect() as connection:
        bound = store.bind(connection)
    with pytest.raises(BackendError, match=r"AsyncConnection .* cannot be used.*closed"):
        await bound.load("t")
    with host.sync_engine().connect() as plain:
        pass
    with pytest.raises(BackendError, match=r"the Connection .* cannot be used.*closed"):
        store.bind(plain).save("t", {})


async def test_a_session_that_must_be_rolled_back(host: Host, store: Backend):
    async with AsyncSession(host.engine()) as session:
        bound = store.bind(session)
        session.add(Order(id=1, item="one"))
        await session.flush()
        session.expunge_all()
        session.add(Order(id=1, item="a secret"))
        with pytest.raises(IntegrityError):
            await session.flush()
        with pytest.raises(BackendError, match=r"cannot be used.*rollback\(\)") as caught:
            await bound.save("t", {})
        assert "secret" not in str(caught.value)
        assert "secret" in str(caught.value.__cause__)
        await session.rollback()
        await bound.save("t", {"n": 1})
        await session.commit()
    assert await store.load("t") == {"n": 1}


async def test_a_transaction_that_the_database_refuses(host: Host, store: Backend):
    if kind(host) != "postgresql":
        pytest.skip("elsewhere a statement that failed fails alone")
    async with host.engine().connect() as connection:
        bound = store.bind(connection)
        await bound.save("t", {"n": 1})
        with pytest.raises(DBAPIError):
            await connection.execute(text("SELECT 1 / 0"))
        with pytest.raises(BackendError, match=r"aborted.*Roll your transaction back"):
            await bound.load("t")


async def test_a_connection_in_autocommit(host: Host, store: Backend, begin: Begin):
    """There would be nothing to join: half a save could stay."""
    async with begin(store, isolation_level="AUTOCOMMIT") as transaction:
        with pytest.raises(ValueError, match="autocommit"):
            await transaction.call("save", "t", {"n": 1})
    async with AsyncSession(host.engine(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(ValueError, match="autocommit"):
            await store.bind(session).save("t", {"n": 1})
    assert host.place.count() == 0


async def test_another_kind_of_database(host: Host, store: Backend, tmp_path):
    if kind(host) == "sqlite":
        pytest.skip("it is the other kind")
    engine = create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(ValueError, match=rf"leads to sqlite, .*{host.sync_url[:5]}"):
        store.bind(session).load("t")
    engine.dispose()
    async with AsyncSession(host.engine()) as asynchronous:
        bound = SQLiteBackend(tmp_path / "never.db").bind(asynchronous)
        with pytest.raises(ValueError, match="store for sqlite"):
            await bound.load("t")
    assert list(tmp_path.iterdir()) == []


async def test_a_session_without_a_bind_for_our_tables(host: Host, store: Backend):
    with (
        Session(binds={Order: host.sync_engine()}) as session,
        pytest.raises(BackendError, match=r"cannot be used.*bind"),
    ):
        store.bind(session).load("t")


async def test_two_tasks_on_one_session(host: Host, store: Backend):
    async with AsyncSession(host.engine()) as session:
        bound = store.bind(session)
        await bound.save("t", {"n": 1})
        found = await asyncio.gather(bound.load("t"), bound.load("t"), return_exceptions=True)
        assert found[0] == {"n": 1}
        assert isinstance(found[1], BackendError)
        assert "a session of its own" in str(found[1])
        await session.commit()


async def test_the_connection_is_lost(host: Host, store: Backend):
    if kind(host) == "sqlite":
        pytest.skip("there is no server")
    engine = host.engine()
    async with AsyncSession(engine) as session:
        bound = store.bind(session)
        await bound.save("t", {"n": 1})
        ident = "pg_backend_pid" if kind(host) == "postgresql" else "connection_id"
        number = (await session.execute(text(f"SELECT {ident}()"))).scalar_one()
        host.place.execute(f"SELECT pg_terminate_backend({number}, 5000)" if ident[0] == "p" else f"KILL {number}")
        with pytest.raises(BackendUnavailableError):
            await bound.load("t")
        await session.rollback()
        assert await bound.load("t") is None
        await bound.save("t", {"n": 2})
        await session.commit()
    assert await store.load("t") == {"n": 2}


# ---------------------------------------------------------------------------------------------------------- tables


async def test_tables_that_are_not_there(tmp_path):
    """Nothing is made in the caller's transaction; the error says what to run, and the transaction is as it was."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'host.db'}")
    store = SQLiteBackend(tmp_path / "host.db", create_schema=False)
    async with AsyncSession(engine) as session:
        await session.execute(text("CREATE TABLE mine (n INTEGER)"))
        bound = store.bind(session)
        for call in (bound.load("t"), bound.save("t", {}), bound.setup()):
            with pytest.raises(SchemaNotReadyError, match=r"locus_store\.migrations upgrade head"):
                await call
        await session.commit()
        found = (await session.execute(text("SELECT name FROM sqlite_master"))).scalars().all()
        assert found == ["mine"]
        await session.commit()
        await (await session.connection()).run_sync(upgrade)
        await bound.setup()
        await bound.save("t", {"n": 1})
        await session.commit()
        # And when somebody takes them away under a store that has seen them.
        await session.execute(text("DROP TABLE locus_store_threads"))
        with pytest.raises(SchemaNotReadyError, match="upgrade head"):
            await bound.load("t")
        await session.rollback()  # too late: this client commits before DDL
        with pytest.raises(SchemaIncompleteError, match="half there"):
            await bound.load("t")
    await engine.dispose()
    await store.close()


# -------------------------------------------------------------------------------------------------- nothing by halves


class Naming:
    """A codec that binds what it encodes to the thread's name."""

    name = "naming"
    bound = True

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return repr(thread).encode() + b"|" + data

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        name, _, rest = data.partition(b"|")
        if name != repr(thread).encode():
            raise ValueError("it is another thread's")
        return rest


async def test_a_copy_of_what_cannot_be_bound_to_another_name(host: Host):
    store = host.own(codec=Naming())
    await store.save("t", {"n": 1}, "one")
    await store.save("t", {"n": 2}, "two")
    await store.save("u", {"n": "as it was"}, "c")
    (old, *_) = host.place.payloads("two")
    host.place.damage("two", lambda data: data[:-1] + b"?")
    assert host.place.payloads("two")[0] != old
    async with AsyncSession(host.engine()) as session:
        bound = store.bind(session)
        with pytest.raises(CorruptCheckpointError, match="cannot be copied"):
            await bound.copy_thread("t", "u", overwrite=True)
        assert await bound.copy_thread("t", "v", upto="one") is True
        await session.commit()
    assert await store.load("u") == {"n": "as it was"}
    assert await store.load("v") == {"n": 1}


async def test_a_copy_of_what_is_damaged_leaves_the_destination_as_it_was(host: Host, store: Backend, begin: Begin):
    """Where a transaction can be used after an error, a host may commit it."""
    messages = [{"content": f"{i} " * 300} for i in range(4)]
    for i in range(1, 4):
        await store.save("t", {"messages": messages[:i]}, str(i))
    await store.save("u", {"n": "as it was"}, "c")
    table = "locus_store_checkpoints"
    value = r"'\xff00'" if kind(host) == "postgresql" else "x'ff00'"
    host.place.execute(f"UPDATE {table} SET ranges = {value} WHERE checkpoint_id = '3'")
    async with begin(store) as transaction:
        with pytest.raises(CorruptCheckpointError):
            await transaction.call("copy_thread", "t", "u", upto="2", overwrite=True)
        await transaction.commit()
    assert await store.load("u") == {"n": "as it was"}
    assert await store.list_checkpoints("u") == ["c"]
