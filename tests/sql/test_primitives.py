"""The primitives as plain functions of a connection: inside a caller's transaction, joined blocks, cost, damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import pytest
import servers
from drivers.plans import KEY, base_of, document, grown, lines_stored, make_plan, ranges_of, tick
from sqlalchemy import Connection, Engine, create_engine, delete, event, func, select, update

from locus_store.core.driver import Base, Dropped, Exists, Key, NoParent, Plan, Saved, Stale, Stored
from locus_store.core.errors import CorruptCheckpointError, PayloadTooLargeError, UnsupportedFormatError
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.references import Range
from locus_store.sql import copying, reading, records, removal, sealing, sweeping
from locus_store.sql.dialects.base import Dialect
from locus_store.sql.dialects.sqlite import SQLITE, SQLiteDialect
from locus_store.sql.models import metadata
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, RECORDS, TERMS, THREADS

COPY = Key("default", "copy")
LATE = 2**62


@pytest.fixture(params=["legacy", "real"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Engines as hosts have them: the driver's own mode, where reading begins no transaction; SQLAlchemy's recipe."""
    servers.note_ran("sqlite", sqlite3.sqlite_version)
    made = create_engine(f"sqlite:///{tmp_path / 'host.db'}")
    if request.param == "real":

        @event.listens_for(made, "connect")
        def _no_begin(raw: Any, _record: Any) -> None:
            raw.isolation_level = None

        @event.listens_for(made, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

    metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection


def put(connection: Connection, plan: Plan, key: Key = KEY, codec: Codec | None = None) -> Saved:
    result = SQLITE.put(connection, key, plan, codec)
    assert isinstance(result, Saved), result
    return result


def get(connection: Connection, checkpoint_id: str | None = None, key: Key = KEY) -> Stored:
    stored = SQLITE.get(connection, key, checkpoint_id, tick())
    assert stored is not None
    return stored


def grow(connection: Connection, count: int, key: Key = KEY, **options: Any) -> list[Base]:
    """Checkpoints c1, c2, … of which each adds a line to what the one before has."""
    bases: list[Base] = []
    last: Saved | None = None
    for i in range(1, count + 1):
        reused = {1: [Range(1, last.block)]} if last else {}
        base = bases[-1] if bases else None
        plan = make_plan(f"c{i}", {1: [f'"{i}"']}, reused, base=base, key=key, **options)
        last = put(connection, plan, key, options.get("codec"))
        bases.append(grown(plan, last))
    return bases


def drop(connection: Connection, *ids: str, key: Key = KEY, codec: Codec | None = None) -> Dropped:
    return removal.drop(connection, SQLITE, key, ids, tick(), codec)


def lines(connection: Connection, checkpoint_id: str | None = None, key: Key = KEY) -> list[int]:
    return [int(line.strip('"')) for line in document(get(connection, checkpoint_id, key), key)[1]]


def rows(connection: Connection) -> dict[str, int]:
    tables = (THREADS, CHECKPOINTS, BLOCKS, TERMS, RECORDS)
    return {t.name.rpartition("_")[2]: connection.scalar(select(func.count()).select_from(t)) or 0 for t in tables}


NOTHING = {"threads": 0, "checkpoints": 0, "blocks": 0, "terms": 0, "records": 0}


class TestInACallersTransaction:
    def test_a_rollback_leaves_nothing(self, connection: Connection) -> None:
        grow(connection, 3, terms=(b"t" * 16,))
        records.put_records(connection, SQLITE, KEY, "s", [("k", b"v")], False, tick(), None)
        assert rows(connection)["checkpoints"] == 3
        connection.rollback()
        assert rows(connection) == NOTHING

    def test_reuse_after_a_rollback_is_refused(self, connection: Connection) -> None:
        base = grow(connection, 2)[-1]
        connection.commit()
        plan = make_plan("lost", {1: ['"mine"']}, {1: [Range(1, 2)]}, base=base)
        lost = grown(plan, put(connection, plan))
        connection.rollback()
        put(connection, make_plan("theirs", {1: ['"theirs"']}, {1: [Range(1, 2)]}, base=base))
        connection.commit()
        stale = make_plan("again", {1: ['"again"']}, {1: [Range(1, 3)]}, base=lost)
        assert SQLITE.put(connection, KEY, stale, None) == Stale()

    def test_nothing_is_committed(self, engine: Engine, connection: Connection) -> None:
        grow(connection, 1)
        with engine.connect() as other:
            assert rows(other) == NOTHING
        connection.commit()
        with engine.connect() as other:
            assert rows(other)["checkpoints"] == 1

    @pytest.mark.parametrize(
        ("options", "answer"),
        [
            ({"if_exists": "error"}, Exists()),
            ({"parent": "unknown"}, NoParent()),
            ({"base": Base(1, b"x" * 16, 1)}, Stale()),
            ({"expected_version": 7}, None),
        ],
    )
    @pytest.mark.parametrize("there", [True, False])
    def test_a_refusal_writes_nothing(
        self, engine: Engine, connection: Connection, options: dict[str, Any], answer: Any, there: bool
    ) -> None:
        if there:
            grow(connection, 1)
        elif "if_exists" in options:
            pytest.skip("there is nothing that could exist")
        connection.commit()
        before = dump(connection)
        result = SQLITE.put(connection, KEY, make_plan("c1", {1: ['"x"']}, **options), None)
        assert not isinstance(result, Saved)
        assert answer in (None, result)
        assert dump(connection) == before

    def test_what_another_connection_committed_is_seen(self, engine: Engine, connection: Connection) -> None:
        # In the driver's own mode the reads before the first write are in no transaction.
        grow(connection, 1)
        connection.commit()
        get(connection)
        connection.rollback()
        with engine.begin() as other:
            put(other, make_plan("theirs"))
        assert put(connection, make_plan("mine")).version == 3
        connection.commit()

    def test_surrogate_ids_stay_and_are_not_reused(self, connection: Connection) -> None:
        grow(connection, 2)
        thread = connection.scalar(select(THREADS.c.id))
        row = connection.scalar(select(CHECKPOINTS.c.id).where(CHECKPOINTS.c.checkpoint_id == "c1"))
        put(connection, make_plan("c1", {1: ['"x"']}))
        put(connection, make_plan("c1", {1: ['"y"']}, if_exists="in_place"))
        assert connection.scalar(select(CHECKPOINTS.c.id).where(CHECKPOINTS.c.checkpoint_id == "c1")) == row
        removal.drop(connection, SQLITE, KEY, None, tick(), None)
        assert rows(connection) == NOTHING
        grow(connection, 1)
        assert connection.scalar(select(THREADS.c.id)) not in (None, thread)


def dump(connection: Connection) -> list[Any]:
    return [connection.execute(select(t)).all() for t in (THREADS, CHECKPOINTS, BLOCKS, TERMS, RECORDS)]


class TestSealing:
    def block_rows(self, connection: Connection, key: Key = KEY) -> list[tuple[int, int]]:
        found = connection.execute(
            select(BLOCKS.c.block_number, BLOCKS.c.last_number)
            .select_from(BLOCKS.join(THREADS, THREADS.c.id == BLOCKS.c.thread))
            .where(THREADS.c.thread_id == key.thread_id)
            .order_by(BLOCKS.c.block_number)
        )
        return [(first, last) for first, last in found]

    def test_every_checkpoint_loads_as_before(self, connection: Connection) -> None:
        bases = grow(connection, 50)
        assert sealing.seal(connection, SQLITE, KEY) == 49
        assert self.block_rows(connection) == [(1, 50)]
        assert all([lines(connection, f"c{i}") == list(range(1, i + 1)) for i in range(1, 51)])
        plan = make_plan("c51", {1: ['"51"']}, {1: [Range(1, 50)]}, base=bases[-1])
        assert put(connection, plan).block == 51, "the epoch is as it was, and the numbers go on"
        assert lines(connection) == list(range(1, 52))

    def test_joined_blocks_are_left_alone(self, connection: Connection) -> None:
        grow(connection, 50)
        sealing.seal(connection, SQLITE, KEY)
        for i in range(51, 101):
            before = get(connection)
            put(connection, make_plan(f"c{i}", {1: [f'"{i}"']}, ranges_of(before), base=base_of(before)))
        assert sealing.seal(connection, SQLITE, KEY) == 49
        assert self.block_rows(connection) == [(1, 50), (51, 100)]
        assert lines(connection, "c77") == list(range(1, 78))
        assert sealing.seal(connection, SQLITE, KEY) == 0

    def test_few_large_or_parted_blocks_are_not_joined(self, connection: Connection) -> None:
        grow(connection, 9)
        assert sealing.seal(connection, SQLITE, KEY) == 0
        put(connection, make_plan("big", {1: ['"' + "x" * 70_000 + '"']}))
        for i in range(9):
            put(connection, make_plan(f"d{i}", {1: ['"x"']}))
        assert sealing.seal(connection, SQLITE, KEY) == 0, "the big one parts them"
        put(connection, make_plan("d9", {1: ['"x"']}))
        assert sealing.seal(connection, SQLITE, KEY) == 9
        assert sealing.seal(connection, SQLITE, Key("default", "unknown")) == 0

    def test_not_more_than_a_megabyte_together(self, connection: Connection) -> None:
        for i in range(40):
            put(connection, make_plan(f"c{i}", {1: ['"' + "x" * 60_000 + '"']}))
        sealing.seal(connection, SQLITE, KEY)
        sizes = connection.scalars(select(func.length(BLOCKS.c.payload))).all()
        assert sum(size > 1_000_000 for size in sizes) == 2
        assert len(sizes) == 2 + 6, "the last six are too few to be joined"
        assert max(sizes) < 1_048_576

    def test_a_joined_block_is_stripped(self, connection: Connection) -> None:
        for i in range(1, 13):
            put(connection, make_plan(f"c{i}", {1: [f'"{i}"']}))
        sealing.seal(connection, SQLITE, KEY)
        before = get(connection)
        assert drop(connection, "c1", "c5", "c12").epoch != before.epoch
        assert lines_stored(get(connection, "c4")) == {f'"{i}"' for i in (2, 3, 4, 6, 7, 8, 9, 10, 11)}
        assert lines(connection, "c7") == [7]
        assert self.block_rows(connection) == [(1, 12)]

    def test_a_copy_gets_no_later_entry(self, connection: Connection) -> None:
        grow(connection, 20)
        sealing.seal(connection, SQLITE, KEY)
        assert copying.clone(connection, SQLITE, KEY, COPY, 7, False, tick(), None) == "copied"
        copy = get(connection, key=COPY)
        assert lines_stored(copy, COPY) == {f'"{i}"' for i in range(1, 8)}
        removal.drop(connection, SQLITE, KEY, None, tick(), None)
        assert lines(connection, "c3", COPY) == [1, 2, 3]
        saved = put(connection, make_plan("d", {1: ['"8"']}, {1: [Range(1, 7)]}, base=base_of(copy), key=COPY), COPY)
        assert saved.block > self.block_rows(connection, COPY)[0][1], "numbers are disjoint"
        assert lines(connection, key=COPY) == list(range(1, 9))


class Statements:
    """What SQLAlchemy sent."""

    def __init__(self, engine: Engine) -> None:
        self.sent: list[tuple[str, Any]] = []
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        self.sent.append((statement, parameters))

    def of(self, call: Any, *arguments: Any) -> list[tuple[str, Any]]:
        self.sent.clear()
        call(*arguments)
        return list(self.sent)


class TestCost:
    def test_listing_reads_no_payloads(self, engine: Engine, connection: Connection) -> None:
        grow(connection, 3, terms=(b"t" * 16,), metadata=b"{}")
        statements = Statements(engine)
        for call in (
            lambda: reading.info(connection, KEY, None, tick()),
            lambda: reading.infos(connection, KEY, None, None, tick()),
            lambda: reading.threads(connection, SQLITE, "default", "t*", 10, 0, tick()),
            lambda: reading.find(connection, "default", [b"t" * 16], None, False, None, 0, tick()),
        ):
            sent = statements.of(call)
            assert len(sent) == 1
            assert "payload" not in sent[0][0]
            assert "ranges" not in sent[0][0]

    def test_a_load_reads_a_span_that_is_bounded_at_both_ends(self, engine: Engine, connection: Connection) -> None:
        grow(connection, 100)
        sealing.seal(connection, SQLITE, KEY)
        statements = Statements(engine)
        *_, (text, parameters) = statements.of(get, connection, "c100")
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).all()
        assert any("block_number>? AND block_number<?" in row[-1] for row in plan), plan
        assert not any("SCAN" in row[-1] and "CONSTANT" not in row[-1] for row in plan), plan

    @pytest.mark.parametrize("dropped", [["c50"], ["c1", "c2", "c3"], ["c97", "c98", "c99"], ["c100"]])
    def test_a_removal_looks_at_neighbours_first(
        self, engine: Engine, connection: Connection, dropped: list[str]
    ) -> None:
        grow(connection, 100)
        epoch = get(connection).epoch
        sent = Statements(engine).of(drop, connection, *dropped)
        others = any("last_block >=" in text for text, _ in sent)
        # Only the newest has an entry that its neighbours do not have.
        assert others == (dropped == ["c100"])
        assert (get(connection).epoch == epoch) == (dropped != ["c100"])
        assert len(sent) < 20

    def test_a_1001_ids(self, connection: Connection) -> None:
        for i in range(1101):
            put(connection, make_plan(f"c{i}", {1: [f'"{i}"']} if i % 10 == 0 else None))
        assert drop(connection, *[f"c{i}" for i in range(1001)]).count == 1001
        assert rows(connection)["checkpoints"] == 100
        assert rows(connection)["blocks"] == 10


