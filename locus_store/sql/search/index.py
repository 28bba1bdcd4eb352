"""The index of words: how it is filled and asked. What differs between databases is in its subclasses.

Saves do not fill it. Triggers on the tables of blocks and checkpoints put what was written into a queue and take out
what was rewritten or removed, whoever does it. A search first takes what waits in the queue into the index; what it
cannot take (somebody holds the thread, it may not write, it is inside a caller's transaction) it reads as it is. So
what was saved is found at once, and a save costs a row in the queue more.

All that changes the texts of a thread holds the thread's row: writers by their own rules, `store` by a lock that it
does not wait for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    Insert,
    LargeBinary,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    null,
    select,
    tuple_,
    type_coerce,
    union_all,
)

from locus_store.core.driver import Clue, Clues
from locus_store.core.patterns import parse
from locus_store.core.words import Query
from locus_store.sql.search.tables import (
    PLACES,
    QUEUE,
    TEXTS,
    Filled,
    Record,
    Waiting,
    delete_record,
    lock_record,
    read_record,
    write_record,
)
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, THREADS, alive, as_number

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

MOST_PHRASES = 64
"""How many phrases of a query the database looks for, and …"""
MOST_WORDS = 32
"""… how many words of each: they are necessary conditions, and the core decides."""

_LAST = select(func.max(QUEUE.c.id))
_WAITING = (
    select(
        QUEUE.c.id,
        QUEUE.c.thread,
        QUEUE.c.source,
        THREADS.c.tenant,
        THREADS.c.thread_id,
        func.coalesce(BLOCKS.c.payload, CHECKPOINTS.c.payload, type_=LargeBinary),
    )
    .select_from(
        QUEUE.outerjoin(THREADS, THREADS.c.id == QUEUE.c.thread)
        .outerjoin(BLOCKS, (BLOCKS.c.thread == QUEUE.c.thread) & (BLOCKS.c.block_number == QUEUE.c.source))
        .outerjoin(CHECKPOINTS, (CHECKPOINTS.c.thread == QUEUE.c.thread) & (CHECKPOINTS.c.id == -QUEUE.c.source))
    )
    .where(QUEUE.c.id > bindparam("after", type_=BigInteger), QUEUE.c.id <= bindparam("upto", type_=BigInteger))
    .order_by(QUEUE.c.id)
    .limit(bindparam("count", type_=BigInteger))
)
_AMONG = bindparam("rows", type_=BigInteger, expanding=True)
_STILL = select(QUEUE.c.id).where(QUEUE.c.id.in_(_AMONG))
_DONE = delete(QUEUE).where(QUEUE.c.id.in_(_AMONG))
_INDEXED = select(PLACES.c.thread, PLACES.c.source).where(PLACES.c.thread.in_(_AMONG)).distinct()

_OF_SOURCE = (PLACES.c.thread == bindparam("of_thread")) & (PLACES.c.source == bindparam("of_source"))
_other = PLACES.alias("other")
_FORGET_TEXTS = delete(TEXTS).where(
    TEXTS.c.id.in_(select(PLACES.c.text_id).where(_OF_SOURCE)),
    ~exists().where(_other.c.text_id == TEXTS.c.id, _other.c.source != bindparam("of_source")),
)
_FORGET_PLACES = delete(PLACES).where(_OF_SOURCE)
INSERT_PLACE = insert(PLACES).from_select(
    ["thread", "source", "text_id"],
    select(TEXTS.c.thread, bindparam("of_source", type_=BigInteger), TEXTS.c.id).where(
        TEXTS.c.thread == bindparam("of_thread"), TEXTS.c.digest == bindparam("of_digest", type_=LargeBinary)
    ),
)

_BLOCKS_AFTER = (
    select(BLOCKS.c.thread, BLOCKS.c.block_number)
    .where(
        tuple_(BLOCKS.c.thread, BLOCKS.c.block_number)
        > tuple_(bindparam("of_thread", type_=BigInteger), bindparam("number", type_=BigInteger))
    )
    .order_by(BLOCKS.c.thread, BLOCKS.c.block_number)
    .limit(bindparam("count", type_=BigInteger))
)
_CHECKPOINTS_AFTER = (
    select(CHECKPOINTS.c.thread, CHECKPOINTS.c.id)
    .where(CHECKPOINTS.c.id > bindparam("number", type_=BigInteger))
    .order_by(CHECKPOINTS.c.id)
    .limit(bindparam("count", type_=BigInteger))
)


class Last(NamedTuple):
    """The block, or after all blocks the checkpoint, that was the last to be enqueued."""

    thread: int
    number: int
    of_blocks: bool = True


FIRST = Last(0, 0)


class WordIndex(ABC):
    """One database's index of words. Its methods are run as those of `Dialect` are.

    Attributes:
        enqueued: How many sources are enqueued in one transaction when the index is made.
        page: How many are taken from the queue into the index in one.
    """

    enqueued = 1000
    page = 32

    # -------------------------------------------------------------------------------------------------- differs

    @abstractmethod
    def make(self, connection: Connection, schema: str | None) -> None:
        """Make tables and triggers; what is there is left if it is all, and otherwise made anew."""

    @abstractmethod
    def remove(self, connection: Connection, schema: str | None) -> None:
        """Remove tables, triggers and record, as far as they are there."""

    @abstractmethod
    def removal(self, prefix: str) -> Sequence[str]:
        """The statements that remove its tables and triggers, as far as they are there.

        Args:
            prefix: The schema's name, quoted, with a dot; or nothing.
        """

    @abstractmethod
    def is_whole(self, connection: Connection) -> bool:
        """Whether all tables and triggers are there."""

    @abstractmethod
    def insert_waiting(self) -> Insert:
        """An INSERT into the queue, of ``thread`` and ``source``, that passes over what is in it."""

    @abstractmethod
    def lock(self, connection: Connection, threads: Collection[int]) -> Collection[int]:
        """Those of the threads that nobody else changes until the transaction ends; it waits for none."""

    @abstractmethod
    def words_of(self, text: str) -> str:
        """The words of a text, as `add` stores them."""

    @abstractmethod
    def add(self, connection: Connection, thread: int, texts: dict[bytes, str]) -> None:
        """Add texts of a thread, by digest their words; some may be there."""

    @abstractmethod
    def expression(self, query: Query) -> str:
        """A query in the language of `found`; it may find more than the query, and nothing less."""

    @abstractmethod
    def found(self) -> tuple[Select[Any], ColumnElement[Any]]:
        """A SELECT of thread ids and digests, of the texts that match the parameter ``words``; and by what it is to be
        ordered so that the best come first.
        """

    # -------------------------------------------------------------------------------------------------- the record

    def look(self, connection: Connection) -> Record | None:
        """What is noted of the index; None unless all that is stored is in it or in its queue.

        Raises:
            SchemaAheadError: A newer release made it.
        """
        return read_record(connection)

    def enqueue(self, connection: Connection, after: Last) -> Last | None:
        """Enqueue some of what was stored before; returns the last of it, or None if there is no more."""
        place = {"number": after.number, "count": self.enqueued}
        if after.of_blocks:
            place["of_thread"] = after.thread
        found = connection.execute(_BLOCKS_AFTER if after.of_blocks else _CHECKPOINTS_AFTER, place).all()
        sign = 1 if after.of_blocks else -1
        if found:
            sources = [{"thread": thread, "source": sign * number} for thread, number in found]
            connection.execute(self._insert_waiting, sources)
            return Last(*found[-1], after.of_blocks)
        return Last(0, 0, False) if after.of_blocks else None

    @cached_property
    def _insert_waiting(self) -> Insert:
        return self.insert_waiting()

    def has(self, connection: Connection, wanted: Record) -> bool:
        """Whether the index is there, whole, and noted as it is wanted."""
        noted = read_record(connection)
        return noted is not None and noted.plain_text >= wanted.plain_text and self.is_whole(connection)

    def record(self, connection: Connection, record: Record) -> bool:
        """Note that the index is there, if it is."""
        lock_record(connection)
        noted = read_record(connection)
        whole = self.is_whole(connection)
        if whole:
            write_record(connection, Record(record.plain_text or (noted is not None and noted.plain_text)))
        return whole

    def _remove(self, connection: Connection, prefix: str) -> None:
        lock_record(connection)
        delete_record(connection)
        for statement in self.removal(prefix):
            connection.exec_driver_sql(statement)

    # -------------------------------------------------------------------------------------------------- filling

    def last(self, connection: Connection) -> int | None:
        """The id of the last source in the queue, or None if it is empty."""
        found: int | None = connection.execute(_LAST, {}).all()[0][0]
        return found

    def waiting(self, connection: Connection, after: int, upto: int) -> list[Waiting]:
        """Some sources in the queue, with what is stored there."""
        place = {"after": after, "upto": upto, "count": self.page}
        return [Waiting(*row) for row in connection.execute(_WAITING, place)]

    def store(self, connection: Connection, filled: Sequence[Filled]) -> None:
        """Take sources into the index and out of the queue, but for those that somebody else has at the moment."""
        locked = self.lock(connection, {one.thread for one in filled})
        # Now that they are locked: what was written or taken in meanwhile is no longer there under the same id.
        still = {row for (row,) in connection.execute(_STILL, {"rows": [one.id for one in filled]})}
        filled = [one for one in filled if one.thread in locked and one.id in still]
        if not filled:
            return
        indexed = {tuple(row) for row in connection.execute(_INDEXED, {"rows": list({one.thread for one in filled})})}
        by_thread: dict[int, dict[bytes, str]] = defaultdict(dict)
        places: list[dict[str, Any]] = []
        for one in filled:
            if (one.thread, one.source) in indexed:
                place = {"of_thread": one.thread, "of_source": one.source}
                connection.execute(_FORGET_TEXTS, place)
                connection.execute(_FORGET_PLACES, place)
            by_thread[one.thread].update(one.words)
            places += [{"of_thread": one.thread, "of_source": one.source, "of_digest": key} for key in one.words]
        for thread, texts in by_thread.items():
            if texts:
                self.add(connection, thread, texts)
        if places:
            connection.execute(INSERT_PLACE, places)
        connection.execute(_DONE, {"rows": [one.id for one in filled]})

    # -------------------------------------------------------------------------------------------------- asking

    def clues(
        self,
        connection: Connection,
        dialect: Dialect,
        tenant: str,
        query: Query,
        pattern: str,
        limit: int | None,
        now: int,
    ) -> Clues:
        """See `Driver.clues`, in one statement: what is in the index, and the threads with something in the queue."""
        wanted = parse(pattern)
        place: dict[str, Any] = {"tenant": tenant, "now": now, "words": self.expression(query)}
        if not wanted.everything:
            place["pattern"] = dialect.pattern_text(wanted)
        if limit is not None:
            place["count"] = limit
        statement = _clues(self, dialect, not wanted.everything, limit is not None)
        rows = [Clue(*row) for row in connection.execute(statement, place)]
        return Clues(rows, limit is None or sum(one.digest is not None for one in rows) < limit)


@cache
def _clues(index: WordIndex, dialect: Dialect, matched: bool, limited: bool) -> CompoundSelect[Any]:
    seen = [THREADS.c.tenant == bindparam("tenant"), THREADS.c.head_version > 0, alive()]
    if matched:
        seen.append(dialect.matches(THREADS.c.thread_id))
    best, rank = index.found()
    best = best.where(*seen).order_by(rank, as_number(THREADS.c.updated_at).desc(), THREADS.c.thread_id)
    if limited:
        best = best.limit(bindparam("count", type_=BigInteger))
    queued = select(THREADS.c.thread_id, type_coerce(null(), LargeBinary)).where(
        THREADS.c.id.in_(select(QUEUE.c.thread)), *seen
    )
    return union_all(select(best.subquery("best")), queued)
