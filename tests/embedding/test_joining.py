"""A store that is bound joins the caller's transaction, whatever it is held by, and does nothing else to it."""

from __future__ import annotations

import re

import pytest
from embedding.hosts import Begin, Host, Order, opener
from sqlalchemy import event, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from locus_store.core.backend import Backend
from locus_store.core.errors import TransactionNotAllowedError
from locus_store.core.messages import Message
from locus_store.core.state import AgentState
from locus_store.core.synchronous import SyncBackend
from locus_store.sql.models import Base as OurBase

DOCUMENT = {"messages": [{"content": f"{i} " * 200} for i in range(3)], "n": 1}


async def book(transaction) -> None:
    await transaction.execute(insert(Order).values(id=1, item="a chair"))
    await transaction.call("save", "t", DOCUMENT, "c", {"order": 1})


async def orders(host: Host) -> int:
    with host.sync_engine().connect() as connection:
        return len(connection.execute(select(Order.id)).all())


# ------------------------------------------------------------------------------------------------- together or not


async def test_rows_of_the_host_and_the_checkpoint_are_committed_together(host: Host, store: Backend, begin: Begin):
    async with begin(store) as transaction:
        await book(transaction)
        assert await transaction.call("load", "t") == DOCUMENT
        assert await store.load("t") is None
        await transaction.commit()
    assert await store.load("t", "c") == DOCUMENT
    assert await orders(host) == 1


async def test_and_vanish_together(host: Host, store: Backend, begin: Begin):
    async with begin(store) as transaction:
        await book(transaction)
        await transaction.rollback()
        assert await transaction.call("load", "t") is None
        assert await transaction.call("list_threads") == []
    assert await store.load("t") is None
    assert (await orders(host), host.place.count()) == (0, 0)


async def test_everything_a_store_does_is_undone(host: Host, store: Backend, begin: Begin):
    for name in ("a", "b", "c"):
        await store.save("t", {**DOCUMENT, "n": name}, name, {"k": name})
    await store.put_records("t", "s", {"r": 1})
    before = [await store.history("t"), await store.records("t", "s"), await store.list_threads()]
    async with begin(store) as transaction:
        call = transaction.call
        assert await call("delete", "t", "b") is True
        assert await call("copy_thread", "t", "u") is True
        await call("save", "t", {"n": "replaced"}, "a")
        await call("put_records", "t", "s", {"r": 2, "q": 3})
        assert await call("vacuum", older_than_days=0, keep_last=1) == 2
        assert await call("delete_records", "u") == 1
        assert [r["thread_id"] for r in await call("query_by_metadata", "k", "c")] == ["u"]
        assert await call("exists", "u", "c") is True
        assert (await call("get_metadata", "u"))["metadata"] == {"k": "c"}
        assert await call("delete", "t") is True
        assert await call("list_threads") == ["u"]
        await transaction.rollback()
    assert [await store.history("t"), await store.records("t", "s"), await store.list_threads()] == before
    for name in ("a", "b", "c"):
        assert await store.load("t", name) == {**DOCUMENT, "n": name}


async def test_states_and_tenants(store: Backend, begin: Begin):
    state = AgentState(agent_id="a").with_message(Message.user("hi"))
    async with begin(store.tenant("acme")) as transaction:
        await transaction.state("save", state, "t", "c")
        assert await transaction.state("load", "t") == state
        await transaction.commit()
    assert await store.load("t") is None
    assert await store.tenant("acme").checkpointer().load("t") == state
    async with begin(store.tenant("acme").checkpointer()) as transaction:
        assert await transaction.call("load", "t") == state
        backend = transaction.store.backend
        assert backend.capabilities == transaction.store.capabilities
        other = transaction.store.tenant("other")
        assert "bound to" in repr(other.backend)
        assert other.state_type is AgentState


