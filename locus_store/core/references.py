"""What a checkpoint refers to: ranges of blocks, list by list; and what nothing refers to after a removal.

An entry is named by its list's number, the number of its block, and its offset among the block's entries of that
list. A `Range` takes all entries of one list that lie between two such places, so it is an interval of
``(block, offset)`` pairs, and what a removal frees is plain interval arithmetic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

OWN = 0
"""Stands for the number of the checkpoint's own block, which is not known when the ranges are written."""

Place = tuple[int, int]
Interval = tuple[Place, Place]


class Range(NamedTuple):
    """The entries of one list in blocks ``first`` to ``last``.

    Attributes:
        skip: How many entries of block ``first`` are left out.
        end: How many entries of block ``last``, counted from its start, are taken; None takes all.
    """

    first: int
    last: int
    skip: int = 0
    end: int | None = None

    def interval(self) -> Interval:
        """The range as a half-open interval of (block, offset)."""
        return (self.first, self.skip), ((self.last + 1, 0) if self.end is None else (self.last, self.end))


class References:
    """The ranges of one checkpoint, with its own block's number filled in.

    Args:
        lists: For each list's number its ranges, in the order of the list.
    """

    __slots__ = ("lists",)

    def __init__(self, lists: Mapping[int, Sequence[Range]]) -> None:
        self.lists = lists

    @classmethod
    def parse(cls, own_block: int, text: bytes) -> References:
        """Read the ranges column.

        Raises:
            ValueError: The text is not what `format` writes.
        """
        lists: dict[int, list[Range]] = {}
        try:
            for listed in json.loads(text):
                lists[listed[0]] = [_read(own_block, r) for r in listed[1:]]
        except (TypeError, ValueError, LookupError) as e:
            raise ValueError("the ranges column does not parse") from e
        if not all([type(number) is int for number in lists]):
            raise ValueError("the ranges column does not parse")
        return cls(lists)

    def format(self) -> bytes:
        """The text of the ranges column: JSON, as short as it can be."""
        return json.dumps(
            [[number, *map(_short, ranges)] for number, ranges in self.lists.items()], separators=(",", ":")
        ).encode()

    def span(self) -> tuple[int, int] | None:
        """The lowest and highest block in the ranges, the own block's marker left out; None if there is none."""
        blocks = [b for ranges in self.lists.values() for r in ranges if r.first != OWN for b in (r.first, r.last)]
        return (min(blocks), max(blocks)) if blocks else None


def _short(r: Range) -> list[int]:
    if r.end is not None:
        return [r.first, r.last, r.skip, r.end]
    if r.skip:
        return [r.first, r.last, r.skip]
    return [r.first] if r.first == r.last else [r.first, r.last]


def _read(own_block: int, value: list[int]) -> Range:
    if not all([type(n) is int and n >= 0 for n in value]):
        raise ValueError(value)
    if len(value) == 1:
        first = last = value[0]
    else:
        first, last = value[0], value[1]
    skip = value[2] if len(value) > 2 else 0
    end = value[3] if len(value) > 3 else None
    if first == OWN:
        if not own_block:
            raise ValueError("ranges name an own block that is not there")
        first = last = own_block
    if last < first or len(value) > 4:
        raise ValueError(value)
    return Range(first, last, skip, end)


class EntrySet:
    """A set of entries, as sorted, disjoint intervals for each list."""

    __slots__ = ("intervals",)

    def __init__(self, intervals: Mapping[int, list[Interval]]) -> None:
        self.intervals = {number: i for number, i in intervals.items() if i}

    @classmethod
    def of(cls, references: Iterable[References]) -> EntrySet:
        """All entries that any of the references takes."""
        found: dict[int, list[Interval]] = defaultdict(list)
        for one in references:
            for number, ranges in one.lists.items():
                found[number].extend(r.interval() for r in ranges)
        return cls({number: _union(i) for number, i in found.items()})

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def minus(self, other: EntrySet) -> EntrySet:
        """The entries that are in this set and not in the other."""
        return EntrySet({n: _minus(i, other.intervals.get(n, [])) for n, i in self.intervals.items()})

    def plus(self, other: EntrySet) -> EntrySet:
        """The entries that are in one of the sets."""
        both = dict.fromkeys([*self.intervals, *other.intervals])
        return EntrySet({n: _union([*self.intervals.get(n, []), *other.intervals.get(n, [])]) for n in both})

    def has(self, number: int, block: int, offset: int) -> bool:
        """Whether an entry, named by its list's number, its block and its offset there, is in this set."""
        return any(start <= (block, offset) < stop for start, stop in self.intervals.get(number, ()))

    def blocks(self) -> list[tuple[int, int]]:
        """First and last number of the runs of blocks in which entries of this set may lie, ascending, disjoint."""
        runs: list[tuple[int, int]] = []
        spans = sorted((a[0], b[0] if b[1] else b[0] - 1) for i in self.intervals.values() for a, b in i)
        for first, last in spans:
            if runs and first <= runs[-1][1] + 1:
                runs[-1] = runs[-1][0], max(runs[-1][1], last)
            else:
                runs.append((first, last))
        return runs

    def offsets(self, number: int, block: int, count: int) -> Iterator[int]:
        """Which of the ``count`` entries that a block has of a list are in this set."""
        for start, stop in self.intervals.get(number, ()):
            if start < (block, count) and (block, 0) < stop:
                yield from range(start[1] if start[0] == block else 0, stop[1] if stop[0] == block else count)


def unreferenced(dropped: Iterable[References], kept: Iterable[References]) -> EntrySet:
    """The entries that only the dropped checkpoints refer to: what a removal must take out of the blocks."""
    return EntrySet.of(dropped).minus(EntrySet.of(kept))


def _union(intervals: list[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for start, stop in sorted(intervals):
        if start >= stop:
            continue
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], stop)
        else:
            out.append((start, stop))
    return out


def _minus(intervals: list[Interval], holes: list[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for start, stop in intervals:
        at = start
        for a, b in holes:
            if b <= at or a >= stop:
                continue
            if a > at:
                out.append((at, a))
            at = max(at, b)
        if at < stop:
            out.append((at, stop))
    return out