class TestDamage:
    """A block that must be rewritten but cannot be read."""

    @pytest.fixture
    def damaged(self, connection: Connection) -> Connection:
        put(connection, make_plan("c1", {1: ['"a"', '"b"']}))
        before = get(connection)
        put(connection, make_plan("c2", {}, {1: [Range(1, 1, 0, 1)]}, base=base_of(before)))
        connection.execute(update(BLOCKS).values(payload=b"1 damaged"))
        connection.commit()
        return connection

    @pytest.mark.parametrize("how", ["drop", "replace", "keep"])
    def test_it_stays_as_it_is_while_something_refers_to_it(self, damaged: Connection, how: str) -> None:
        remove = {
            "drop": lambda: drop(damaged, "c1"),
            "replace": lambda: put(damaged, make_plan("c1", {1: ['"new"']})),
            "keep": lambda: put(damaged, make_plan("c3", {1: ['"new"']}, keep=2)),
        }[how]
        remove()
        assert dict(damaged.execute(select(BLOCKS.c.block_number, BLOCKS.c.payload)).all())[1] == b"1 damaged"

    def test_it_goes_when_nothing_refers_to_it(self, damaged: Connection) -> None:
        put(damaged, make_plan("c3", {1: ['"new"']}))
        drop(damaged, "c1", "c2")
        assert [number for (number,) in damaged.execute(select(BLOCKS.c.block_number))] == [2]

    def test_a_newer_format(self, damaged: Connection) -> None:
        damaged.execute(update(BLOCKS).values(payload=b"1 9 j - 1:2 4 00000000\nabcd"))
        with pytest.raises(UnsupportedFormatError):
            drop(damaged, "c1")

    def test_ranges(self, damaged: Connection) -> None:
        damaged.execute(update(CHECKPOINTS).values(ranges=b"[[1,"))
        with pytest.raises(CorruptCheckpointError):
            drop(damaged, "c1")

    def test_a_whole_thread_can_be_removed_all_the_same(self, damaged: Connection) -> None:
        assert removal.drop(damaged, SQLITE, KEY, None, tick(), None).count == 2
        assert rows(damaged) == NOTHING


