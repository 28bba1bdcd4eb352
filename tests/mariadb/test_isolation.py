"""A store in a host's transaction that is REPEATABLE READ, MySQL's default: what it has read may be old.

A plain SELECT there sees what was committed at the transaction's first one. A save that were planned on that could
rewrite blocks that have changed, or replace a row that has gone, without an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from locus_store import Backend, BackendError, MySQLBackend, TransactionConflictError

Call = Callable[[Backend], Awaitable[Any]]


def messages(*names: str) -> dict[str, Any]:
    return {"messages": [f"{name} " * 200 for name in names]}


@pytest.fixture
async def store(mariadb_url: str) -> AsyncIterator[Backend]:
    """A store with connections of its own, which is another process for the host's transaction."""
    async with MySQLBackend(dsn=mariadb_url) as made:
        await made.save("t", messages("a"), "c1", {"n": 1})
        await made.save("t", messages("a", "b"), "c2", {"n": 2})
        await made.save("t", messages("a", "b", "c"), "c3", {"n": 3})
        await made.put_records("t", "s", {"k1": 1, "k2": 2})
        yield made


@pytest.fixture
async def other(mariadb_url: str) -> AsyncIterator[Backend]:
    """The store that is bound; it has no part in what `store` remembers."""
    async with MySQLBackend(dsn=mariadb_url) as made:
        yield made


