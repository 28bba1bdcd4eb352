"""Finding out, exactly and cheaply, that elements of a list are still what they were.

Exact means that the stored text would be the same, never ``==`` alone: True, 1 and 1.0 are equal, and so are dicts
whose keys stand in another order, -0.0 and 0.0, and one moment in two time zones.

A `Snapshot` takes elements apart, level by level, into what cannot change: the types, the lengths and keys of dicts,
the lengths of lists, and the leaves. To compare, the elements at hand are taken apart in the same way and each of
these sequences is compared as a whole, which the interpreter does in C: types first, so that ``==`` is only asked of
leaves of one and the same built-in type, for which it is exact. Nothing of the caller's that can change is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from locus_store.core.frames import RAW, Entry
from locus_store.core.levels import STRANGE, Level, StrangeError


def digest_of(entry: Entry) -> bytes:
    """16 bytes that tell the values of encoded entries apart."""
    return blake2b(entry.data, digest_size=16, person=b"bytes" if entry.kind == RAW else b"").digest()


class Snapshot:
    """What elements of a list were, exactly; it only ever grows at its end."""

    __slots__ = ("_level", "_strange")

    def __init__(self) -> None:
        self._level = Level()
        self._strange: list[int] = []

    def __len__(self) -> int:
        return len(self._level.classes)

    def extend(self, values: Sequence[Any]) -> None:
        """Add elements, which the codec has accepted."""
        try:
            self._level.extend(Level.of(values))
        except StrangeError:
            for value in values:
                try:
                    level = Level.of([value])
                except StrangeError:
                    self._strange.append(len(self))
                    level = Level.of([STRANGE])
                self._level.extend(level)

    def join(self, other: Snapshot) -> None:
        """Add the elements of another snapshot."""
        self._strange += [len(self) + at for at in other._strange]
        self._level.extend(other._level)

    def first(self, count: int) -> Snapshot:
        """A copy of the first elements only."""
        made = Snapshot()
        made._level = self._level.first(count)
        made._strange = self._strange[: bisect_left(self._strange, count)]
        return made

    def comparable(self, at: int) -> int:
        """How many elements from ``at`` on can be compared; the one behind them cannot."""
        found = bisect_left(self._strange, at)
        return (self._strange[found] if found < len(self._strange) else len(self)) - at

    def run(self, values: Sequence[Any], at: int, *, whole_first: bool = False) -> int:
        """How many of the values, counted from the first, are the elements from ``at`` on.

        Args:
            values: The values; at most as many as can be compared.
            at: The first element.
            whole_first: Whether it is likely that all of them are.
        """
        if whole_first and self._level.same(values, at):
            return len(values)
        good, step, stop = 0, 1, min(1, len(values))
        while self._level.same(values[good:stop], at + good):  # forwards in steps that double …
            if stop == len(values):
                return stop
            step *= 2
            good, stop = stop, min(stop + step, len(values))
        while good + 1 < stop:  # … then halving the step in which the difference is
            middle = (good + stop) // 2
            if self._level.same(values[good:middle], at + good):
                good = middle
            else:
                stop = middle
        return good

    def value(self, at: int) -> Any:
        """One element, made anew.

        Raises:
            LookupError: It could not be taken apart.
        """
        if not self.comparable(at):
            raise LookupError(at)
        return self._level.value(at)

    def values(self) -> Iterator[Any]:
        """All elements, made anew."""
        return map(self.value, range(len(self)))

    def weight(self) -> int:
        """Bytes that it takes, roughly, without the leaves themselves."""
        return self._level.weight()