class TestSweeping:
    def test_what_nothing_refers_to(self, connection: Connection) -> None:
        grow(connection, 3, terms=(b"t" * 16,))
        put(connection, make_plan("other"), Key("default", "clean"))
        thread = connection.scalar(select(THREADS.c.id).where(THREADS.c.thread_id == "t"))
        connection.execute(BLOCKS.insert(), {"thread": thread, "block_number": 9, "last_number": 9, "payload": b"9 x"})
        connection.execute(TERMS.insert(), {"thread": thread, "version": 7, "term": b"x" * 16})
        epoch = get(connection).epoch
        names, after = sweeping.candidates(connection, "default", 0, 1, tick(), "")
        assert (names, after) == (["t"], "t")
        assert sweeping.trim_thread(connection, SQLITE, KEY, 0, 1, tick(), None) == (0, 1, ())
        assert sweeping.candidates(connection, "default", 0, 1, tick(), "").names == []
        assert sweeping.candidates(connection, "default", 0, 1, tick(), "t") == ([], None)
        assert rows(connection)["terms"] == 3
        assert rows(connection)["blocks"] == 3
        assert get(connection).epoch != epoch
        assert lines(connection) == [1, 2, 3]

    def test_old_ones_are_found_without_a_lock(self, connection: Connection) -> None:
        grow(connection, 3)
        put(connection, make_plan("one"), Key("default", "single"))
        assert sweeping.candidates(connection, "default", LATE, 3, tick(), "").names == []
        assert sweeping.candidates(connection, "default", LATE, 1, tick(), "").names == ["t"]
        assert sweeping.candidates(connection, "default", LATE, 0, tick(), "").names == ["single", "t"]
        assert sweeping.candidates(connection, "acme", LATE, 0, tick(), "").names == []


