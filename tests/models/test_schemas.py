"""Stores in schemas of their own, and a host that reads them beside its own tables.

What a schema is differs: a part of the database on PostgreSQL, another database on MariaDB, an attached file on SQLite
(where the store opens that file itself).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from migrations.conftest import Database
from sqlalchemy import BigInteger, Connection, ForeignKey, String, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship

from locus_store import Backend, MySQLBackend, PostgreSQLBackend, ReferencedError, open_backend
from locus_store.migrations import not_ours, upgrade
from locus_store.sql.models import Base, Checkpoint, Models, Thread, models_in
from locus_store.sql.schema import check


class Rooms:
    """Two schemas beside the default one."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        # On a server other tests may have databases of these names.
        self.names = [f"agents_{database.short_name}", f"other_{database.short_name}"]
        if database.name == "postgresql":
            database.execute(*(f"CREATE SCHEMA {name}" for name in self.names))
        elif database.name != "sqlite":
            database.execute(*(f"CREATE DATABASE {name}" for name in self.names))

    def open(self, name: str, **options: Any) -> Backend:
        if self._database.name == "sqlite":
            return open_backend(f"sqlite:///{self._folder / name}.db", **options)
        return open_backend(self._database.url, schema=name, **options)

    def attach(self, connection: Connection) -> None:
        if self._database.name == "sqlite":
            for name in self.names:
                connection.exec_driver_sql(f"ATTACH DATABASE '{self._folder / name}.db' AS {name}")

    def __call__(self, work: Callable[[Connection], Any]) -> Any:
        def attached(connection: Connection) -> Any:
            self.attach(connection)
            return work(connection)

        return self._database(attached)

    def remove(self) -> None:
        if self._database.name not in ("sqlite", "postgresql"):
            self._database.execute("SET foreign_key_checks = 0", *(f"DROP DATABASE {name}" for name in self.names))


@pytest.fixture
async def rooms(database: Database, tmp_path: Path) -> AsyncIterator[Rooms]:
    made = Rooms(database, tmp_path)
    yield made
    made.remove()


async def test_two_stores_in_two_schemas_know_nothing_of_each_other(database: Database, rooms: Rooms) -> None:
    agents, other = rooms.names
    async with rooms.open(agents) as a, rooms.open(other) as b, open_backend(database.url) as c:
        for n, store in enumerate((a, b, c)):
            for i in range(n, 2 * n + 1):
                await store.save("t", {"store": n, "l": ["x" * 200] * i}, f"c{i}", {"store": n})
            await store.put_records("t", "scope", {"n": n})
        for n, store in enumerate((a, b, c)):
            assert (await store.load("t") or {})["store"] == n
            assert len(await store.list_checkpoints("t")) == n + 1
            assert len(await store.query_by_metadata({"store": n})) == 1
            assert await store.query_by_metadata({"store": n + 1}) == []
            assert await store.records("t", "scope") == {"n": n}
        assert await a.delete("t") is True
        assert await a.list_threads() == []
        assert await b.copy_thread("t", "copy") is True
        assert await b.vacuum(older_than_days=0) == 2
        assert await c.list_threads() == ["t"]
        assert len(await c.list_checkpoints("t")) == 3


async def test_they_share_an_engine_of_the_hosts(database: Database, rooms: Rooms) -> None:
    if database.name == "sqlite":
        pytest.skip("SQLite has files in place of schemas")
    made = PostgreSQLBackend if database.name == "postgresql" else MySQLBackend
    engine = database.async_engine()
    stores = [made(engine=engine, schema=name) for name in rooms.names] + [made(engine=engine)]
    for n, store in enumerate(stores):
        await store.save("t", {"n": n})
    async with AsyncSession(engine) as session:
        for n, store in enumerate(stores):
            bound = store.bind(session)
            assert await bound.load("t") == {"n": n}
            await bound.save("t", {"n": n + 10})
        await session.commit()
    assert [await store.load("t") for store in stores] == [{"n": 10}, {"n": 11}, {"n": 12}]
    assert "schema_translate_map" not in engine.get_execution_options()
    for store in stores:
        await store.close()
    await engine.dispose()


async def test_their_rows_are_different_objects_in_one_session(database: Database, rooms: Rooms) -> None:
    for n, name in enumerate(rooms.names):
        async with rooms.open(name) as store:
            await store.save("t", {"room": n, "l": ["x" * 300, n]}, f"c{n}")

    def look(connection: Connection) -> None:
        with Session(connection) as session:
            found = [session.scalars(select(models_in(name).Checkpoint)).one() for name in rooms.names]
            assert found[0].id == found[1].id
            assert [checkpoint.checkpoint_id for checkpoint in found] == ["c0", "c1"]
            for n, checkpoint in enumerate(found):
                assert checkpoint.document == {"room": n, "l": ["x" * 300, n]}

    rooms(look)


