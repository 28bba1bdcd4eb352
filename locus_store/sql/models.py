"""The relational model: threads, their checkpoints, blocks, metadata terms and records, and one schema row.

Hosts may query these classes, join them, and point foreign keys at ``Thread.__table__.c.id`` and
``Checkpoint.__table__.c.id``: surrogate ids live as long as what they name and are never reused. They are there for
reading; what writes is the store. The tables name no schema: `models_in` has the same classes in one.

The tables have no foreign keys among themselves: every write holds the thread's row, which is what keeps them together,
and a constraint checked for each row would cost a save more than it tells.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import BigInteger, Identity, Index, Integer, MetaData, Table, UniqueConstraint, inspect
from sqlalchemy.ext.asyncio import AsyncAttrs
from sqlalchemy.orm import DeclarativeBase, Mapped, deferred, mapped_column, registry

from locus_store.core.frames import Codec
from locus_store.sql.types import (
    TABLE_OPTIONS,
    Digest,
    Identifier,
    UTCMicroseconds,
    ascii_name,
    frames,
    surrogate_key,
)

_NAMES = {"pk": "pk_%(table_name)s"}

metadata = MetaData(naming_convention=_NAMES)


class Row(AsyncAttrs):
    """What the classes of all schemas share: ``await row.awaitable_attrs.name`` in an `AsyncSession`."""


class WithDocument(Row):
    """A row of a checkpoint, from which its document can be read while the row is in a session."""

    @property
    def document(self) -> dict[Any, Any]:
        """The checkpoint's document, read through the session that the row is in.

        In an `AsyncSession`: ``await checkpoint.awaitable_attrs.document``. See `read`.
        """
        return self.read()

    def read(self, codec: Codec | None = None) -> dict[Any, Any]:
        """The checkpoint's document as it is stored now, read in the transaction of the row's session.

        In an `AsyncSession`: ``await session.run_sync(lambda _: checkpoint.read(codec))``.

        Args:
            codec: The codec of the stores that save in this database, if they have one.

        Raises:
            sqlalchemy.orm.exc.DetachedInstanceError: The row is in no session.
            sqlalchemy.orm.exc.ObjectDeletedError: The checkpoint has been deleted.
            CorruptCheckpointError: What is stored is damaged.
            UnsupportedFormatError: A newer release wrote it, or it went through another codec.
        """
        # What reads is built over these models.
        from locus_store.sql.documents import document_of

        return document_of(self, codec)


class Base(Row, DeclarativeBase):
    """The declarative base of this package's own tables."""

    metadata = metadata


class Thread(Base):
    """One thread of one tenant.

    Attributes:
        version: The last version given out; never goes back.
        head_version: The version of the newest checkpoint that exists; 0 while there is none.
        head_id: That checkpoint's id.
        block_count: The last block number given out; never goes back.
        epoch: Random; drawn anew whenever entries are removed.
    """

    __tablename__ = "locus_store_threads"
    __table_args__ = (
        UniqueConstraint("tenant", "thread_id", name="uq_locus_store_threads"),
        Index("ix_locus_store_threads_recent", "tenant", "updated_at"),
        {"sqlite_autoincrement": True, **TABLE_OPTIONS},
    )

    id: Mapped[int] = mapped_column(surrogate_key(), Identity(), primary_key=True)
    tenant: Mapped[str] = mapped_column(Identifier(128))
    thread_id: Mapped[str] = mapped_column(Identifier(512))
    version: Mapped[int] = mapped_column(BigInteger)
    head_version: Mapped[int] = mapped_column(BigInteger)
    head_id: Mapped[str | None] = mapped_column(Identifier(512))
    block_count: Mapped[int] = mapped_column(BigInteger)
    epoch: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UTCMicroseconds())
    updated_at: Mapped[datetime] = mapped_column(UTCMicroseconds())
    expires_at: Mapped[datetime | None] = mapped_column(UTCMicroseconds())


class Checkpoint(WithDocument, Base):
    """One checkpoint of a thread.

    Attributes:
        parent_version: The version of the parent, or None for a first checkpoint.
        stamp: 16 random bytes of the save that wrote the row.
        own_block: The number of the block that this save added, 0 if none.
        first_block: The lowest block that the ranges name, 0 if none.
        last_block: The highest one, 0 if none.
        ranges: What the document's lists consist of (`locus_store.core.references`).
        payload: The rest of the document, a frame; with ``ranges`` read only when it is asked for.
        document: The document.
        details: The metadata as encoded text (the column is named ``metadata``).
        size: Bytes that the save stored.
    """

    __tablename__ = "locus_store_checkpoints"
    __table_args__ = (
        UniqueConstraint("thread", "version", name="uq_locus_store_checkpoints_v"),
        UniqueConstraint("thread", "checkpoint_id", name="uq_locus_store_checkpoints_id"),
        {"sqlite_autoincrement": True, **TABLE_OPTIONS},
    )

    id: Mapped[int] = mapped_column(surrogate_key(), Identity(), primary_key=True)
    thread: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int] = mapped_column(BigInteger)
    checkpoint_id: Mapped[str] = mapped_column(Identifier(512))
    parent_version: Mapped[int | None] = mapped_column(BigInteger)
    stamp: Mapped[bytes] = mapped_column(Digest())
    own_block: Mapped[int] = mapped_column(BigInteger)
    first_block: Mapped[int] = mapped_column(BigInteger)
    last_block: Mapped[int] = mapped_column(BigInteger)
    ranges: Mapped[bytes] = mapped_column(frames(), deferred=True)
    payload: Mapped[bytes] = mapped_column(frames(), deferred=True)
    details: Mapped[bytes | None] = mapped_column("metadata", frames())
    size: Mapped[int] = mapped_column("stored_size", BigInteger)
    created_at: Mapped[datetime] = mapped_column(UTCMicroseconds())