class Bound:
    """A codec whose bytes belong to one thread."""

    name = "bound"
    bound = True

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return repr(thread).encode() + b"|" + compress(data)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        owner, _, packed = data.partition(b"|")
        if owner != repr(thread).encode():
            raise ValueError("another thread's")
        return decompress(packed)


@pytest.mark.parametrize("upto", [None, 7])
def test_a_copy_is_bound_anew(connection: Connection, upto: int | None) -> None:
    codec = Bound()
    grow(connection, 60, codec=codec)
    sealing.seal(connection, SQLITE, KEY)
    assert copying.clone(connection, SQLITE, KEY, COPY, upto, False, tick(), codec) == "copied"
    for i in range(1, (upto or 60) + 1):
        found = document(get(connection, f"c{i}", COPY), COPY, codec)
        assert found[1] == [f'"{n}"' for n in range(1, i + 1)]
    assert document(get(connection), KEY, codec)[1][-1] == '"60"'


class TestALoadInTwoStatements:
    """On databases where each statement sees a state of its own."""

    class Generic(SQLiteDialect):
        snapshot_reads = False

    def interrupted(self, connection: Connection, act: Any, times: int) -> Any:
        """A connection on which something happens before every second statement, so many times."""

        class Interrupted:
            calls = 0

            def execute(self, *arguments: Any) -> Any:
                self.calls += 1
                if self.calls % 2 == 0 and self.calls // 2 <= times:
                    act(self.calls)
                return connection.execute(*arguments)

        return Interrupted()

    def get(self, connection: Any, checkpoint_id: str | None = None) -> Stored | None:
        dialect: Dialect = self.Generic()
        return dialect.get(connection, KEY, checkpoint_id, tick())

    def test_undisturbed(self, connection: Connection) -> None:
        grow(connection, 12)
        assert document(self.get(connection))[1][-1] == '"12"'
        sealing.seal(connection, SQLITE, KEY)
        assert document(self.get(connection, "c5"))[1] == [f'"{i}"' for i in range(1, 6)]

    def test_joined_in_between(self, connection: Connection) -> None:
        grow(connection, 12)
        between = self.interrupted(connection, lambda _: sealing.seal(connection, SQLITE, KEY), 1)
        assert len(document(self.get(between))[1]) == 12

    def test_removed_in_between(self, connection: Connection) -> None:
        for i in range(1, 7):
            put(connection, make_plan(f"c{i}", {1: [f'"{i}"']}))
        between = self.interrupted(connection, lambda call: drop(connection, f"c{7 - call // 2}"), 2)
        assert document(self.get(between)) == {1: ['"4"']}
        between = self.interrupted(connection, lambda _: drop(connection, "c2"), 1)
        assert self.get(between, "c2") is None

    def test_removed_in_between_again_and_again(self, connection: Connection) -> None:
        for i in range(1, 42):
            put(connection, make_plan(f"c{i}", {1: [f'"{i}"']}))
        between = self.interrupted(connection, lambda call: drop(connection, f"c{42 - call // 2}"), 40)
        assert document(self.get(between)) == {1: ['"1"']}

    def test_blocks_that_are_lost_are_not_waited_for(self, connection: Connection) -> None:
        put(connection, make_plan("c", {1: ['"1"']}))
        connection.execute(delete(BLOCKS))
        looked = self.interrupted(connection, lambda _: None, 0)
        found = self.get(looked)
        assert found is not None
        assert found.blocks == []
        assert looked.calls == 4

    def test_replaced_in_between(self, connection: Connection) -> None:
        put(connection, make_plan("c", {1: ['"old"']}))
        new = make_plan("c", {1: ['"new"']}, if_exists="in_place")
        between = self.interrupted(connection, lambda _: put(connection, new), 1)
        assert document(self.get(between)) == {1: ['"new"']}


