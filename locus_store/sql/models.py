"""The relational model: threads, their checkpoints, blocks, metadata terms and records, and one schema row.

Hosts may query these classes, join them, and point foreign keys at ``Thread.__table__.c.id`` and
``Checkpoint.__table__.c.id``: surrogate ids live as long as what they name and are never reused. The tables name no
schema; `schema_translate_map` puts them in one.

The tables have no foreign keys among themselves: every write holds the thread's row, which is what keeps them together,
and a constraint checked for each row would cost a save more than it tells.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Identity, Index, Integer, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from locus_store.sql.types import Digest, Identifier, UTCMicroseconds, frames, surrogate_key

metadata = MetaData(naming_convention={"pk": "pk_%(table_name)s"})


class Base(DeclarativeBase):
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
        {"sqlite_autoincrement": True},
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


class Checkpoint(Base):
    """One checkpoint of a thread.

    Attributes:
        parent_version: The version of the parent, or None for a first checkpoint.
        stamp: 16 random bytes of the save that wrote the row.
        own_block: The number of the block that this save added, 0 if none.
        first_block: The lowest block that the ranges name, 0 if none.
        last_block: The highest one, 0 if none.
        ranges: What the document's lists consist of (`locus_store.core.references`).
        payload: The rest of the document, a frame.
        details: The metadata as encoded text (the column is named ``metadata``).
        size: Bytes that the save stored.
    """

    __tablename__ = "locus_store_checkpoints"
    __table_args__ = (
        UniqueConstraint("thread", "version", name="uq_locus_store_checkpoints_v"),
        UniqueConstraint("thread", "checkpoint_id", name="uq_locus_store_checkpoints_id"),
        {"sqlite_autoincrement": True},
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
    ranges: Mapped[bytes] = mapped_column(frames())
    payload: Mapped[bytes] = mapped_column(frames())
    details: Mapped[bytes | None] = mapped_column("metadata", frames())
    size: Mapped[int] = mapped_column("stored_size", BigInteger)
    created_at: Mapped[datetime] = mapped_column(UTCMicroseconds())


class Block(Base):
    """The entries that one save added, or, sealed, those of all saves from ``block_number`` to ``last_number``."""

    __tablename__ = "locus_store_blocks"
    thread: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    block_number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    last_number: Mapped[int] = mapped_column(BigInteger)
    payload: Mapped[bytes] = mapped_column(frames())


class Term(Base):
    """A digest of 16 bytes by which a checkpoint's metadata is found."""

    __tablename__ = "locus_store_terms"
    __table_args__ = (Index("ix_locus_store_terms", "term", "thread", "version"),)

    thread: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    term: Mapped[bytes] = mapped_column(Digest(), primary_key=True)


class Record(Base):
    """A small keyed value of a thread; ``id`` keeps the order of first insertion."""

    __tablename__ = "locus_store_records"
    __table_args__ = (
        UniqueConstraint("thread", "scope", "record_key", name="uq_locus_store_records"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(surrogate_key(), Identity(), primary_key=True)
    thread: Mapped[int] = mapped_column(BigInteger)
    scope: Mapped[str] = mapped_column(Identifier(512))
    key: Mapped[str] = mapped_column("record_key", Identifier(512))
    payload: Mapped[bytes] = mapped_column(frames())


class Schema(Base):
    """One row: what a store reads at start, however the migration was run."""

    __tablename__ = "locus_store_schema"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    revision: Mapped[str] = mapped_column(String(32))
    format: Mapped[int] = mapped_column(Integer)


def refuse_table_name(table_name: str | None) -> None:
    """The names of the tables are fixed, because migrations and hosts name them; raises ValueError for another one."""
    if table_name is not None:
        raise ValueError(
            f"table_name={table_name!r}: the tables of this store have fixed names (locus_store_threads, …); "
            "leave table_name out, and keep stores apart by tenant, schema or database"
        )