async def test_an_error_of_ours_that_says_no_leaves_the_transaction_as_it_was(store: Backend, begin: Begin):
    await store.save("t", {"n": 1}, "c")
    async with begin(store) as transaction:
        call = transaction.call
        for name, *arguments in (
            ("save", "t", {"n": 2}, None, None),
            ("save", "t", {"n": object()}),
            ("copy_thread", "t", "t"),
        ):
            options = {"expected_version": 7} if len(arguments) == 4 else {}
            with pytest.raises(Exception, match=r"version|object|itself"):
                await call(name, *arguments, **options)
        await call("save", "u", {"n": 3})
        await transaction.commit()
    assert await store.list_threads() == ["u", "t"]
    assert await store.load("t") == {"n": 1}
    assert len(await store.list_checkpoints("t")) == 1


# ---------------------------------------------------------------------------------------- what it does not do


async def test_it_ends_nothing_and_sets_no_savepoint(host: Host, store: Backend):
    """Every statement goes through SQLAlchemy on the host's one connection; what ends the transaction is the host's."""
    engine = host.engine()
    statements: list[str] = []
    ends: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda c, k, text, *_: statements.append(text))
    for name in ("commit", "rollback", "savepoint", "rollback_savepoint", "release_savepoint"):
        event.listen(engine.sync_engine, name, lambda *_, name=name: ends.append(name))
    async with AsyncSession(engine) as session:
        bound = store.bind(session)
        await bound.save("t", DOCUMENT, "c", {"k": 1})
        written = [re.search(r"locus_store_\w+", s)[0] for s in statements if s.startswith("INSERT")]
        assert set(written) == {f"locus_store_{name}" for name in ("threads", "checkpoints", "blocks", "terms")}
        for call in (bound.load("t"), bound.history("t"), bound.list_threads(), bound.query_by_metadata("k", 1)):
            count = len(statements)
            assert await call
            assert len(statements) > count
        await bound.close()
        assert ends == []
        assert not [s for s in statements if re.match(r"(?i)set|pragma\s+\w+\s*=|create|alter|savepoint|commit", s)]
        await session.commit()
    assert ends == ["commit"]
    assert await store.load("t") == DOCUMENT


async def test_nothing_is_flushed_and_nothing_expired(host: Host, store: Backend):
    async with AsyncSession(host.engine()) as session:
        kept = Order(id=1, item="a chair")
        session.add(kept)
        await session.commit()
        await session.refresh(kept)
        kept.item = "a changed chair"
        pending = Order(id=2, item="a table")
        session.add(pending)
        bound = store.bind(session)
        await bound.save("t", {"n": 1})
        assert await bound.load("t") == {"n": 1}
        assert pending in session.new
        assert kept in session.dirty
        assert "item" in kept.__dict__
        await session.rollback()
    assert await store.load("t") is None


async def test_nothing_is_opened_but_what_the_host_opens(host: Host, store: Backend, begin: Begin):
    """A backend that is only ever bound never connects by itself."""
    async with begin(store) as transaction:
        await transaction.call("setup")
        await transaction.call("save", "t", {"n": 1})
        await transaction.call("close")
        assert await transaction.call("load", "t") == {"n": 1}
        await transaction.commit()
    driver = store._driver
    opened = driver._engines._opened if hasattr(driver, "_engines") else driver._engine._state.opening
    assert not opened


async def test_space_is_not_given_back_in_a_transaction(store: Backend, begin: Begin):
    async with begin(store) as transaction:
        await transaction.call("save", "t", {"n": 1}, "a")
        await transaction.call("save", "t", {"n": 2}, "b")
        with pytest.raises(TransactionNotAllowedError, match=r"call it on the backend that was bound"):
            await transaction.call("vacuum", older_than_days=0, reclaim=True)
        assert len(await transaction.call("list_checkpoints", "t")) == 2
        assert transaction.store.capabilities.own_connections is False
        assert transaction.store.capabilities.transactions is True
    assert store.capabilities.own_connections is True


