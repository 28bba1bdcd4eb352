"""Numbers of the log whose records count no more, for ever: an object that comes to lie there again is nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Removed:
    """A set of numbers, as ranges: what lies between two of them is there, so they are no more than checkpoints are.

    Attributes:
        ranges: First and last number of each, in order; they neither overlap nor touch.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, (number, number)) - 1
        found = [r for r in self.ranges[max(at, 0) : at + 2] if r[0] <= number <= r[1]]
        return bool(found)

    def with_(self, numbers: Iterable[int]) -> Removed:
        """These numbers and some more."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self.ranges, *[(n, n) for n in numbers]]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], max(ranges[-1][1], last)
            else:
                ranges.append((first, last))
        return Removed(tuple(ranges))

    @classmethod
    def load(cls, ranges: Sequence[Sequence[int]]) -> Removed:
        """From what a header has."""
        return cls(tuple([(first, last) for first, last in ranges]))


NOTHING_REMOVED = Removed()