class Block(Base):
    """The entries that one save added, or, sealed, those of all saves from ``block_number`` to ``last_number``."""

    __tablename__ = "locus_store_blocks"
    __table_args__ = TABLE_OPTIONS

    thread: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    block_number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    last_number: Mapped[int] = mapped_column(BigInteger)
    payload: Mapped[bytes] = mapped_column(frames(), deferred=True)


class Term(Base):
    """A digest of 16 bytes by which a checkpoint's metadata is found."""

    __tablename__ = "locus_store_terms"
    __table_args__ = (Index("ix_locus_store_terms", "term", "thread", "version"), TABLE_OPTIONS)

    thread: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    term: Mapped[bytes] = mapped_column(Digest(), primary_key=True)


class Record(Base):
    """A small keyed value of a thread; ``id`` keeps the order of first insertion."""

    __tablename__ = "locus_store_records"
    __table_args__ = (
        UniqueConstraint("thread", "scope", "record_key", name="uq_locus_store_records"),
        {"sqlite_autoincrement": True, **TABLE_OPTIONS},
    )

    id: Mapped[int] = mapped_column(surrogate_key(), Identity(), primary_key=True)
    thread: Mapped[int] = mapped_column(BigInteger)
    scope: Mapped[str] = mapped_column(Identifier(512))
    key: Mapped[str] = mapped_column("record_key", Identifier(512))
    payload: Mapped[bytes] = mapped_column(frames(), deferred=True)


class Schema(Base):
    """One row: what a store reads at start, however the migration was run."""

    __tablename__ = "locus_store_schema"
    __table_args__ = TABLE_OPTIONS

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    revision: Mapped[str] = mapped_column(ascii_name(32))
    format: Mapped[int] = mapped_column(Integer)


_Thread: TypeAlias = type[Thread]
_Checkpoint: TypeAlias = type[Checkpoint]
_Block: TypeAlias = type[Block]
_Term: TypeAlias = type[Term]
_Record: TypeAlias = type[Record]


class Models(NamedTuple):
    """The classes of one schema, and the MetaData of its tables."""

    metadata: MetaData
    Thread: _Thread
    Checkpoint: _Checkpoint
    Block: _Block
    Term: _Term
    Record: _Record


@cache
def models_in(schema: str | None) -> Models:
    """The classes for the tables in a schema, the same ones at each call; `Thread`, … themselves for None.

    They are classes of their own, so rows of two schemas that have the same id are two objects in one session. They
    have the attributes of `Thread`, …, but are not derived from them.

    Args:
        schema: The name of the schema: on MariaDB and MySQL a database, on SQLite one that was attached.
    """
    if schema is None:
        return Models(metadata, *_MODELS)
    there = MetaData(naming_convention=_NAMES)
    tables = {table.name: table.to_metadata(there, schema=schema) for table in metadata.sorted_tables}
    mapped = registry(metadata=there)
    return Models(there, *[_map_again(mapped, model, tables[model.__tablename__]) for model in _MODELS])


_MODELS = (Thread, Checkpoint, Block, Term, Record)


def _map_again(mapped: registry, model: type[Base], table: Table) -> Any:
    """A class like `model` over another table."""
    base = WithDocument if issubclass(model, WithDocument) else Row
    made = type(model.__name__, (base,), {"__doc__": model.__doc__, "__module__": model.__module__})
    properties: dict[str, Any] = {}
    for attribute in inspect(model).column_attrs:
        column = table.c[attribute.columns[0].key]
        properties[attribute.key] = deferred(column) if attribute.deferred else column
    mapped.map_imperatively(made, table, properties=properties)
    return made


def one_schema(schema: str | None, schema_name: str | None) -> str | None:
    """The schema of a store; the locus SDK calls it ``schema_name``. Raises ValueError if there are two of them."""
    if schema is not None and schema_name is not None and schema != schema_name:
        raise ValueError(f"schema={schema!r} and schema_name={schema_name!r} name one thing: leave one out")
    return schema if schema is not None else schema_name


def refuse_table_name(table_name: str | None) -> None:
    """The names of the tables are fixed, because migrations and hosts name them; raises ValueError for another one."""
    if table_name is not None:
        raise ValueError(
            f"table_name={table_name!r}: the tables of this store have fixed names (locus_store_threads, …); "
            "leave table_name out, and keep stores apart by tenant, schema or database"
        )
