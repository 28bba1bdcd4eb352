"""The tables of the index of words. They are made by `enable_search`, by no revision.

That they are there is recorded in ``locus_store_schema``, in a row of its own that releases without search do not look
at. A source is a block (its number) or the rest of a checkpoint's document (its row's id, negative).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, Table, delete, insert, select

from locus_store.core.errors import SchemaAheadError
from locus_store.sql.models import Schema
from locus_store.sql.types import surrogate_key

PREFIX = "locus_store_search_"
INDEX_REVISION = "search1"
"""What the record says of an index that this release reads and fills."""

_RECORD = 2
_CLEAR, _PLAIN_TEXT = 1, 2
_metadata = MetaData()
SCHEMA = cast(Table, Schema.__table__)

QUEUE = Table(
    f"{PREFIX}queue",
    _metadata,
    Column("id", surrogate_key(), primary_key=True),
    Column("thread", BigInteger),
    Column("source", BigInteger),
)
"""Sources that are new or have changed; each change draws a new id, which no earlier index in the same place had."""

TEXTS = Table(
    f"{PREFIX}texts",
    _metadata,
    Column("id", surrogate_key(), primary_key=True),
    Column("thread", BigInteger),
    Column("digest", LargeBinary),
)
"""The distinct texts of each thread, by their digests. Their words are in a column or table of each database's own."""

PLACES = Table(
    f"{PREFIX}places",
    _metadata,
    Column("thread", BigInteger),
    Column("source", BigInteger),
    Column("text_id", BigInteger),
)
"""Which sources have a text. One that none has is gone."""


class Record(NamedTuple):
    """What is noted of the index.

    Attributes:
        plain_text: It may have words of texts that a codec hides.
    """

    plain_text: bool


SEE_RECORD = select(SCHEMA.c.revision, SCHEMA.c.format).where(SCHEMA.c.id == _RECORD)
_LOCK = select(SCHEMA.c.id).where(SCHEMA.c.id == 1).with_for_update()
_INSERT_RECORD = insert(SCHEMA)
_DELETE_RECORD = delete(SCHEMA).where(SCHEMA.c.id == _RECORD)


def read_record(connection: Any) -> Record | None:
    """What is noted of the index, or None if there is none.

    Raises:
        SchemaAheadError: A newer release made it, in another way.
    """
    row = connection.execute(SEE_RECORD, {}).first()
    if row is None:
        return None
    revision, form = row
    if revision != INDEX_REVISION or form not in (_CLEAR, _PLAIN_TEXT):
        raise SchemaAheadError(
            revision, INDEX_REVISION, "the index of words was made by a newer release: upgrade the package locus-store"
        )
    return Record(form == _PLAIN_TEXT)


def lock_record(connection: Any) -> None:
    """Keep others from writing the record until the transaction ends."""
    connection.execute(_LOCK, {}).all()


def write_record(connection: Any, record: Record) -> None:
    """Note that the index is there."""
    connection.execute(_DELETE_RECORD, {})
    form = _PLAIN_TEXT if record.plain_text else _CLEAR
    connection.execute(_INSERT_RECORD, {"id": _RECORD, "revision": INDEX_REVISION, "format": form})


def delete_record(connection: Any) -> None:
    """Note that it is not."""
    connection.execute(_DELETE_RECORD, {})


class Waiting(NamedTuple):
    """A source in the queue; all but the first three are None if it, or its thread, is gone."""

    id: int
    thread: int
    source: int
    tenant: str | None
    thread_id: str | None
    payload: bytes | None


class Filled(NamedTuple):
    """A source in the queue, and for the digest of each of its texts the words, as `WordIndex.words_of` has them."""

    id: int
    thread: int
    source: int
    words: dict[bytes, str]
