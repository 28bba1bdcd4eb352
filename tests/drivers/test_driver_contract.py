"""What `locus_store.core.driver` promises of every driver.

A new driver joins by an entry in `driver_list.DRIVERS`; from there on `test_same_as_memory.py` compares it with
`MemoryDriver` as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import pytest
from drivers.driver_list import PARAMS, OpenDriver
from drivers.plans import (
    KEY,
    Lists,
    base_of,
    document,
    grown,
    lines_stored,
    make_plan,
    ranges_of,
    tick,
)

from locus_store.core.driver import (
    Base,
    Conflict,
    Driver,
    Dropped,
    Exists,
    Info,
    Key,
    NoParent,
    Plan,
    Saved,
    Stale,
    Stored,
)
from locus_store.core.frames import ThreadName
from locus_store.core.ids import new_epoch
from locus_store.core.references import Range

LATE = sys.maxsize // 2
Make = Callable[..., Driver]


@pytest.fixture(params=PARAMS)
async def make(request: pytest.FixtureRequest, tmp_path: Path, open_driver: OpenDriver) -> AsyncIterator[Make]:
    """Makes drivers, each with a storage of its own."""
    made: list[Driver] = []

    def new(codec: Any = None) -> Driver:
        made.append(open_driver(request.param, tmp_path / f"store{len(made)}", codec))
        return made[-1]

    yield new
    for driver in made:
        await driver.aclose()


@pytest.fixture
def driver(make: Make) -> Driver:
    return make()


@pytest.fixture
def incremental(driver: Driver) -> None:
    """For tests of what is stored once for several checkpoints."""
    if not driver.capabilities.incremental:
        pytest.skip("whole documents are stored")


async def save(driver: Driver, plan: Plan, key: Key = KEY) -> Saved:
    result = await driver.put(key, plan)
    assert isinstance(result, Saved), result
    return result


async def grow(driver: Driver, *steps: tuple[str, Lists], key: Key = KEY, **options: Any) -> list[Base]:
    """Save checkpoints of which each adds lines to what the one before has."""
    bases: list[Base] = []
    for checkpoint_id, new in steps:
        before = await driver.get(key, None, now=tick())
        reused = ranges_of(before) if before else {}
        if before is not None and not driver.capabilities.incremental:
            lists = document(before, key)
            new, reused = {n: [*lists.get(n, []), *new.get(n, [])] for n in sorted({*lists, *new})}, {}
        base = base_of(before) if before and reused else None
        plan = make_plan(checkpoint_id, new, reused, base=base, key=key, **options)
        bases.append(grown(plan, await save(driver, plan, key)))
    return bases


def keeping(
    driver: Driver,
    checkpoint_id: str,
    kept: Lists,
    new: Lists,
    base: Base,
    reused: Mapping[int, Sequence[Range]],
    **options: Any,
) -> Plan:
    """A save whose lists begin with lines of its base, and go on with new ones.

    Args:
        driver: Where it goes. If it stores whole documents, the lines are in the plan again.
        checkpoint_id: Its id.
        kept: Those lines of the base.
        new: The new ones.
        base: The base.
        reused: Where the lines of the base are, if they are stored once.
        options: Others of the plan.
    """
    if driver.capabilities.incremental:
        return make_plan(checkpoint_id, new, reused, base=base, **options)
    lists = {n: [*kept.get(n, []), *new.get(n, [])] for n in sorted({*kept, *new})}
    return make_plan(checkpoint_id, lists, **options)


def block(driver: Driver, number: int) -> int:
    """The number of a thread's block; where whole documents are stored, each has one of its own."""
    return number if driver.capabilities.incremental else 1


def freed(driver: Driver, blocks: int) -> int:
    """How many blocks a sweep says it removed; where whole documents are stored they are part of the checkpoints."""
    return blocks if driver.capabilities.incremental else 0


async def load(driver: Driver, checkpoint_id: str | None = None, key: Key = KEY, now: int | None = None) -> Any:
    stored = await driver.get(key, checkpoint_id, now=now or tick())
    return None if stored is None else document(stored, key)


async def listed(driver: Driver, key: Key = KEY, now: int | None = None) -> list[Info]:
    return await driver.infos(key, before=None, limit=None, now=now or tick())


async def ids(driver: Driver, key: Key = KEY) -> list[str]:
    return [i.checkpoint_id for i in await listed(driver, key)]


async def names(driver: Driver, tenant: str = "default", pattern: str = "*", **options: Any) -> list[str]:
    options = {"limit": None, "offset": 0, "now": tick()} | options
    return [name for name, _ in await driver.threads(tenant, pattern, **options)]


async def found(driver: Driver, *terms: bytes, **options: Any) -> list[str]:
    options = {"thread_id": None, "newest_only": True, "limit": None, "offset": 0, "now": tick()} | options
    return [i.checkpoint_id for i in await driver.find(options.pop("tenant", "default"), terms, **options)]


def a(*lines: str) -> Lists:
    return {1: [f'"{line}"' for line in lines]}


def out(*lines: str) -> dict[int, list[str]]:
    return {1: [f'"{line}"' for line in lines]}


