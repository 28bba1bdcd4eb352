"""Random histories: every driver answers what `MemoryDriver` answers, and every load is what was saved."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from drivers.driver_list import PARAMS, OpenDriver
from drivers.plans import base_of, document, make_plan, ranges_of
from hypothesis import given, settings
from hypothesis import strategies as st

from locus_store.backends.memory import MemoryDriver
from locus_store.core.driver import Driver, Dropped, Key, Saved, Stored
from locus_store.core.ids import new_stamp
from locus_store.core.references import Range, References

KEYS = [Key("default", "t"), Key("default", "u"), Key("acme", "t")]
IDS = [f"c{i}" for i in range(6)]
TERMS = [b"%d" % i * 16 for i in range(3)]

keys = st.sampled_from(KEYS)
several_ids = st.lists(st.sampled_from(IDS), max_size=5)
cuts = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))


def _or_none(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.none() | strategy


@dataclass(frozen=True)
class Put:
    key: Key
    checkpoint_id: str
    base: int | None
    cut: tuple[int, int, int]
    lines: tuple[int, int]
    if_exists: str
    parent: str | None
    expected: int | None
    keep: int | None
    ttl: int | None
    terms: frozenset[bytes]
    elapsed: int


puts = st.builds(
    Put,
    key=keys,
    checkpoint_id=st.sampled_from(IDS),
    base=st.none() | st.integers(0, 3),
    cut=cuts,
    lines=st.tuples(st.integers(0, 3), st.integers(0, 2)),
    if_exists=st.sampled_from(["newest", "newest", "in_place", "error"]),
    parent=_or_none(st.sampled_from(IDS)),
    expected=_or_none(st.integers(0, 8)),
    keep=_or_none(st.integers(1, 4)),
    ttl=_or_none(st.integers(1, 3000)),
    terms=st.frozensets(st.sampled_from(TERMS)),
    elapsed=st.sampled_from([0, 0, 1, 1000]),
)
drops = st.tuples(st.just("drop"), keys, st.one_of(several_ids, several_ids, st.none()))
clones = st.tuples(st.just("clone"), keys, keys, st.none() | st.integers(1, 8), st.booleans())
trims = st.tuples(st.just("trim"), st.sampled_from(["default", "acme"]), st.integers(0, 4000), st.integers(0, 3))
put_records = st.tuples(
    st.just("put_records"), keys, st.sampled_from("ab"), st.lists(st.sampled_from("xyz")), st.booleans()
)
drop_records = st.tuples(st.just("drop_records"), keys, st.sampled_from(["a", "b", None]))
steps = st.one_of(puts, puts, puts, puts, drops, clones, trims, put_records, drop_records, st.just(("close",)))


@dataclass
class Pair:
    """Two drivers that are told the same."""

    model: Driver
    other: Driver
    now: int = 1_700_000_000_000_000
    serial: itertools.count[int] = field(default_factory=itertools.count)
    epochs: dict[int, int] = field(default_factory=dict)
    back: dict[int, int] = field(default_factory=dict)
    documents: dict[bytes, dict[int, list[str]]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether whole documents are stored, so that there are no blocks to share."""
        return not self.other.capabilities.incremental

    def same_epoch(self, mine: int | None, theirs: int | None) -> None:
        """Epochs are random, but equal and different at the same places."""
        if mine is None or theirs is None:
            assert mine is theirs
            return
        if self.whole:
            return
        assert self.epochs.setdefault(mine, theirs) == theirs
        assert self.back.setdefault(theirs, mine) == mine

    async def put(self, step: Put) -> None:
        stamp, tag = new_stamp(), next(self.serial)
        self.now += step.elapsed
        new = {n + 1: [f'"{tag}-{i}"' for i in range(count)] for n, count in enumerate(step.lines) if count}
        results = []
        for driver in (self.model, self.other):
            infos = await driver.infos(step.key, before=None, limit=None, now=self.now)
            base, reused, kept = None, {}, {}
            if step.base is not None and step.base < len(infos):
                stored = await driver.get(step.key, infos[step.base].checkpoint_id, now=self.now)
                assert stored is not None
                reused, kept = cut(stored, step.cut, step.key)
                base = base_of(stored) if reused else None
            content = {n: [*kept.get(n, []), *new.get(n, [])] for n in sorted({*kept, *new})}
            if self.whole:
                base, reused = None, {}
            plan = make_plan(
                step.checkpoint_id,
                content if self.whole else new,
                reused,
                base=base,
                key=step.key,
                stamp=stamp,
                if_exists=step.if_exists,
                parent=step.parent,
                expected_version=step.expected,
                keep=step.keep,
                now=self.now,
                expires_at=None if step.ttl is None else self.now + step.ttl,
                terms=tuple(sorted(step.terms)),
                metadata=b'"%d"' % tag,
            )
            self.documents[stamp] = {n: lines for n, lines in content.items() if lines}
            results.append((await driver.put(step.key, plan), self.documents[stamp]))
        (mine, document_1), (theirs, document_2) = results
        assert document_1 == document_2
        if isinstance(mine, Saved) and isinstance(theirs, Saved):
            assert mine.version == theirs.version
            assert self.whole or mine.block == theirs.block
            self.same_epoch(mine.epoch, theirs.epoch)
        else:
            assert mine == theirs

    async def step(self, step: Any) -> None:
        match step:
            case Put():
                await self.put(step)
            case ("drop", key, ids):
                mine, theirs = [await d.drop(key, ids, now=self.now) for d in (self.model, self.other)]
                assert isinstance(mine, Dropped)
                assert mine.count == theirs.count
                self.same_epoch(mine.epoch_before, theirs.epoch_before)
                self.same_epoch(mine.epoch, theirs.epoch)
            case ("clone", source, dest, upto, overwrite) if source != dest:
                mine, theirs = [
                    await d.clone(source, dest, upto=upto, overwrite=overwrite, now=self.now)
                    for d in (self.model, self.other)
                ]
                assert mine == theirs
            case ("trim", tenant, age, keep_last):
                mine, theirs = [
                    await d.trim(tenant, older_than=self.now - age, keep_last=keep_last, now=self.now)
                    for d in (self.model, self.other)
                ]
                assert mine.checkpoints == theirs.checkpoints
            case ("put_records", key, scope, names, keep):
                items = [(name, b'"%d"' % next(self.serial)) for name in names]
                for d in (self.model, self.other):
                    await d.put_records(key, scope, items, keep=keep, now=self.now, expires_at=None)
            case ("drop_records", key, scope):
                mine, theirs = [await d.drop_records(key, scope, now=self.now) for d in (self.model, self.other)]
                assert mine == theirs
            case ("close",):
                await self.other.aclose()

    async def compare(self) -> None:
        for key in KEYS:
            mine, theirs = [await d.infos(key, before=None, limit=None, now=self.now) for d in (self.model, self.other)]
            assert mine == theirs
            for info in [*mine, None]:
                checkpoint_id = info and info.checkpoint_id
                left, right = [await d.get(key, checkpoint_id, now=self.now) for d in (self.model, self.other)]
                assert (left is None) == (right is None) == (not mine)
                if left is not None and right is not None:
                    self.same_epoch(left.epoch, right.epoch)
                    assert (left.version, left.stamp) == (right.version, right.stamp)
                    assert self.whole or left.own_block == right.own_block
                    assert {n: v for n, v in document(left, key).items() if v} == self.documents[left.stamp]
                    assert {n: v for n, v in document(right, key).items() if v} == self.documents[left.stamp]
            mine, theirs = [await d.records(key, None, now=self.now) for d in (self.model, self.other)]
            assert mine == theirs
        for tenant in ("default", "acme"):
            mine, theirs = [
                await d.threads(tenant, "*", limit=None, offset=0, now=self.now) for d in (self.model, self.other)
            ]
            assert mine == theirs
            for newest_only, terms in itertools.product([True, False], [[], TERMS[:1], TERMS[1:]]):
                mine, theirs = [
                    await d.find(
                        tenant, terms, thread_id=None, newest_only=newest_only, limit=None, offset=0, now=self.now
                    )
                    for d in (self.model, self.other)
                ]
                assert mine == theirs


