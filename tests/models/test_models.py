"""Our classes in a host's hands: queried, joined, pointed at, and read as documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from exactness import differs
from migrations.conftest import Database, statements_of
from sqlalchemy import BigInteger, Connection, ForeignKey, String, func, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.orm.exc import DetachedInstanceError, ObjectDeletedError

from locus_store import Backend, CorruptCheckpointError, UnsupportedFormatError, ZlibCodec, open_backend
from locus_store.sql.models import Block, Checkpoint, Record, Term, Thread


class Host(DeclarativeBase):
    pass


class Customer(Host):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))
    thread_ref: Mapped[int | None] = mapped_column(BigInteger, ForeignKey(Thread.__table__.c.id))
    thread: Mapped[Thread | None] = relationship(Thread)


class Order(Host):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    checkpoint_ref: Mapped[int] = mapped_column(BigInteger, ForeignKey(Checkpoint.__table__.c.id, ondelete="CASCADE"))
    checkpoint: Mapped[Checkpoint] = relationship(Checkpoint)


def document(n: int) -> dict[str, Any]:
    return {
        "step": n,
        "messages": [{"role": "user", "content": f"message {i} " * 20} for i in range(n)],
        "pair": (n, b"x"),
    }


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Backend]:
    async with open_backend(database.url) as opened:
        yield opened


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[AsyncEngine]:
    made = database.async_engine()
    yield made
    await made.dispose()


async def test_a_host_points_at_our_rows_and_joins_them(database: Database, store: Backend) -> None:
    for n in range(1, 4):
        await store.save("t", document(n), f"c{n}")
    await store.save("u", document(1))
    database(Host.metadata.create_all)

    def insert(connection: Connection) -> None:
        with Session(connection) as session:
            thread = session.scalars(select(Thread).where(Thread.thread_id == "t")).one()
            session.add(Customer(id=1, name="Ada", thread=thread))
            session.add(Customer(id=2, name="Ben", thread=None))
            newest = session.scalars(
                select(Checkpoint).where(Checkpoint.thread == thread.id, Checkpoint.version == thread.head_version)
            ).one()
            session.add(Order(id=1, checkpoint=newest))
            session.commit()

    def look(connection: Connection) -> None:
        with Session(connection) as session:
            counted = (
                select(Customer.name, func.count(Checkpoint.id))
                .join(Customer.thread)
                .join(Checkpoint, Checkpoint.thread == Thread.id)
                .group_by(Customer.name)
            )
            assert session.execute(counted).all() == [("Ada", 3)]
            order = session.get(Order, 1)
            assert order is not None
            assert order.checkpoint.checkpoint_id == "c3"
            assert differs(order.checkpoint.document, document(3)) is None
            (ada,) = session.scalars(select(Customer).where(Customer.thread_ref.is_not(None)))
            assert ada.thread is not None
            assert (ada.thread.tenant, ada.thread.thread_id, ada.thread.head_id) == ("default", "t", "c3")
            assert ada.thread.updated_at.tzinfo is not None

    database(insert)
    database(look)
    await store.save("t", {"again": True}, "c3")
    assert await store.delete("t", "c3") is True
    assert database.execute("SELECT count(*) FROM orders")[0][0] == 0


async def test_every_document_of_a_long_thread(database: Database, store: Backend) -> None:
    for n in range(70):
        await store.save("t", document(n), f"c{n}")
    await store.tenant("other").save("t", {"n": 1}, "c5")
    await store.copy_thread("t", "copy", upto="c40")

    def look(connection: Connection) -> None:
        with Session(connection) as session:
            rows = session.execute(
                select(Checkpoint, Thread.tenant).join(Thread, Thread.id == Checkpoint.thread).order_by(Checkpoint.id)
            ).all()
            assert len(rows) == 70 + 1 + 41
            for checkpoint, tenant in rows:
                expected = {"n": 1} if tenant == "other" else document(int(checkpoint.checkpoint_id[1:]))
                assert differs(checkpoint.document, expected) is None

    database(look)


async def test_in_an_asynchronous_session(store: Backend, engine: AsyncEngine) -> None:
    await store.save("t", document(3), "c")
    async with AsyncSession(engine) as session:
        checkpoint = (await session.scalars(select(Checkpoint))).one()
        assert differs(await checkpoint.awaitable_attrs.document, document(3)) is None
        assert differs(await session.run_sync(lambda _: checkpoint.document), document(3)) is None
        await session.commit()
        assert differs(await checkpoint.awaitable_attrs.document, document(3)) is None


@pytest.mark.parametrize("given", [True, False])
async def test_what_went_through_a_codec(database: Database, engine: AsyncEngine, given: bool) -> None:
    codec = ZlibCodec()
    async with open_backend(database.url, codec=codec) as store:
        await store.save("t", document(30), "c")

    async def read(checkpoint: Checkpoint) -> dict[Any, Any]:
        return await session.run_sync(lambda _: checkpoint.read(codec if given else None))

    async with AsyncSession(engine) as session:
        checkpoint = (await session.scalars(select(Checkpoint))).one()
        if given:
            assert differs(await read(checkpoint), document(30)) is None
        else:
            with pytest.raises(UnsupportedFormatError, match=r"thread 't', checkpoint 'c'.*zlib"):
                await read(checkpoint)


async def test_it_is_what_is_stored_now(database: Database, store: Backend) -> None:
    await store.save("t", document(3), "c")

    def look(connection: Connection) -> tuple[Any, Any]:
        with Session(connection) as session:
            checkpoint = session.scalars(select(Checkpoint)).one()
            first = checkpoint.document
            first["changed"] = True
            return first, checkpoint.document

    first, second = database(look)
    assert first is not second
    assert differs(second, document(3)) is None
    await store.save("t", {"again": True}, "c", if_exists="in_place")
    assert database(look)[1] == {"again": True}


async def test_it_joins_the_transaction_of_the_session(database: Database, store: Backend) -> None:
    """It is read by statements of the session, and by nothing else."""
    await store.save("t", document(3), "c")

    def look(connection: Connection) -> None:
        with Session(connection) as session:
            checkpoint = session.scalars(select(Checkpoint)).one()
            seen = statements_of(connection)
            assert checkpoint.document
            assert len(seen) == 3
            assert all(statement.startswith("SELECT") for statement in seen)
            session.add(Thread(id=77))
            assert checkpoint.document
            assert len(seen) == 6
            session.expunge_all()

    database(look)


async def test_rows_that_cannot_be_read(database: Database, store: Backend) -> None:
    await store.save("t", document(3), "c")

    def look(connection: Connection) -> None:
        with Session(connection) as session:
            checkpoint = session.scalars(select(Checkpoint)).one()
            block = session.scalars(select(Block)).one()
            connection.execute(Block.__table__.update().values(payload=block.payload[:-3] + b"xxx"))  # type: ignore[attr-defined]
            with pytest.raises(CorruptCheckpointError, match="thread 't', checkpoint 'c'"):
                _ = checkpoint.document
            connection.execute(Checkpoint.__table__.delete())  # type: ignore[attr-defined]
            with pytest.raises(ObjectDeletedError):
                _ = checkpoint.document
            session.expunge(checkpoint)
            with pytest.raises(DetachedInstanceError, match="in no session"):
                _ = checkpoint.document
            with pytest.raises(DetachedInstanceError, match="in no session"):
                _ = Checkpoint().document

    database(look)


async def test_selecting_rows_reads_no_payloads(database: Database, store: Backend) -> None:
    await store.save("t", document(3), "c", {"k": 1})
    await store.put_records("t", "scope", {"k": 1})

    def look(connection: Connection) -> None:
        seen = statements_of(connection)
        with Session(connection) as session:
            for model in (Thread, Checkpoint, Block, Term, Record):
                (row,) = session.scalars(select(model))
                assert "payload" not in seen[-1]
                assert "ranges" not in seen[-1]
                if model not in (Thread, Term):
                    assert isinstance(row.payload, bytes)

    database(look)