async def test_a_host_joins_its_own_tables_to_those_of_a_schema(database: Database, rooms: Rooms) -> None:
    agents = models_in(rooms.names[0])

    class Host(DeclarativeBase):
        pass

    class Customer(Host):
        __tablename__ = "customers"
        id: Mapped[int] = mapped_column(primary_key=True)
        thread_name: Mapped[str] = mapped_column(String(40))
        thread_ref: Mapped[int] = mapped_column(
            BigInteger, *([] if database.name == "sqlite" else [ForeignKey(agents.Thread.__table__.c.id)])
        )
        thread = relationship(
            agents.Thread, primaryjoin=lambda: Customer.thread_ref == agents.Thread.id, foreign_keys=[thread_ref]
        )

    async with rooms.open(rooms.names[0]) as store:
        await store.save("t", {"n": 1})
        await store.save("u", {"n": 2})

        def fill(connection: Connection) -> None:
            Host.metadata.create_all(connection)
            with Session(connection) as session:
                for thread in session.scalars(select(agents.Thread)):
                    session.add(Customer(thread_name=thread.thread_id, thread=thread))
                session.commit()

        def look(connection: Connection) -> None:
            with Session(connection) as session:
                joined = (
                    select(Customer, agents.Checkpoint)
                    .join(agents.Thread, agents.Thread.id == Customer.thread_ref)
                    .join(agents.Checkpoint, agents.Checkpoint.thread == agents.Thread.id)
                    .where(agents.Thread.thread_id == "u")
                )
                (row,) = session.execute(joined).all()
                customer, checkpoint = row
                assert customer.thread_name == customer.thread.thread_id == "u"
                assert checkpoint.document == {"n": 2}

        rooms(fill)
        rooms(look)
        if database.name == "sqlite":
            return  # a foreign key cannot point into another file
        with pytest.raises(ReferencedError, match="thread 'u'"):
            await store.delete("u")

        def point_nowhere(connection: Connection) -> None:
            with Session(connection) as session:
                session.add(Customer(thread_name="nobody", thread_ref=77))
                session.flush()

        with pytest.raises(IntegrityError):
            rooms(point_nowhere)


async def test_a_hosts_own_translation_is_left_to_it(postgresql: Database) -> None:
    """The plain classes, on an engine of which the host says where its tables are."""
    postgresql.execute("CREATE SCHEMA agents")
    async with open_backend(postgresql.url, schema="agents") as store:
        await store.save("t", {"n": 1, "l": ["x" * 300] * 3})
    engine = postgresql.async_engine(execution_options={"schema_translate_map": {None: "agents"}})
    async with AsyncSession(engine) as session:
        checkpoint = (await session.scalars(select(Checkpoint))).one()
        assert (await checkpoint.awaitable_attrs.document)["n"] == 1
        # Those of a schema are where they say.
        named = (await session.scalars(select(models_in("agents").Checkpoint))).one()
        assert (await named.awaitable_attrs.document)["n"] == 1
    await engine.dispose()


async def test_alembic_compares_a_hosts_tables_and_ours_in_a_schema(postgresql: Database) -> None:
    postgresql.execute("CREATE SCHEMA agents")
    agents = models_in("agents")

    class Host(DeclarativeBase):
        pass

    class Link(Host):
        __tablename__ = "links"
        id: Mapped[int] = mapped_column(primary_key=True)
        thread_ref: Mapped[int] = mapped_column(BigInteger, ForeignKey(agents.Thread.__table__.c.id))

    def work(connection: Connection) -> None:
        upgrade(connection, schema="agents")
        check(connection, schema="agents")
        Host.metadata.create_all(connection)

    def compare(connection: Connection, target: Any, **options: Any) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
        return compare_metadata(context, target)

    postgresql(work)
    assert postgresql(lambda c: compare(c, Host.metadata, include_name=not_ours)) == []
    both = postgresql(lambda c: compare(c, [Host.metadata, agents.metadata]))
    assert [(name, table.name) for name, table in both] == [("remove_table", "locus_store_alembic")]
    assert len(postgresql(lambda c: compare(c, Host.metadata))) > 5


def test_the_classes_of_a_schema_are_like_the_plain_ones() -> None:
    agents = models_in("agents")
    assert models_in("agents") is agents
    assert models_in("others") != agents
    plain = models_in(None)
    assert plain.metadata is Base.metadata
    assert plain.Thread is Thread
    for name in Models._fields[1:]:
        ours, theirs = getattr(plain, name), getattr(agents, name)
        assert theirs.__table__.schema == "agents"
        assert theirs.__doc__ == ours.__doc__
        attributes = {attribute.key: attribute for attribute in inspect(theirs).column_attrs}
        for attribute in inspect(ours).column_attrs:
            same = attributes.pop(attribute.key)
            assert same.columns[0].name == attribute.columns[0].name
            assert same.deferred == attribute.deferred
        assert attributes == {}
    assert "agents.locus_store_threads" in str(select(aliased(agents.Thread)))