@pytest.fixture
async def engine(mariadb_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(mariadb_url.replace("mariadb:", "mariadb+asyncmy:"))
    yield made
    await made.dispose()


@pytest.fixture
async def host(engine: AsyncEngine, store: Backend) -> AsyncIterator[AsyncConnection]:
    """The host's transaction, which has read a row before anything else happens."""
    async with engine.connect() as connection:
        await connection.execute(text("SELECT count(*) FROM locus_store_threads"))
        assert (await connection.execute(text("SELECT @@SESSION.tx_isolation"))).scalar() == "REPEATABLE-READ"
        yield connection
        await connection.rollback()


WRITERS: dict[str, Call] = {
    "save": lambda bound: bound.save("t", messages("a", "b", "c", "x")),
    "save under an id": lambda bound: bound.save("t", messages("a", "b", "x"), "c2"),
    "save in place": lambda bound: bound.save("t", messages("a", "b", "x"), "c2", if_exists="in_place"),
    "delete": lambda bound: bound.delete("t"),
    "delete some": lambda bound: bound.delete("t", ["c1", "c2"]),
    "copy": lambda bound: bound.copy_thread("t", "copy"),
    "copy over it": lambda bound: bound.copy_thread("u", "t", overwrite=True),
    "vacuum": lambda bound: bound.vacuum(older_than_days=0),
    "put records": lambda bound: bound.put_records("t", "s", {"k1": "x"}),
    "delete records": lambda bound: bound.delete_records("t", "s"),
}

CHANGES: dict[str, Call] = {
    "saved": lambda store: store.save("t", messages("a", "b", "c", "d"), "c4"),
    "replaced": lambda store: store.save("t", messages("a", "z"), "c2", if_exists="in_place"),
    "deleted the head": lambda store: store.delete("t", "c3"),
    "deleted": lambda store: store.delete("t"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("writer", WRITERS)
async def test_a_thread_that_changed_since_is_refused(
    host: AsyncConnection, store: Backend, other: Backend, writer: str, change: str
) -> None:
    await store.save("u", messages("u"), "u1")
    await CHANGES[change](store)
    before = [await store.load("t", i) for i in await store.list_checkpoints("t")], await store.records("t", "s")
    with pytest.raises(TransactionConflictError, match="run the whole"):
        await WRITERS[writer](other.bind(host))
    await host.rollback()
    after = [await store.load("t", i) for i in await store.list_checkpoints("t")], await store.records("t", "s")
    assert after == before


async def test_a_thread_that_was_made_since_is_refused(host: AsyncConnection, store: Backend, other: Backend) -> None:
    await store.save("new", messages("a"))
    with pytest.raises(TransactionConflictError):
        await other.bind(host).save("new", messages("b"))
    await host.rollback()
    assert await store.load("new") == messages("a")
    # Run again from its beginning it succeeds.
    bound = other.bind(host)
    await bound.save("new", messages("b"))
    assert await bound.load("new") == messages("b")
    await host.commit()
    assert await store.load("new") == messages("b")


async def test_a_checkpoint_that_went_without_a_trace_on_its_thread(
    host: AsyncConnection, store: Backend, other: Backend
) -> None:
    """Others need all that it held, so only its own row goes: the transaction still sees it, the save must not."""
    await store.delete("t", "c2")
    with pytest.raises(TransactionConflictError):
        await other.bind(host).save("t", messages("a", "b", "x"), "c2")
    await host.rollback()
    bound = other.bind(host)
    await bound.save("t", messages("a", "b", "x"), "c2")
    assert await bound.load("t", "c2") == messages("a", "b", "x")
    await host.commit()
    assert await store.load("t", "c2") == messages("a", "b", "x")
    assert await store.list_checkpoints("t") == ["c2", "c3", "c1"]
    for name, expected in (("c1", messages("a")), ("c3", messages("a", "b", "c"))):
        assert await store.load("t", name) == expected


async def test_what_only_it_held_goes_with_the_last_that_needs_it(
    host: AsyncConnection, store: Backend, other: Backend, mariadb: Any
) -> None:
    await store.delete("t", "c2")
    assert await other.bind(host).delete("t", ["c3"]) is True
    await host.commit()
    assert await store.load("t") == messages("a")
    assert mariadb.execute("SELECT count(*) FROM locus_store_blocks") == [(1,)]


async def test_records_that_changed_since(host: AsyncConnection, store: Backend, other: Backend) -> None:
    """They leave no trace on the thread either."""
    await store.delete_records("t", "s")
    await store.put_records("t", "s", {"k2": "theirs", "k3": "theirs"})
    bound = other.bind(host)
    await bound.put_records("t", "s", {"k1": "mine", "k2": "mine", "k3": "mine"})
    await bound.put_records("t", "s", {"k2": "not kept", "k4": "mine"}, keep=True)
    await host.commit()
    assert await store.records("t", "s") == {"k1": "mine", "k2": "mine", "k3": "mine", "k4": "mine"}


async def test_records_of_a_thread_without_checkpoints(engine: AsyncEngine, store: Backend, other: Backend) -> None:
    """Whether the thread is empty, and goes, is looked at as it is now."""
    await store.put_records("pending", "a", {"k": 1})
    async with engine.connect() as host:
        await host.execute(text("SELECT count(*) FROM locus_store_records"))
        await store.put_records("pending", "b", {"k": 2})
        assert await other.bind(host).delete_records("pending", "a") == 1
        await host.commit()
    assert await store.records("pending", "b") == {"k": 2}


@pytest.mark.parametrize("writer", WRITERS)
async def test_read_committed_sees_what_is_there(
    engine: AsyncEngine, store: Backend, other: Backend, writer: str
) -> None:
    await store.save("u", messages("u"), "u1")
    async with engine.connect() as host:
        await host.execution_options(isolation_level="READ COMMITTED")
        await host.execute(text("SELECT count(*) FROM locus_store_threads"))
        await store.save("t", messages("a", "b", "c", "d"), "c4")
        await WRITERS[writer](other.bind(host))
        await host.commit()
    for name in await store.list_checkpoints("t", None):
        assert await store.load("t", name) is not None


async def test_a_lock_that_both_wait_for_is_told(engine: AsyncEngine, store: Backend, other: Backend) -> None:
    """Two transactions take two threads in opposite order: the server undoes one of them."""
    import asyncio

    await store.save("u", messages("u"))
    async with engine.connect() as first, engine.connect() as second:
        one, two = other.bind(first), other.bind(second)
        await one.save("t", messages("one"))
        await two.save("u", messages("two"))
        done = await asyncio.gather(
            one.save("u", messages("one")), two.save("t", messages("two")), return_exceptions=True
        )
        (error,) = [d for d in done if isinstance(d, BaseException)]
        assert isinstance(error, TransactionConflictError)
        assert "run the whole of it again" in str(error)
        for connection, result in ((first, done[0]), (second, done[1])):
            await (connection.rollback() if isinstance(result, BaseException) else connection.commit())
    winner = "one" if done[1] is error else "two"
    assert await store.load("t") == await store.load("u") == messages(winner)


async def test_a_session_whose_escapes_the_driver_does_not_know(
    engine: AsyncEngine, store: Backend, other: Backend
) -> None:
    async with engine.connect() as host:
        await host.execute(text("SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'"))
        for call in (*WRITERS.values(), lambda bound: bound.load("t"), lambda bound: bound.list_threads()):
            with pytest.raises(BackendError, match="NO_BACKSLASH_ESCAPES"):
                await call(other.bind(host))
        await host.execute(text("SET SESSION sql_mode = 'ANSI_QUOTES'"))
        assert await other.bind(host).load("t") == messages("a", "b", "c")