@pytest.mark.parametrize("what", ["block", "payload"])
async def test_a_piece_that_is_too_large(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    from locus_store.backends.sqlite import SQLiteDriver

    monkeypatch.setattr(SQLiteDialect, "max_piece", 1000)
    driver = SQLiteDriver(":memory:")
    fits = make_plan("c", {1: ['"' + "x" * 900 + '"']})
    assert isinstance(await driver.put(KEY, fits), Saved)
    large = make_plan("d", {1: ['"' + "x" * 1000 + '"']})
    if what == "payload":
        large = make_plan("x" * 1000)
    with pytest.raises(PayloadTooLargeError) as caught:
        await driver.put(KEY, large)
    assert caught.value.size > caught.value.limit > 900
    assert isinstance(await driver.get(KEY, "c", now=tick()), Stored)
    await driver.aclose()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("[a]*", {"[a]b"}),
        ("[*", {"[a]b"}),
        ("*[a]*", {"[a]b"}),
        ("?a?b", {"[a]b"}),
        ("A*", {"Ab"}),
        ("a*", {"ab", "a\U0010ffffz"}),
        ("a\U0010ffff*", {"a\U0010ffffz"}),
        ("\U0010ffff*", {"\U0010ffff"}),
        ("?", {"\U0010ffff", "é"}),
        ("é", {"é"}),
        ("a\0*", set()),
        ("a" * 600 + "*", set()),
        ("*a" * 500, set()),
        ("\ud7ff*", {"\ud7ffx"}),
    ],
)
def test_patterns(connection: Connection, pattern: str, expected: set[str]) -> None:
    for name in ("[a]b", "Ab", "ab", "a\U0010ffffz", "\U0010ffff", "é", "\ud7ffx"):
        put(connection, make_plan("c"), Key("default", name))
    found = reading.threads(connection, SQLITE, "default", pattern, None, 0, tick())
    assert {name for name, _ in found} == expected

    class Inexact(SQLiteDialect):
        exact_patterns = False

    again = reading.threads(connection, Inexact(), "default", pattern, None, 0, tick())
    assert again == found
    assert reading.threads(connection, Inexact(), "default", pattern, 1, 1, tick()) == found[1:2]
