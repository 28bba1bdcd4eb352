"""A host on the stand-in for Oracle: transactions that a store joins, an engine that is handed in, foreign keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import oracledb
import pytest
from oracle.oracle_standin import JOURNAL, creator
from oracle.oracle_standin.backend import StandInBackend
from sqlalchemy import event, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from locus_store import OracleBackend, ReferencedError, StoreBusyError

DOCUMENTS = {
    "small": {"messages": [{"content": f"{i} " * 50} for i in range(3)], "text": "", "n": 1},
    "large": {"messages": [{"content": "é" * 40_000}], "text": "x" * 40_000, "n": 1},
}


class Base(DeclarativeBase):
    """The host's own tables."""


class Order(Base):
    __tablename__ = "host_orders"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    price: Mapped[int]


@pytest.fixture
async def engine(empty_url: str) -> AsyncIterator[AsyncEngine]:
    """The host's engine, on a database with the host's tables."""
    made = create_async_engine("oracle+oracledb_async://", connect_args={"async_creator_fn": creator(empty_url)})
    async with made.connect() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield made
    await made.dispose()


@pytest.fixture
async def store(empty_url: str, engine: AsyncEngine) -> AsyncIterator[OracleBackend]:
    """A store with connections of its own, that waits a second for a lock."""
    async with StandInBackend(empty_url, lock_timeout=1) as opened:
        await opened.setup()
        yield opened
    assert JOURNAL.wrong == []


async def orders(engine: AsyncEngine) -> list[int]:
    async with AsyncSession(engine) as session:
        return list(await session.scalars(select(Order.id)))


@pytest.mark.parametrize("size", DOCUMENTS)
async def test_a_row_of_the_hosts_and_the_checkpoint_are_committed_together(
    engine: AsyncEngine, store: OracleBackend, size: str
) -> None:
    async with AsyncSession(engine) as session:
        session.add(Order(id=1, price=90))
        await session.flush()
        bound = store.bind(session)
        await bound.save("t", DOCUMENTS[size], "c", {"order": 1})
        assert await bound.load("t") == DOCUMENTS[size]
        assert (await store.load("t"), await orders(engine)) == (None, [])
        await session.commit()
    assert (await store.load("t", "c"), await orders(engine)) == (DOCUMENTS[size], [1])


@pytest.mark.parametrize("size", DOCUMENTS)
async def test_and_vanish_together(engine: AsyncEngine, store: OracleBackend, size: str) -> None:
    await store.save("t", {"n": 0}, "c0")
    async with AsyncSession(engine) as session:
        session.add(Order(id=1, price=90))
        await session.flush()
        bound = store.bind(session)
        await bound.save("t", DOCUMENTS[size], "c1")
        await bound.save("new", DOCUMENTS[size])
        await bound.put_records("t", "s", {"k": 1})
        assert await bound.list_checkpoints("t") == ["c1", "c0"]
        await session.rollback()
    assert await orders(engine) == []
    assert (await store.list_threads(), await store.list_checkpoints("t")) == (["t"], ["c0"])
    assert (await store.load("t"), await store.records("t", "s")) == ({"n": 0}, {})
    assert await store.save("t", {"n": 1}, "c1", expected_version=1) == "c1"


@pytest.mark.parametrize("there", [True, False])
async def test_an_own_save_of_a_thread_that_an_open_transaction_holds_ends(
    engine: AsyncEngine, store: OracleBackend, there: bool
) -> None:
    """A row that is there is waited for by FOR UPDATE WAIT, one that somebody has inserted by the call's own limit."""
    if there:
        await store.save("t", {"n": 0})
    async with AsyncSession(engine) as session:
        await store.bind(session).save("t", {"n": 1})
        with pytest.raises(StoreBusyError, match=r"open transaction.*backend\.bind"):
            await store.save("t", {"n": 2})
        assert await store.load("t") == ({"n": 0} if there else None)
        await session.commit()
    assert await store.load("t") == {"n": 1}
    await store.save("t", {"n": 3}, expected_version=1 + there)
    assert await store.load("t") == {"n": 3}


async def test_an_engine_that_is_handed_in_stays_open_and_as_it_was(engine: AsyncEngine) -> None:
    closed: list[Any] = []
    event.listen(engine.sync_engine, "engine_disposed", closed.append)
    pool, options = engine.sync_engine.pool, dict(engine.get_execution_options())
    async with OracleBackend(engine=engine) as store:
        await store.setup()
        for size, document in DOCUMENTS.items():
            await store.save(size, document)
            assert await store.load(size) == document
    assert closed == []
    assert engine.sync_engine.pool is pool
    assert dict(engine.get_execution_options()) == options
    async with AsyncSession(engine) as session:
        session.add(Order(id=1, price=90))
        await store.bind(session).save("small", {"n": 2})
        raw: Any = (await (await session.connection()).get_raw_connection()).driver_connection
        assert (raw.autocommit, raw.call_timeout) == (False, 0)
        await session.commit()
    assert (await store.load("small"), await orders(engine)) == ({"n": 2}, [1])
    # The store was left, and the connections that it used are still the host's.
    await store.close()
    assert closed == []
    assert await orders(engine) == [1]


@pytest.fixture
async def notes(engine: AsyncEngine, store: OracleBackend) -> None:
    """A table of the host's, with a row for the thread "t" that is there."""
    await store.save("t", {"n": 1}, "c1")
    await store.save("u", {"n": 1}, "c1")
    async with engine.connect() as connection:
        await connection.execute(
            text(
                "CREATE TABLE host_notes (id NUMBER(19) PRIMARY KEY, thread NUMBER(19) NOT NULL,"
                " CONSTRAINT host_notes_thread FOREIGN KEY (thread) REFERENCES locus_store_threads (id))"
            )
        )
        await connection.execute(
            text("INSERT INTO host_notes (id, thread) SELECT 1, id FROM locus_store_threads WHERE thread_id = 't'")
        )
        await connection.commit()


@pytest.mark.usefixtures("notes")
async def test_a_thread_that_a_row_of_the_hosts_points_at_is_not_removed(
    engine: AsyncEngine, store: OracleBackend
) -> None:
    for call in (lambda: store.delete("t"), lambda: store.copy_thread("u", "t", overwrite=True)):
        with pytest.raises(ReferencedError, match=r"thread 't'.*ORA-02292") as caught:
            await call()
        assert caught.value.thread_id == "t"
        assert isinstance(caught.value.__cause__, oracledb.IntegrityError)
        assert await store.load("t", "c1") == {"n": 1}
    await store.save("t", {"n": 2})
    assert await store.delete("u") is True
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM host_notes"))
    assert await store.delete("t") is True
    assert await store.list_threads() == []


@pytest.mark.usefixtures("notes")
async def test_nor_in_a_transaction_of_the_hosts_which_can_remove_its_row_first(
    engine: AsyncEngine, store: OracleBackend
) -> None:
    async with AsyncSession(engine) as session:
        bound = store.bind(session)
        with pytest.raises(ReferencedError, match="thread 't'"):
            await bound.delete("t")
        await session.rollback()
        await session.execute(text("DELETE FROM host_notes"))
        assert await bound.delete("t") is True
        await session.commit()
    assert await store.list_threads() == ["u"]