async def test_blocks_are_not_joined_in_a_transaction(host: Host, store: Backend):
    messages = [{"content": f"{i} " * 200} for i in range(60)]
    async with AsyncSession(host.engine()) as session:
        bound = store.bind(session)
        for i in range(60):
            await bound.save("t", {"messages": messages[: i + 1]})
        await session.commit()
    blocks = host.place.execute("SELECT count(*) FROM locus_store_blocks")[0][0]
    assert blocks == 60
    assert await store.load("t") == {"messages": messages}


# ---------------------------------------------------------------------------------------------------- targets


async def test_a_session_with_several_binds_is_asked_for_ours(host: Host, store: Backend, tmp_path):
    engine = host.sync_engine()
    with Session(binds={OurBase: engine}) as session:
        bound = store.bind(session)
        assert isinstance(bound, SyncBackend)
        bound.save("t", {"n": 1})
        session.commit()
    async with AsyncSession(binds={OurBase: host.engine()}) as asynchronous:
        assert await store.bind(asynchronous).load("t") == {"n": 1}


async def test_scoped_sessions(host: Host, store: Backend):
    scoped = scoped_session(sessionmaker(host.sync_engine()))
    store.bind(scoped).save("t", {"n": 1})
    scoped.commit()
    scoped.remove()
    asynchronous = async_scoped_session(async_sessionmaker(host.engine()), scopefunc=lambda: 1)
    assert await store.bind(asynchronous).load("t") == {"n": 1}
    await asynchronous.remove()


async def test_a_plain_function_within_a_running_loop(host: Host, store: Backend):
    """``run_sync`` hands a plain session to plain code, while the loop runs."""

    def work(session: Session) -> object:
        bound = store.bind(session)
        with bound:
            bound.save("t", {"n": 1})
        session.add(Order(id=1, item="a chair"))
        return bound.load("t")

    async with AsyncSession(host.engine()) as session:
        assert await session.run_sync(work) == {"n": 1}
        await session.commit()
    assert await store.load("t") == {"n": 1}
    assert await orders(host) == 1


async def test_a_bound_store_is_bound_to_something_else(host: Host, store: Backend):
    async with AsyncSession(host.engine()) as one, AsyncSession(host.engine()) as two:
        first = store.bind(one)
        await first.save("t", {"n": 1})
        assert await first.bind(two).load("t") is None
        await one.rollback()


async def test_what_a_store_cannot_be_bound_to(host: Host, store: Backend):
    engine = host.engine()
    for wrong in (engine, engine.sync_engine, sessionmaker(), None, store):
        with pytest.raises(TypeError, match=r"AsyncSession, AsyncConnection, Session or Connection"):
            store.bind(wrong)
        with pytest.raises(TypeError, match=type(wrong).__name__):
            store.checkpointer().bind(wrong)


async def test_two_stores_with_options_of_their_own_in_one_transaction(host: Host, clock):
    keeping, plain = host.own(keep_checkpoints=2, clock=clock), host.own(tenant="acme", ttl_seconds=10, clock=clock)
    begin = opener(host, "AsyncSession")
    async with begin(keeping) as transaction:
        bound = plain.bind(transaction.target)
        for i in range(4):
            await transaction.call("save", "t", {"n": i}, str(i))
            await bound.save("t", {"n": -i}, str(i))
        await transaction.commit()
    assert await keeping.list_checkpoints("t") == ["3", "2"]
    assert len(await plain.list_checkpoints("t")) == 4
    clock.advance(seconds=11)
    assert await plain.exists("t") is False


async def test_the_methods_are_the_same():
    """Whatever a backend or a checkpointer can do, it can do in a synchronous transaction, too."""
    from locus_store.core.checkpointer import Checkpointer
    from locus_store.core.synchronous import SyncCheckpointer

    for plain, cls, without in (
        (SyncBackend, Backend, {"bind"}),
        (SyncCheckpointer, Checkpointer, {"bind", "deletes_single_checkpoints"}),
    ):
        names = {name for name in dir(cls) if not name.startswith("_")} - without
        assert {name for name in dir(plain) if not name.startswith("_")} >= names
        assert all([getattr(plain, name).__doc__ for name in names])