class TestNothingThere:
    async def test_reads(self, driver: Driver) -> None:
        now = tick()
        assert await driver.get(KEY, None, now=now) is None
        assert await driver.get(KEY, "c", now=now) is None
        assert await driver.info(KEY, None, now=now) is None
        assert await driver.infos(KEY, before=None, limit=None, now=now) == []
        assert await driver.threads("default", "*", limit=None, offset=0, now=now) == []
        assert await found(driver) == []
        assert await driver.records(KEY, None, now=now) == []

    async def test_removals(self, driver: Driver) -> None:
        assert await driver.drop(KEY, None, now=tick()) == Dropped(0, None, None)
        assert await driver.drop(KEY, ["c"], now=tick()) == Dropped(0, None, None)
        assert await driver.clone(KEY, Key("default", "u"), upto=None, overwrite=True, now=tick()) == "missing"
        assert await driver.trim("default", older_than=LATE, keep_last=1, now=tick()) == (0, 0, ())
        assert await driver.drop_records(KEY, None, now=tick()) == 0


class TestPut:
    async def test_first(self, driver: Driver) -> None:
        plan = make_plan("c1", a("x"), metadata=b'{"k":1}')
        saved = await save(driver, plan)
        assert (saved.version, saved.block) == (1, 1)
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert document(stored) == out("x")
        assert (stored.checkpoint_id, stored.version, stored.stamp) == ("c1", 1, plan.stamp)
        assert (stored.epoch, stored.own_block, stored.ranges) == (saved.epoch, 1, plan.ranges)
        assert stored.payload == plan.payload
        assert await driver.info(KEY, "c1", now=tick()) == Info(
            "t", "c1", 1, None, plan.now, b'{"k":1}', plan.size, plan.now
        )

    async def test_reuses_blocks(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y", "z")), ("c3", {}), ("c4", a("w")))
        assert await load(driver) == out("x", "y", "z", "w")
        assert await load(driver, "c3") == await load(driver, "c2") == out("x", "y", "z")
        assert await load(driver, "c1") == out("x")
        assert [i.parent for i in await listed(driver)] == ["c3", "c2", "c1", None]
        assert [i.version for i in await listed(driver)] == [4, 3, 2, 1]

    async def test_without_any_block(self, driver: Driver) -> None:
        saved = await save(driver, make_plan("c1"))
        assert saved.block == 0
        assert await load(driver) == {}

    @pytest.mark.usefixtures("incremental")
    async def test_a_load_reads_only_its_span(self, driver: Driver) -> None:
        await grow(driver, *[(f"c{i}", a(f"x{i}")) for i in range(1, 7)])
        base = base_of(await driver.get(KEY, None, now=tick()))  # type: ignore[arg-type]
        await save(driver, make_plan("d", {}, {1: [Range(3, 4)]}, base=base))
        stored = await driver.get(KEY, "d", now=tick())
        assert stored is not None
        assert document(stored) == out("x3", "x4")
        assert lines_stored(stored) == {'"x3"', '"x4"'}

    async def test_times_never_go_back(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", now=5000))
        await save(driver, make_plan("c2", now=5000))
        await save(driver, make_plan("c3", now=10))
        assert [(i.created_at, i.updated_at) for i in await listed(driver)] == [
            (5002, 5002),
            (5001, 5002),
            (5000, 5002),
        ]

    async def test_own_earlier_attempt(self, driver: Driver) -> None:
        plan = make_plan("c1", a("x"), expected_version=0, if_exists="error")
        first = await save(driver, plan)
        await save(driver, make_plan("c2"))
        assert await save(driver, plan) == first
        assert await ids(driver) == ["c2", "c1"]

    @pytest.mark.parametrize("expected", [0, 1, 3])
    async def test_expected_version(self, driver: Driver, expected: int) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")))
        assert await driver.put(KEY, make_plan("c3", a("z"), expected_version=expected)) == Conflict(2)
        assert await ids(driver) == ["c2", "c1"]
        await save(driver, make_plan("c3", a("z"), expected_version=2))
        assert await driver.put(Key("default", "u"), make_plan("c", expected_version=1)) == Conflict(0)
        await save(driver, make_plan("c", expected_version=0), Key("default", "u"))

    async def test_the_expected_version_is_the_heads(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")))
        await driver.drop(KEY, ["c2"], now=tick())
        assert await driver.put(KEY, make_plan("c3", expected_version=2)) == Conflict(1)
        assert (await save(driver, make_plan("c3", expected_version=1))).version == 3

    async def test_exists(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", a("x")))
        assert await driver.put(KEY, make_plan("c1", a("y"), if_exists="error")) == Exists()
        assert await load(driver) == out("x")
        await save(driver, make_plan("c2", if_exists="error"))

    async def test_parent(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        await save(driver, make_plan("d", parent="c1"))
        assert (await listed(driver))[0].parent == "c1"
        assert await driver.put(KEY, make_plan("e", parent="nobody")) == NoParent()
        assert await driver.put(Key("default", "u"), make_plan("e", parent="c1")) == NoParent()
        await driver.drop(KEY, ["c1"], now=tick())
        assert (await listed(driver))[0].parent is None

    async def test_order_of_the_checks(self, driver: Driver) -> None:
        await save(driver, make_plan("c1"))
        stale = Base(1, b"?" * 16, new_epoch())
        bad: dict[str, Any] = {"expected_version": 7, "if_exists": "error", "parent": "nobody"}
        reused = {1: [Range(1, 1)]}
        assert await driver.put(KEY, make_plan("c1", {}, reused, base=stale, **bad)) == Conflict(1)
        bad["expected_version"] = 1
        assert await driver.put(KEY, make_plan("c1", {}, reused, base=stale, **bad)) == Exists()
        bad["if_exists"] = "newest"
        assert await driver.put(KEY, make_plan("c1", {}, reused, base=stale, **bad)) == NoParent()
        bad["parent"] = "c1"
        assert await driver.put(KEY, make_plan("c1", {}, reused, base=stale, **bad)) == Stale()

    async def test_same_id_in_two_threads(self, driver: Driver) -> None:
        other = Key("default", "u")
        await save(driver, make_plan("c", a("x")))
        await save(driver, make_plan("c", a("y"), key=other), other)
        assert await load(driver, "c") == out("x")
        assert await load(driver, "c", other) == out("y")


class TestReplace:
    async def test_becomes_newest(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        plan = make_plan("c1", a("new"), size=77)
        assert (await save(driver, plan)).version == 4
        assert await load(driver) == await load(driver, "c1") == out("new")
        shown = await listed(driver)
        assert [(i.checkpoint_id, i.version, i.parent) for i in shown] == [
            ("c1", 4, "c3"),
            ("c3", 3, "c2"),
            ("c2", 2, None),
        ]
        assert (shown[0].created_at, shown[0].size) == (plan.now, 77)
        assert await load(driver, "c3") == out("x", "y", "z")

    async def test_the_head_keeps_its_former_parent(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")))
        await save(driver, make_plan("c2", a("n")))
        assert [(i.checkpoint_id, i.version, i.parent) for i in await listed(driver)] == [
            ("c2", 3, "c1"),
            ("c1", 1, None),
        ]
        await save(driver, make_plan("c2", a("n"), parent="c2"))
        assert (await listed(driver))[0].parent == "c1"

    async def test_the_only_one(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x")))
        saved = await save(driver, keeping(driver, "c1", a("x"), a("y"), base, {1: [Range(1, 1)]}))
        assert (saved.version, saved.block, saved.epoch) == (2, block(driver, 2), base.epoch)
        assert await load(driver) == out("x", "y")
        assert [i.parent for i in await listed(driver)] == [None]

    async def test_frees_what_only_the_old_content_used(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x", "y")))
        plan = keeping(driver, "c1", a("x"), a("z"), base, {1: [Range(1, 1, 0, 1)]})
        saved = await save(driver, plan)
        assert (saved.epoch != base.epoch) == driver.capabilities.incremental
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert stored.epoch == saved.epoch
        assert document(stored) == out("x", "z")
        assert lines_stored(stored) == {'"x"', '"z"'}

    async def test_in_place(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")), now=1000)
        plan = make_plan("c2", a("new"), if_exists="in_place", metadata=b"{}", size=5, now=9000)
        saved = await save(driver, plan)
        assert (saved.version, saved.block) == (2, block(driver, 4))
        shown = await listed(driver)
        assert [(i.checkpoint_id, i.version, i.parent) for i in shown] == [
            ("c3", 3, "c2"),
            ("c2", 2, "c1"),
            ("c1", 1, None),
        ]
        assert (shown[1].created_at, shown[1].updated_at) == (1001, 9000)
        assert (shown[1].metadata, shown[1].size) == (b"{}", 5)
        assert await load(driver, "c2") == out("new")
        assert await load(driver) == out("x", "y", "z")
        stored = await driver.get(KEY, "c2", now=tick())
        assert stored is not None
        assert stored.stamp == plan.stamp

    async def test_in_place_of_a_new_id(self, driver: Driver) -> None:
        await save(driver, make_plan("c1"))
        assert (await save(driver, make_plan("c2", if_exists="in_place"))).version == 2

    async def test_in_place_makes_bases_stale(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x")))
        await save(driver, keeping(driver, "c1", a("x"), {}, base, {1: [Range(1, 1)]}, if_exists="in_place"))
        assert await driver.put(KEY, make_plan("c2", {}, {1: [Range(1, 1)]}, base=base)) == Stale()


class TestBase:
    async def test_another_stamp_or_epoch(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x")))
        reused = {1: [Range(1, 1)]}
        for wrong in (
            base._replace(version=2),
            base._replace(stamp=b"?" * 16),
            base._replace(epoch=base.epoch ^ 2),
        ):
            assert await driver.put(KEY, make_plan("c2", a("y"), reused, base=wrong)) == Stale()
        assert await driver.put(Key("default", "u"), make_plan("c2", a("y"), reused, base=base)) == Stale()
        assert await ids(driver) == ["c1"]
        saved = await save(driver, keeping(driver, "c2", a("x"), a("y"), base, reused))
        assert saved.block == block(driver, 2)
        assert await load(driver) == out("x", "y")

    async def test_deleted_and_made_again(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x")))
        await driver.drop(KEY, None, now=tick())
        [again] = await grow(driver, ("c1", a("other")))
        assert (again.version, again.epoch == base.epoch) == (1, False)
        assert await driver.put(KEY, make_plan("c2", {}, {1: [Range(1, 1)]}, base=base)) == Stale()

    async def test_an_older_base(self, driver: Driver) -> None:
        first, *_ = await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        await save(driver, keeping(driver, "d", a("x"), a("w"), first, {1: [Range(1, 1)]}))
        assert await load(driver) == out("x", "w")

    async def test_removals_that_free_nothing_leave_the_epoch(self, driver: Driver) -> None:
        *_, base = await grow(driver, ("c1", a("x")), ("c2", {}), ("c3", {}), ("c4", a("y")))
        dropped = await driver.drop(KEY, ["c1", "c2", "c3"], now=tick())
        assert dropped == Dropped(3, base.epoch, base.epoch)
        await save(driver, keeping(driver, "c5", a("x", "y"), {}, base, {1: [Range(1, 2)]}))
        assert await load(driver) == out("x", "y")


class TestKeep:
    async def test_keeps_the_newest(self, driver: Driver) -> None:
        await grow(driver, *[(f"c{i}", a(f"x{i}")) for i in range(6)], keep=2)
        assert await ids(driver) == ["c5", "c4"]
        assert await load(driver) == out(*[f"x{i}" for i in range(6)])

    async def test_frees_blocks(self, driver: Driver) -> None:
        for i in range(4):
            await save(driver, make_plan(f"c{i}", a(f"x{i}"), keep=2))
        [base] = await grow(driver, ("c4", a("y")), keep=2)
        await save(driver, keeping(driver, "c5", a("x3", "y"), {}, base, {1: [Range(4, 5)]}, keep=1))
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert lines_stored(stored) == {'"x3"', '"y"'}
        assert await ids(driver) == ["c5"]

    async def test_replacing_with_keep(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        await save(driver, make_plan("c1", a("n"), keep=2))
        assert await ids(driver) == ["c1", "c3"]

    async def test_what_was_just_saved_in_place_stays(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        await save(driver, make_plan("c1", a("n"), keep=1, if_exists="in_place"))
        assert await ids(driver) == ["c3", "c1"]


class TestDrop:
    async def test_whole_thread(self, driver: Driver) -> None:
        *_, base = await grow(driver, ("c1", a("x")), ("c2", a("y")))
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None)
        assert await driver.drop(KEY, None, now=tick()) == Dropped(2, base.epoch, None)
        assert await driver.drop(KEY, None, now=tick()) == Dropped(0, None, None)
        assert await load(driver) is None
        assert await names(driver) == []
        assert await driver.records(KEY, None, now=tick()) == []
        assert (await save(driver, make_plan("c1"))).version == 1

    async def test_the_last_checkpoint_takes_the_thread(self, driver: Driver) -> None:
        *_, base = await grow(driver, ("c1", a("x")), ("c2", a("y")))
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None)
        assert await driver.drop(KEY, ["c2", "c1", "c2", "nobody"], now=tick()) == Dropped(2, base.epoch, None)
        assert await names(driver) == []
        assert await driver.records(KEY, None, now=tick()) == []

    async def test_unknown_ids(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x")))
        assert await driver.drop(KEY, ["nobody"], now=tick()) == Dropped(0, base.epoch, base.epoch)
        assert await driver.drop(KEY, [], now=tick()) == Dropped(0, base.epoch, base.epoch)

    async def test_the_head_goes_back_and_numbers_do_not(self, driver: Driver) -> None:
        *_, base = await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        dropped = await driver.drop(KEY, ["c3"], now=tick())
        assert dropped.count == 1
        assert dropped.epoch_before == base.epoch
        assert (dropped.epoch != base.epoch) == driver.capabilities.incremental
        assert await load(driver) == out("x", "y")
        saved = await save(driver, make_plan("c4", a("w")))
        assert (saved.version, saved.block, saved.epoch) == (4, block(driver, 4), dropped.epoch)
        assert (await listed(driver))[0].parent == "c2"

    async def test_updated_at_does_not_go_back_with_the_head(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), now=1000)
        await grow(driver, ("c2", a("y")), now=5000)
        await driver.drop(KEY, ["c2"], now=6000)
        assert (await listed(driver))[0].updated_at == 5000
        assert await driver.threads("default", "*", limit=None, offset=0, now=6000) == [("t", 5000)]
        await save(driver, make_plan("c3", now=2000))
        assert (await listed(driver))[0].created_at == 5001

    async def test_a_block_that_is_used_in_part_is_rewritten(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", {1: ['"x"', '"y"', '"z"'], 2: ['"p"', '"q"']}))
        reused = {1: [Range(1, 1, 1, 2)], 2: [Range(1, 1, 1)]}
        await save(driver, keeping(driver, "c2", {1: ['"y"'], 2: ['"q"']}, {}, base, reused))
        dropped = await driver.drop(KEY, ["c1"], now=tick())
        assert (dropped.epoch != base.epoch) == driver.capabilities.incremental
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert document(stored) == {1: ['"y"'], 2: ['"q"']}
        assert lines_stored(stored) == {'"y"', '"q"'}

    async def test_a_middle_checkpoint(self, driver: Driver) -> None:
        first, *_ = await grow(driver, ("c1", a("x")), ("c2", a("y")))
        await save(driver, keeping(driver, "c3", a("x"), a("z"), first, {1: [Range(1, 1)]}))
        await driver.drop(KEY, ["c2"], now=tick())
        stored = await driver.get(KEY, None, now=tick())
        assert stored is not None
        assert document(stored) == out("x", "z")
        assert lines_stored(stored) == {'"x"', '"z"'}
        assert await ids(driver) == ["c3", "c1"]

    async def test_many(self, driver: Driver) -> None:
        await grow(driver, *[(f"c{i}", a(f"x{i}")) for i in range(120)])
        dropped = await driver.drop(KEY, [f"c{i}" for i in range(120) if i % 3], now=tick())
        assert dropped.count == 80
        assert await ids(driver) == [f"c{i}" for i in reversed(range(0, 120, 3))]
        for i in range(0, 120, 3):
            assert await load(driver, f"c{i}") == out(*[f"x{j}" for j in range(i + 1)])


class TestInfos:
    async def test_before_and_limit(self, driver: Driver) -> None:
        await grow(driver, *[(f"c{i}", a(f"x{i}")) for i in range(1, 6)])
        page = await driver.infos(KEY, before=None, limit=2, now=tick())
        assert [i.checkpoint_id for i in page] == ["c5", "c4"]
        page = await driver.infos(KEY, before=page[-1].version, limit=2, now=tick())
        assert [(i.checkpoint_id, i.parent) for i in page] == [("c3", "c2"), ("c2", "c1")]
        page = await driver.infos(KEY, before=2, limit=None, now=tick())
        assert [i.checkpoint_id for i in page] == ["c1"]
        assert await driver.infos(KEY, before=1, limit=None, now=tick()) == []
        assert await driver.infos(KEY, before=None, limit=0, now=tick()) == []

    async def test_info(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")))
        newest, oldest = await listed(driver)
        assert await driver.info(KEY, None, now=tick()) == await driver.info(KEY, "c2", now=tick()) == newest
        assert await driver.info(KEY, "c1", now=tick()) == oldest
        assert await driver.info(KEY, "nobody", now=tick()) is None

    async def test_complete(self, driver: Driver) -> None:
        for i in range(1001):
            await save(driver, make_plan(f"c{i}"))
        assert await ids(driver) == [f"c{i}" for i in reversed(range(1001))]
        assert (await driver.drop(KEY, None, now=tick())).count == 1001
        assert await ids(driver) == []

    async def test_case_34_a_frozen_clock(self, driver: Driver) -> None:
        await save(driver, make_plan("b", now=1000))
        await save(driver, make_plan("a", now=1000))
        assert await ids(driver) == ["a", "b"]


class TestThreads:
    async def test_order_and_pages(self, driver: Driver) -> None:
        for i, name in enumerate(["one", "two", "three", "four"]):
            key = Key("default", name)
            await save(driver, make_plan("c", key=key, now=1000 if i < 2 else 2000), key)
        assert await names(driver) == ["four", "three", "one", "two"]
        await save(driver, make_plan("d", key=Key("default", "one"), now=3000), Key("default", "one"))
        assert await names(driver) == ["one", "four", "three", "two"]
        assert await names(driver, limit=2) == ["one", "four"]
        assert await names(driver, limit=2, offset=1) == ["four", "three"]
        assert await names(driver, limit=None, offset=3) == ["two"]
        assert await names(driver, limit=5, offset=4) == []

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*", {"user_1", "userX1", "100%", "a\\b", "User_1", "[u]", "é*", "user_12"}),
            ("%", {"user_1", "userX1", "100%", "a\\b", "User_1", "[u]", "é*", "user_12"}),
            ("user_*", {"user_1", "user_12"}),
            ("user_1", {"user_1"}),
            ("user_?", {"user_1"}),
            ("?ser?1", {"user_1", "userX1", "User_1"}),
            ("100\\%", {"100%"}),
            ("a\\b", {"a\\b"}),
            ("[u]", {"[u]"}),
            ("é\\*", {"é*"}),
            ("*2", {"user_12"}),
            ("nobody", set()),
        ],
    )
    async def test_case_31_patterns(self, driver: Driver, pattern: str, expected: set[str]) -> None:
        for name in ("user_1", "userX1", "100%", "a\\b", "User_1", "[u]", "é*", "user_12"):
            key = Key("default", name)
            await save(driver, make_plan("c", key=key), key)
        assert set(await names(driver, pattern=pattern)) == expected

    async def test_tenants_are_apart(self, driver: Driver) -> None:
        other = Key("acme", "t")
        await save(driver, make_plan("c1", a("x"), terms=(b"1" * 16,)))
        await save(driver, make_plan("c2", a("y"), terms=(b"1" * 16,), key=other), other)
        assert await names(driver) == await names(driver, "acme") == ["t"]
        assert await names(driver, "globex") == await names(driver, "*") == []
        assert await found(driver, b"1" * 16) == ["c1"]
        assert await found(driver, b"1" * 16, tenant="acme") == ["c2"]
        assert await driver.trim("acme", older_than=LATE, keep_last=0, now=tick()) == (1, freed(driver, 1), ())
        assert await load(driver) == out("x")
        await driver.drop(KEY, None, now=tick())
        await save(driver, make_plan("c3", key=other), other)
        assert await ids(driver, other) == ["c3"]


class TestFind:
    async def test_terms(self, driver: Driver) -> None:
        p, q = b"p" * 16, b"q" * 16
        u = Key("default", "u")
        await save(driver, make_plan("c1", terms=(p, q), metadata=b'{"a":1}'))
        await save(driver, make_plan("c2", terms=(q,)))
        await save(driver, make_plan("d1", terms=(q, p), key=u), u)
        await save(driver, make_plan("c3", terms=(p,)))
        assert await found(driver, p) == ["c3", "d1"]
        assert await found(driver, q) == ["d1"]
        assert await found(driver, p, q) == await found(driver, q, p) == ["d1"]
        assert await found(driver, b"?" * 16) == []
        assert await found(driver, p, newest_only=False) == ["c3", "c1", "d1"]
        assert await found(driver, q, newest_only=False) == ["c2", "c1", "d1"]
        assert await found(driver, q, newest_only=False, limit=1, offset=1) == ["c1"]
        assert await found(driver, q, newest_only=False, thread_id="t") == ["c2", "c1"]
        assert await found(driver, p, thread_id="t") == ["c3"]
        assert await found(driver, p, thread_id="nobody") == []
        assert await found(driver) == ["c3", "d1"]
        assert await found(driver, newest_only=False) == ["c3", "c2", "c1", "d1"]

    async def test_the_whole_info(self, driver: Driver) -> None:
        await save(driver, make_plan("c1"))
        await save(driver, make_plan("c2", terms=(b"p" * 16,), metadata=b'{"a":1}', size=9))
        [info] = await driver.find(
            "default", [b"p" * 16], thread_id=None, newest_only=True, limit=None, offset=0, now=tick()
        )
        assert info == await driver.info(KEY, "c2", now=tick())
        assert (info.metadata, info.parent) == (b'{"a":1}', "c1")

    async def test_terms_go_with_what_they_belong_to(self, driver: Driver) -> None:
        p = b"p" * 16
        await save(driver, make_plan("c1", terms=(p,)))
        await save(driver, make_plan("c1"))
        assert await found(driver, p, newest_only=False) == []
        await save(driver, make_plan("c2", terms=(p,)))
        await driver.drop(KEY, ["c2"], now=tick())
        assert await found(driver, p, newest_only=False) == []
        await save(driver, make_plan("c1", terms=(p,), if_exists="in_place"))
        assert await found(driver, p) == ["c1"]


class TestExpiry:
    async def test_an_expired_thread_does_not_exist(self, driver: Driver) -> None:
        plan = make_plan("c1", a("x"), now=1000, expires_at=2000, terms=(b"p" * 16,))
        await save(driver, plan)
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=1000, expires_at=2000)
        assert await load(driver, now=1999) == out("x")
        assert len(await listed(driver, now=1999)) == 1
        for now in (2000, 2001):
            assert await load(driver, now=now) is None
            assert await driver.info(KEY, "c1", now=now) is None
            assert await listed(driver, now=now) == []
            assert await names(driver, now=now) == []
            assert await found(driver, now=now) == []
            assert await driver.records(KEY, None, now=now) == []
        u = Key("default", "u")
        assert await driver.clone(KEY, u, upto=None, overwrite=False, now=2000) == "missing"

    async def test_saving_makes_it_anew(self, driver: Driver) -> None:
        plan = make_plan("c1", a("x"), now=1000, expires_at=2000)
        base = grown(plan, await save(driver, plan))
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=1000, expires_at=2000)
        reused = {1: [Range(1, 1)]}
        assert await driver.put(KEY, make_plan("c2", {}, reused, base=base, now=2000)) == Stale()
        saved = await save(driver, make_plan("c2", a("y"), expected_version=0, now=2000))
        assert (saved.version, saved.block, saved.epoch == base.epoch) == (1, 1, False)
        assert await load(driver, now=LATE) == out("y")
        assert await ids(driver) == ["c2"]
        assert await driver.records(KEY, None, now=2000) == []

    async def test_each_save_sets_it(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", now=1000, expires_at=2000))
        await save(driver, make_plan("c2", now=1500, expires_at=2500))
        assert len(await listed(driver, now=2499)) == 2
        assert await listed(driver, now=2500) == []
        await save(driver, make_plan("c3", now=2400, expires_at=None))
        assert len(await listed(driver, now=LATE)) == 3
        await save(driver, make_plan("c3", now=2500, expires_at=2600, if_exists="in_place"))
        assert await listed(driver, now=2600) == []

    async def test_a_removal_does_not_change_it(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", a("x"), now=1000, expires_at=None))
        await save(driver, make_plan("c2", a("y"), now=1000, expires_at=2000))
        await driver.drop(KEY, ["c2"], now=1100)
        assert len(await listed(driver, now=1999)) == 1
        assert await listed(driver, now=2000) == []

    async def test_dropping_what_expired(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", now=1000, expires_at=2000))
        assert await driver.drop(KEY, None, now=2000) == Dropped(0, None, None)

    async def test_a_copy_expires_too(self, driver: Driver) -> None:
        u = Key("default", "u")
        await save(driver, make_plan("c1", now=1000, expires_at=2000))
        assert await driver.clone(KEY, u, upto=None, overwrite=False, now=1500) == "copied"
        assert len(await listed(driver, u, now=1999)) == 1
        assert await listed(driver, u, now=2000) == []
        await save(driver, make_plan("d1", now=3000), KEY)
        assert await driver.clone(KEY, u, upto=None, overwrite=False, now=3000) == "copied"
        assert await ids(driver, u) == ["d1"]


class TestClone:
    U = Key("default", "u")

    async def test_everything(self, driver: Driver) -> None:
        p = b"p" * 16
        await grow(driver, ("c1", a("x")), ("c2", a("y")), terms=(p,), metadata=b'{"a":1}')
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None)
        now = tick()
        assert await driver.clone(KEY, self.U, upto=None, overwrite=False, now=now) == "copied"
        source, copy = await driver.get(KEY, None, now=now), await driver.get(self.U, None, now=now)
        assert source is not None
        assert copy is not None
        assert copy.epoch != source.epoch
        assert (copy.stamp, copy.version, copy.payload) == (source.stamp, source.version, source.payload)
        assert document(copy, self.U) == out("x", "y")
        theirs = [
            (i.checkpoint_id, i.version, i.parent, i.created_at, i.metadata, i.size) for i in await listed(driver)
        ]
        shown = await listed(driver, self.U)
        assert [(i.checkpoint_id, i.version, i.parent, i.created_at, i.metadata, i.size) for i in shown] == theirs
        assert {(i.thread_id, i.updated_at) for i in shown} == {("u", now)}
        assert await found(driver, p, newest_only=False, thread_id="u") == ["c2", "c1"]
        assert await driver.records(self.U, None, now=now) == [("s", "k", b"v")]
        await driver.drop(KEY, None, now=tick())
        assert await load(driver, "c2", self.U) == out("x", "y")
        assert (await grow(driver, ("c3", a("z")), key=self.U))[0].version == 3
        assert await load(driver, None, self.U) == out("x", "y", "z")

    async def test_into_another_tenant(self, driver: Driver) -> None:
        dest = Key("acme", "t")
        await grow(driver, ("c1", a("x")))
        assert await driver.clone(KEY, dest, upto=None, overwrite=False, now=tick()) == "copied"
        assert await load(driver, "c1", dest) == out("x")

    async def test_upto(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")), ("c2", a("y")), ("c3", a("z")))
        assert await driver.clone(KEY, self.U, upto=2, overwrite=False, now=tick()) == "copied"
        assert await ids(driver, self.U) == ["c2", "c1"]
        assert await load(driver, None, self.U) == out("x", "y")
        saved = await save(driver, make_plan("d", a("w"), key=self.U), self.U)
        assert (saved.version, saved.block) == (3, block(driver, 3))
        assert await ids(driver) == ["c3", "c2", "c1"]

    async def test_upto_copies_no_later_entry(self, driver: Driver) -> None:
        [base] = await grow(driver, ("c1", a("x", "secret")))
        await save(driver, keeping(driver, "c2", a("x"), {}, base, {1: [Range(1, 1, 0, 1)]}))
        await save(driver, keeping(driver, "c1", a("x", "secret"), {}, base, {1: [Range(1, 1)]}))
        assert await driver.clone(KEY, self.U, upto=2, overwrite=False, now=tick()) == "copied"
        stored = await driver.get(self.U, None, now=tick())
        assert stored is not None
        assert document(stored, self.U) == out("x")
        assert lines_stored(stored) == {'"x"'}
        assert await driver.clone(KEY, Key("default", "v"), upto=1, overwrite=False, now=tick()) == "missing"

    async def test_overwrite(self, driver: Driver) -> None:
        await grow(driver, ("c1", a("x")))
        await grow(driver, ("d1", a("p")), ("d2", a("q")), key=self.U)
        await driver.put_records(self.U, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None)
        before = await driver.get(self.U, None, now=tick())
        assert before is not None
        assert await driver.clone(KEY, self.U, upto=None, overwrite=False, now=tick()) == "exists"
        assert await load(driver, None, self.U) == out("p", "q")
        assert await driver.clone(KEY, self.U, upto=None, overwrite=True, now=tick()) == "copied"
        assert await ids(driver, self.U) == ["c1"]
        assert await load(driver, None, self.U) == out("x")
        assert await driver.records(self.U, None, now=tick()) == []
        stale = make_plan("d3", {}, ranges_of(before), base=base_of(before), key=self.U)
        assert await driver.put(self.U, stale) == Stale()

    async def test_overwriting_does_not_turn_time_back(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", now=1000))
        await save(driver, make_plan("d1", now=9000, key=self.U), self.U)
        assert await driver.clone(KEY, self.U, upto=None, overwrite=True, now=5000) == "copied"
        assert (await listed(driver, self.U))[0].updated_at == 9001


class TestTrim:
    async def test_by_age(self, driver: Driver) -> None:
        for i in range(5):
            await grow(driver, (f"c{i}", a(f"x{i}")), now=1000 * (i + 1))
        trimmed = await driver.trim("default", older_than=3000, keep_last=1, now=9000)
        assert trimmed.checkpoints == 2
        assert await ids(driver) == ["c4", "c3", "c2"]
        assert await load(driver) == out(*[f"x{i}" for i in range(5)])
        assert (await driver.trim("default", older_than=LATE, keep_last=2, now=9000)).checkpoints == 1
        assert (await driver.trim("default", older_than=LATE, keep_last=2, now=9000)) == (0, 0, ())
        assert await ids(driver) == ["c4", "c3"]

    async def test_frees_blocks(self, driver: Driver) -> None:
        for i in range(4):
            await save(driver, make_plan(f"c{i}", a(f"x{i}")))
        assert await driver.trim("default", older_than=LATE, keep_last=1, now=tick()) == (3, freed(driver, 3), ())
        assert await load(driver) == out("x3")

    async def test_everything(self, driver: Driver) -> None:
        await save(driver, make_plan("c", now=1000))
        assert (await driver.trim("default", older_than=2000, keep_last=0, now=3000)).checkpoints == 1
        assert await names(driver) == []

    async def test_expired_threads(self, driver: Driver) -> None:
        u = Key("default", "u")
        await grow(driver, ("c1", a("x")), ("c2", a("y")), now=1000, expires_at=2000)
        await save(driver, make_plan("d", key=u, now=1000), u)
        assert (await driver.trim("default", older_than=0, keep_last=1, now=1500)).checkpoints == 0
        assert (await driver.trim("default", older_than=0, keep_last=1, now=2000)).checkpoints == 2
        assert await names(driver, now=1500) == ["u"]


class TestRecords:
    async def test_put_and_drop(self, driver: Driver) -> None:
        async def put(scope: str, *items: tuple[str, bytes], keep: bool = False) -> None:
            await driver.put_records(KEY, scope, items, keep=keep, now=tick(), expires_at=None)

        await put("s2", ("k1", b"1"), ("k2", b"\x00\xff"))
        await put("s1", ("z", b"3"), ("a", b""))
        await put("s1", ("z", b"kept"), ("b", b"4"), keep=True)
        await put("s2", ("k1", b"new"))
        everything = [
            ("s1", "z", b"3"),
            ("s1", "a", b""),
            ("s1", "b", b"4"),
            ("s2", "k1", b"new"),
            ("s2", "k2", b"\x00\xff"),
        ]
        assert await driver.records(KEY, None, now=tick()) == everything
        assert await driver.records(KEY, "s2", now=tick()) == everything[3:]
        assert await driver.records(KEY, "nobody", now=tick()) == []
        assert await names(driver) == []
        assert await load(driver) is None
        assert await driver.drop_records(KEY, "s1", now=tick()) == 3
        assert await driver.drop_records(KEY, None, now=tick()) == 2
        assert await driver.drop_records(KEY, None, now=tick()) == 0
        assert await driver.records(KEY, None, now=tick()) == []

    async def test_before_the_first_checkpoint(self, driver: Driver) -> None:
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None)
        assert await driver.drop(KEY, ["c1"], now=tick()) == Dropped(0, None, None)
        saved = await save(driver, make_plan("c1", a("x"), expected_version=0))
        assert (saved.version, saved.block) == (1, 1)
        assert await driver.records(KEY, None, now=tick()) == [("s", "k", b"v")]

    async def test_removed_with_a_thread_of_nothing_else(self, driver: Driver) -> None:
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=tick(), expires_at=None)
        assert await driver.drop(KEY, None, now=tick()) == Dropped(0, None, None)
        assert await driver.records(KEY, None, now=tick()) == []

    async def test_expired(self, driver: Driver) -> None:
        await driver.put_records(KEY, "s", [("k", b"v"), ("l", b"w")], keep=False, now=1000, expires_at=2000)
        assert len(await driver.records(KEY, None, now=1999)) == 2
        assert await driver.records(KEY, None, now=2000) == []
        await driver.put_records(KEY, "s", [("k", b"new")], keep=True, now=2000, expires_at=None)
        assert await driver.records(KEY, None, now=LATE) == [("s", "k", b"new")]

    async def test_they_do_not_count_as_a_write(self, driver: Driver) -> None:
        await save(driver, make_plan("c1", now=1000))
        await driver.put_records(KEY, "s", [("k", b"v")], keep=False, now=2000, expires_at=None)
        assert await driver.threads("default", "*", limit=None, offset=0, now=2000) == [("t", 1000)]


class Zip:
    """A codec that compresses, and binds what it encodes to its thread."""

    name = "zip"
    bound = True

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return repr(tuple(thread)).encode() + b"\n" + compress(data)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        owner, _, rest = data.partition(b"\n")
        if owner != repr(tuple(thread)).encode():
            raise ValueError("another thread's")
        return decompress(rest)


async def test_a_codec(make: Make) -> None:
    codec = Zip()
    driver = make(codec)
    plan = make_plan("c1", a("x", "y"), codec=codec)
    base = grown(plan, await save(driver, plan))
    await save(driver, keeping(driver, "c2", a("x"), a("z"), base, {1: [Range(1, 1, 0, 1)]}, codec=codec))
    dropped = await driver.drop(KEY, ["c1"], now=tick())
    assert (dropped.epoch != base.epoch) == driver.capabilities.incremental
    stored = await driver.get(KEY, None, now=tick())
    assert stored is not None
    assert document(stored, codec=codec) == out("x", "z")
    assert lines_stored(stored, codec=codec) == {'"x"', '"z"'}
    dest = Key("acme", "u")
    assert await driver.clone(KEY, dest, upto=None, overwrite=False, now=tick()) == "copied"
    copy: Stored | None = await driver.get(dest, None, now=tick())
    assert document(copy, dest, codec) == out("x", "z")


class TestTogether:
    async def test_case_47_many_saves_of_one_thread(self, driver: Driver) -> None:
        results = await asyncio.gather(*[save(driver, make_plan(f"c{i}", a(f"x{i}"))) for i in range(50)])
        assert sorted(r.version for r in results) == list(range(1, 51))
        assert len(set(await ids(driver))) == 50
        for i in range(50):
            assert await load(driver, f"c{i}") == out(f"x{i}")

    async def test_case_49_many_saves_of_one_id(self, driver: Driver) -> None:
        await asyncio.gather(*[save(driver, make_plan("same", a(f"x{i}"))) for i in range(20)])
        assert await ids(driver) == ["same"]
        assert await load(driver) in [out(f"x{i}") for i in range(20)]

    async def test_case_54_both_create_one_id(self, driver: Driver) -> None:
        results = await asyncio.gather(
            *[driver.put(KEY, make_plan("same", a(f"x{i}"), if_exists="error")) for i in range(8)]
        )
        assert sorted(type(r).__name__ for r in results) == ["Exists"] * 7 + ["Saved"]

    async def test_expectations(self, driver: Driver) -> None:
        results = await asyncio.gather(*[driver.put(KEY, make_plan(f"c{i}", expected_version=0)) for i in range(8)])
        assert results.count(Conflict(1)) == 7

    async def test_savers_and_removers(self, driver: Driver) -> None:
        """Whatever is loaded is what was saved."""

        async def writer(name: str) -> None:
            for i in range(15):
                while True:
                    before = await driver.get(KEY, None, now=tick())
                    kept = document(before) if before else {}
                    wanted = [*kept.get(1, []), f'"{name}{i}"']
                    new = a(f"{name}{i}")
                    plan = make_plan(f"{name}{i}", new)
                    if before and kept:
                        plan = keeping(driver, f"{name}{i}", kept, new, base_of(before), ranges_of(before))
                    if isinstance(await driver.put(KEY, plan), Saved):
                        break
                again = await driver.get(KEY, f"{name}{i}", now=tick())
                assert again is None or document(again) == {1: wanted}

        async def remover() -> None:
            for _ in range(12):
                await asyncio.sleep(0.005)
                shown = await ids(driver)
                await driver.drop(KEY, shown[::3], now=tick())

        await asyncio.gather(writer("a"), writer("b"), remover())
        for checkpoint_id in await ids(driver):
            await load(driver, checkpoint_id)


async def test_prepare_and_close(driver: Driver) -> None:
    await asyncio.gather(driver.prepare(), driver.prepare())
    await save(driver, make_plan("c1", a("x")))
    await driver.aclose()
    await driver.aclose()
    assert await load(driver) == out("x")
    assert await driver.reclaim() == 0