def cut(stored: Stored, how: tuple[int, int, int], key: Key) -> tuple[dict[int, list[Range]], dict[int, list[str]]]:
    """Ranges of a part of a checkpoint, and the lines that they stand for."""
    lists = document(stored, key)
    skip, leave, drop_list = how
    out: dict[int, list[Range]] = {}
    kept: dict[int, list[str]] = {}
    for number, ranges in ranges_of(stored).items():
        if number == drop_list:
            continue
        at = 0
        for r in ranges:
            piece = shorten(r, skip if not out.get(number) else 0, leave)
            lines = lines_of(stored, number, r, key)
            some = lines_of(stored, number, piece, key) if piece else []
            if some and piece:
                out.setdefault(number, []).append(piece)
                kept.setdefault(number, []).extend(some)
            assert lists[number][at : at + len(lines)] == lines
            at += len(lines)
    return out, kept


def shorten(r: Range, skip: int, leave: int) -> Range | None:
    """A part of the range: without its first ``skip`` blocks and perhaps the last, or entries if it is in one block."""
    if r.first == r.last:
        end = r.end if leave < 2 else r.skip + leave if r.end is None or r.skip + leave < r.end else r.end
        skip = r.skip + skip
        return None if end is not None and skip >= end else Range(r.first, r.last, skip, end)
    first = min(r.first + skip, r.last)
    if leave == 1 and first < r.last:
        return Range(first, r.last - 1, r.skip if first == r.first else 0)
    return Range(first, r.last, r.skip if first == r.first else 0, r.end)


def lines_of(stored: Stored, number: int, r: Range, key: Key) -> list[str]:
    return document(replace(stored, ranges=References({number: [r]}).format()), key).get(number, [])


@pytest.mark.parametrize("name", PARAMS)
@given(history=st.lists(steps, max_size=25))
@settings(max_examples=100)
def test_same_as_memory(name: str, open_driver: OpenDriver, history: list[Any]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(MemoryDriver(), open_driver(name, Path(folder) / "store", None))
            for step in history:
                await pair.step(step)
                await pair.compare()
            await pair.other.aclose()

    asyncio.run(run())
