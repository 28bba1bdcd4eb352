"""Where numbered things of a thread are: an ascending map from versions, or blocks, to the slots that hold them.

Neighbours mostly lie in neighbouring slots, so what is kept is runs: first number, first slot, length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """Numbers ``first`` to ``first + length - 1``, in as many slots from ``slot`` on."""

    first: int
    slot: int
    length: int


class Runs:
    """The map; it never changes."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs = tuple(runs)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Runs:
        """The map with these pairs of number and slot."""
        runs: list[Run] = []
        for number, slot in sorted(pairs):
            last = runs[-1] if runs else None
            if last and number == last.first + last.length and slot == last.slot + last.length:
                runs[-1] = last._replace(length=last.length + 1)
            else:
                runs.append(Run(number, slot, 1))
        return cls(runs)

    @classmethod
    def load(cls, stored: Sequence[Sequence[int]]) -> Runs:
        """Read what `dump` gave."""
        return cls(Run(*run) for run in stored)

    def dump(self) -> list[list[int]]:
        """The map as JSON has it."""
        return [list(run) for run in self._runs]

    def count(self) -> int:
        """How many numbers are in it."""
        return sum(run.length for run in self._runs)

    def slot(self, number: int) -> int | None:
        """The slot of a number, or None."""
        at = bisect_right(self._runs, number, key=lambda run: run.first) - 1
        if at < 0 or number >= self._runs[at].first + self._runs[at].length:
            return None
        return self._runs[at].slot + number - self._runs[at].first

    def last(self) -> int:
        """The highest number, 0 if there is none."""
        return self._runs[-1].first + self._runs[-1].length - 1 if self._runs else 0

    def first(self) -> int:
        """The lowest number, 0 if there is none."""
        return self._runs[0].first if self._runs else 0

    def pairs(self, low: int = 0, high: int | None = None) -> Iterator[tuple[int, int]]:
        """Numbers from ``low`` to ``high`` with their slots, ascending."""
        for first, slot, length in self._runs:
            start = max(low - first, 0)
            stop = length if high is None else min(length, high - first + 1)
            for i in range(start, stop):
                yield first + i, slot + i

    def newest_first(self, before: int | None = None) -> Iterator[tuple[int, int]]:
        """Numbers below ``before`` with their slots, descending."""
        for first, slot, length in reversed(self._runs):
            for i in range(length - 1 if before is None else min(length, before - first) - 1, -1, -1):
                yield first + i, slot + i

    def slots(self) -> set[int]:
        """All slots."""
        return {slot for _, slot in self.pairs()}

    def plus(self, number: int, slot: int) -> Runs:
        """The map with one more number, or another slot for one that it has."""
        last = self._runs[-1] if self._runs else None
        if last is None or number >= last.first + last.length:
            if last and number == last.first + last.length and slot == last.slot + last.length:
                return Runs([*self._runs[:-1], last._replace(length=last.length + 1)])
            return Runs([*self._runs, Run(number, slot, 1)])
        return Runs.of([*(p for p in self.pairs() if p[0] != number), (number, slot)])

    def minus(self, numbers: Collection[int]) -> Runs:
        """The map without some numbers."""
        if not numbers:
            return self
        gone = frozenset(numbers)
        return Runs.of(p for p in self.pairs() if p[0] not in gone)
