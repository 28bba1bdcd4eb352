"""SQLite's index of words: FTS5 over the words that the core made of a text, with blanks between them."""
# ruff: noqa: S608 - only names of tables are put in

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Insert,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    text,
)

from locus_store.core.errors import UnsupportedOperationError
from locus_store.core.words import Query, split
from locus_store.sql.schema import effective_schema
from locus_store.sql.search.index import MOST_PHRASES, MOST_WORDS, WordIndex
from locus_store.sql.search.tables import PREFIX, QUEUE, TEXTS, Record
from locus_store.sql.statements import THREADS

_HAS_FTS5 = text("SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'")
_own = MetaData()
_WORDS = Table(f"{PREFIX}words", _own, Column("rowid", Integer), Column("words", Text), Column("rank", Float))
_CATALOG = Table("sqlite_master", _own, Column("name", Text))
_TRIGGERS = [
    *[f"{PREFIX}{name}_{event}" for name in ("blocks", "checkpoints") for event in ("insert", "update", "delete")],
    f"{PREFIX}threads_delete",
]
_TABLES = [f"{PREFIX}{name}" for name in ("places", "texts", "queue", "words")]
_PARTS = [*_TRIGGERS, *_TABLES, f"{PREFIX}texts_delete"]
_COUNT_PARTS = select(func.count()).where(_CATALOG.c.name.in_([literal_column(f"'{name}'") for name in _PARTS]))


def _noting(prefix: str, name: str, source: str) -> list[str]:
    """The triggers of a table whose rows are sources. A trigger looks for tables in the schema that it is in."""

    def forget(row: str) -> str:
        of_source = f"thread = {row}.thread AND source = {source.format(row)}"
        return (
            f"DELETE FROM {PREFIX}texts WHERE id IN (SELECT text_id FROM {PREFIX}places WHERE {of_source})"
            f" AND NOT EXISTS (SELECT 1 FROM {PREFIX}places AS other WHERE other.text_id = {PREFIX}texts.id"
            f" AND other.source <> {source.format(row)});"
            f" DELETE FROM {PREFIX}places WHERE {of_source};"
            f" DELETE FROM {PREFIX}queue WHERE {of_source};"
        )

    enqueue = f" INSERT OR REPLACE INTO {PREFIX}queue (thread, source) VALUES (new.thread, {source.format('new')});"
    begin = "CREATE TRIGGER {0}{1}{2}_{3} AFTER {4} ON locus_store_{2} BEGIN {5} END"
    return [
        begin.format(prefix, PREFIX, name, "insert", "INSERT", enqueue),
        begin.format(prefix, PREFIX, name, "update", "UPDATE OF payload", forget("old") + enqueue),
        begin.format(prefix, PREFIX, name, "delete", "DELETE", forget("old")),
    ]


def _made(prefix: str) -> list[str]:
    return [
        # With AUTOINCREMENT an id is not given out again, so that it tells one change from the next; and the time tells
        # the ids of this queue from those of one that was there before.
        f"CREATE TABLE {prefix}{PREFIX}queue (id INTEGER PRIMARY KEY AUTOINCREMENT, thread INTEGER NOT NULL,"
        " source INTEGER NOT NULL, UNIQUE (thread, source))",
        f"INSERT INTO {prefix}sqlite_sequence (name, seq) VALUES ('{PREFIX}queue', {time_ns() // 1000})",
        f"CREATE TABLE {prefix}{PREFIX}texts (id INTEGER PRIMARY KEY AUTOINCREMENT, thread INTEGER NOT NULL,"
        " digest BLOB NOT NULL, UNIQUE (thread, digest))",
        f"CREATE TABLE {prefix}{PREFIX}places (thread INTEGER NOT NULL, source INTEGER NOT NULL,"
        " text_id INTEGER NOT NULL, PRIMARY KEY (thread, source, text_id)) WITHOUT ROWID",
        f"CREATE INDEX {prefix}{PREFIX}places_text ON {PREFIX}places (text_id)",
        # This tokenizer takes all of Unicode beyond ASCII for letters, so nothing but the blanks is between words.
        f"CREATE VIRTUAL TABLE {prefix}{PREFIX}words USING fts5(words, tokenize = 'ascii')",
        f"CREATE TRIGGER {prefix}{PREFIX}texts_delete AFTER DELETE ON {PREFIX}texts BEGIN"
        f" DELETE FROM {PREFIX}words WHERE rowid = old.id; END",
        *_noting(prefix, "blocks", "{0}.block_number"),
        *_noting(prefix, "checkpoints", "-{0}.id"),
        f"CREATE TRIGGER {prefix}{PREFIX}threads_delete AFTER DELETE ON locus_store_threads BEGIN"
        f" DELETE FROM {PREFIX}texts WHERE thread = old.id; DELETE FROM {PREFIX}places WHERE thread = old.id;"
        f" DELETE FROM {PREFIX}queue WHERE thread = old.id; END",
    ]


_INSERT_TEXT = insert(TEXTS).prefix_with("OR IGNORE")
_INSERT_WORDS = insert(_WORDS)


class SQLiteIndex(WordIndex):
    """See `WordIndex`. There is one writer at a time, so nothing needs a lock of its own."""

    def look(self, connection: Connection) -> Record | None:
        """See `WordIndex.look`.

        Who copies our tables to change them, as Alembic's batch mode does, loses the triggers: there is no index then.
        """
        record = super().look(connection)
        return record if record is not None and self.is_whole(connection) else None

    def is_whole(self, connection: Connection) -> bool:
        """See `WordIndex.is_whole`."""
        found: int = connection.execute(_COUNT_PARTS, {}).all()[0][0]
        return found == len(_PARTS)

    def make(self, connection: Connection, schema: str | None) -> None:
        """See `WordIndex.make`.

        Raises:
            UnsupportedOperationError: This SQLite has no FTS5.
        """
        if not connection.execute(_HAS_FTS5, {}).scalar_one():
            raise UnsupportedOperationError(
                "SQLite as this Python has it", "search", "it was built without FTS5; use a Python whose SQLite has it"
            )
        with self._alone(connection, schema) as (plain, prefix):
            if not self.is_whole(connection):
                self._remove(plain, prefix)
                for statement in _made(prefix):
                    plain.exec_driver_sql(statement)

    def remove(self, connection: Connection, schema: str | None) -> None:
        """See `WordIndex.remove`."""
        with self._alone(connection, schema) as (plain, prefix):
            self._remove(plain, prefix)

    @contextmanager
    def _alone(self, connection: Connection, schema: str | None) -> Iterator[tuple[Connection, str]]:
        """A connection that is the writer and takes DDL, and what is before the names of tables."""
        from locus_store.migrations.locks import database_lock  # which brings Alembic with it

        inner = connection.connection
        plain = inner if isinstance(inner, Connection) else connection  # the store's own ones wrap SQLAlchemy's
        schema = effective_schema(plain, schema)
        prefix = "" if schema is None else plain.dialect.identifier_preparer.quote_schema(schema) + "."
        with database_lock(plain, schema):
            yield plain, prefix

    def removal(self, prefix: str) -> Sequence[str]:
        """See `WordIndex.removal`."""
        return [
            *[f"DROP TRIGGER IF EXISTS {prefix}{name}" for name in _TRIGGERS],
            *[f"DROP TABLE IF EXISTS {prefix}{name}" for name in _TABLES],
        ]

    def insert_waiting(self) -> Insert:
        """See `WordIndex.insert_waiting`."""
        return insert(QUEUE).prefix_with("OR IGNORE")

    def lock(self, connection: Connection, threads: Collection[int]) -> Collection[int]:
        """See `WordIndex.lock`."""
        return threads

    def words_of(self, text: str) -> str:
        """See `WordIndex.words_of`."""
        return " ".join([word.text for word in split(text)])

    def add(self, connection: Connection, thread: int, texts: dict[bytes, str]) -> None:
        """See `WordIndex.add`."""
        for key, words in texts.items():
            added = connection.execute(_INSERT_TEXT, {"thread": thread, "digest": key})
            if added.rowcount == 1:
                connection.execute(_INSERT_WORDS, {"rowid": added.lastrowid, "words": words})

    def expression(self, query: Query) -> str:
        """See `WordIndex.expression`; words have no quotes in them."""
        return " AND ".join([f'"{" ".join(phrase[:MOST_WORDS])}"' for phrase in query.phrases[:MOST_PHRASES]])

    def found(self) -> tuple[Select[Any], ColumnElement[Any]]:
        """See `WordIndex.found`; the rank of FTS5 is BM25, the best are the lowest."""
        source = _WORDS.join(TEXTS, TEXTS.c.id == _WORDS.c.rowid).join(THREADS, THREADS.c.id == TEXTS.c.thread)
        matching = _WORDS.c.words.op("MATCH", is_comparison=True)(bindparam("words"))
        return select(THREADS.c.thread_id, TEXTS.c.digest).select_from(source).where(matching), _WORDS.c.rank


SQLITE_INDEX = SQLiteIndex()
