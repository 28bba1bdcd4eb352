"""What a process remembers of a thread: a hint, from which the next save is planned and which the store checks.

Later knowledge shares its sequences with the earlier one that it came from: they only ever grow at their end, and each
state of knowledge says how much of them belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locus_store.core.codec import decode_entries
from locus_store.core.driver import Base
from locus_store.core.loading import REST, Loaded
from locus_store.core.locks import ForkSafeLock
from locus_store.core.paths import Path
from locus_store.core.references import OWN, Range
from locus_store.core.unchanged import Snapshot, digest_of
from locus_store.core.watching import Watch

_growing = ForkSafeLock()
"""Held while a shared sequence grows: two threads may plan from the same knowledge."""


class Blocks:
    """How many entries of which list lie in the blocks of a thread, as far as that is known.

    Args:
        counts: For each block the entries of each list; no row for a list that has none. It may be shared with others,
            which know further blocks; ``sizes`` likewise.
        sizes: Bytes of those blocks that hold anything.
        top: The highest block that belongs to this knowledge.
    """

    __slots__ = ("_counts", "_sizes", "top")

    def __init__(self, counts: dict[int, dict[int, int]], sizes: dict[int, int], top: int) -> None:
        self._counts = counts
        self._sizes = sizes
        self.top = top

    def __len__(self) -> int:
        return len(self._counts)

    def size(self, block: int) -> int:
        """Bytes of a block, 0 if it is not known or not there."""
        return self._sizes.get(block, 0) if block <= self.top else 0

    def count(self, block: int, number: int) -> int:
        """How many entries of a list a known block has."""
        return self._counts[block].get(number, 0)

    def lack(self, number: int, first: int, last: int) -> bool:
        """Whether it is known that blocks ``first`` to ``last`` have no entry of a list."""
        return last < first or (
            last <= self.top
            and all(block in self._counts and number not in self._counts[block] for block in range(first, last + 1))
        )

    def joined(self, before: Range, after: Range, number: int) -> bool:
        """Whether two ranges of a list are one: the first takes all that is between them."""
        return (
            before.end is None
            and after.skip == 0
            and before.last < after.first
            and self.lack(number, before.last + 1, after.first - 1)
        )

    def grown(self, block: int, counts: Mapping[int, int], size: int) -> Blocks:
        """With one more block."""
        with _growing:
            made = Blocks(self._counts, self._sizes, block)
            if block != self.top + 1 or block in self._counts:
                # Others saved in between; or the store went back to an earlier state and gave a number out twice.
                made = self._copy(0, block)
            made._counts[block] = dict(counts)
            made._sizes[block] = size
            return made

    def above(self, lowest: int) -> Blocks:
        """A copy without what lies below a block."""
        with _growing:
            return self._copy(lowest, self.top)

    def _copy(self, lowest: int, top: int) -> Blocks:
        return Blocks(
            {n: c for n, c in self._counts.items() if lowest <= n <= self.top},
            {n: s for n, s in self._sizes.items() if lowest <= n <= self.top},
            top,
        )


class Remembered:
    """What is remembered of the entries of one list.

    Attributes:
        count: How many entries there are; the sequences may hold more, which belong to a later state.
        sizes: Encoded bytes of each entry.
        digests: Digest of each encoded entry.
        snapshot: The content of each element, or None.
        watch: The objects that the elements came from, if they are a state's, or None.
    """

    __slots__ = ("count", "digests", "sizes", "snapshot", "watch")

    def __init__(
        self, sizes: list[int], digests: list[bytes], snapshot: Snapshot | None, watch: Watch | None = None
    ) -> None:
        self.count = len(sizes)
        self.sizes = sizes
        self.digests = digests
        self.snapshot = snapshot
        self.watch = watch

    @classmethod
    def nothing(cls) -> Remembered:
        """Of a list that is not there yet."""
        return cls([], [], Snapshot())

    def then(self, kept: int, sizes: Sequence[int], digests: Sequence[bytes], values: Sequence[Any]) -> Remembered:
        """The first entries, followed by others; without a watch.

        Args:
            kept: How many of the first entries stay.
            sizes: Encoded bytes of those that follow.
            digests: Of those that follow.
            values: The elements that follow, as plain data.
        """
        with _growing:
            snapshot = self.snapshot
            if kept == self.count == len(self.sizes):
                made = Remembered(self.sizes, self.digests, snapshot)
            else:
                made = Remembered(
                    self.sizes[:kept], self.digests[:kept], None if snapshot is None else snapshot.first(kept)
                )
            made.sizes.extend(sizes)
            made.digests.extend(digests)
            made.count = len(made.sizes)
            if made.snapshot is not None:
                made.snapshot.extend(values)
            return made

    def watched(self, objects: Sequence[Any], recognised: int) -> Watch | None:
        """A watch for the objects of a list.

        Args:
            objects: The objects.
            recognised: How many of them, counted from the first, are known to this one's watch.
        """
        with _growing:
            watch = self.watch
            if watch is None or not recognised:
                watch = Watch()
            elif len(watch) != recognised:
                watch = watch.first(recognised)
            return watch if watch.extend(objects[len(watch) :]) else None

    def weight(self) -> int:
        """Bytes that it keeps alive, roughly."""
        held = 0 if self.snapshot is None else self.snapshot.weight()
        return sum(self.sizes[: self.count]) + held + 120 * self.count + 300 + (len(self.watch or ()) * 500)


@dataclass(frozen=True, slots=True)
class KnownList:
    """One list of a checkpoint that this process has saved or loaded.

    Attributes:
        number: Its number in the blocks.
        entries: What is remembered of its entries.
        ranges: Where they are.
    """

    number: int
    entries: Remembered
    ranges: tuple[Range, ...]

    def places(self, blocks: Blocks) -> list[tuple[int, int]]:
        """Block and offset of each entry."""
        out: list[tuple[int, int]] = []
        for r in self.ranges:
            for block in range(r.first, r.last + 1):
                stop = blocks.count(block, self.number) if block != r.last or r.end is None else r.end
                out += [(block, i) for i in range(r.skip if block == r.first else 0, stop)]
        return out


@dataclass(frozen=True, slots=True)
class Known:
    """One checkpoint that this process has saved or loaded.

    Attributes:
        base: Its version, stamp and the thread's epoch.
        lists: By path; the reserved list of the rest has the path ``()``.
        blocks: What is in the blocks that this process knows.
        checked_span: The span at which it was last seen that the blocks are used well enough.
    """

    base: Base
    lists: Mapping[Path, KnownList]
    blocks: Blocks
    checked_span: int = 0

    def weight(self) -> int:
        """Bytes that it keeps alive, roughly."""
        return sum(known.entries.weight() for known in self.lists.values()) + 150 * len(self.blocks)


def from_loaded(loaded: Loaded, *, contents: bool = True) -> Known:
    """What is known after a load.

    Args:
        loaded: The checkpoint.
        contents: Whether elements are to be compared with it by their content, not by their digests alone.
    """
    counts = loaded.counts()
    blocks = Blocks(counts, loaded.sizes(), max(counts, default=0))
    numbers = {h.path: h.number for h in loaded.heads}
    if loaded.rest is None:
        numbers[()] = REST
    lists: dict[Path, KnownList] = {}
    for path, number in numbers.items():
        entries = loaded.entries(number)
        snapshot = None
        if contents:
            snapshot = Snapshot()
            snapshot.extend(decode_entries(entries))
        remembered = Remembered([len(e.data) for e in entries], list(map(digest_of, entries)), snapshot)
        ranges = settled(loaded.refs.lists.get(number, ()), number, loaded.own_block, blocks)
        lists[path] = KnownList(number, remembered, ranges)
    return Known(loaded.base, lists, blocks)


def settled(ranges: Sequence[Range], number: int, own: int, blocks: Blocks) -> tuple[Range, ...]:
    """Ranges of a checkpoint that is stored: the own block has its number, and ranges are joined where they can be."""
    out: list[Range] = []
    for r in ranges:
        here = Range(own, own, r.skip, r.end) if r.first == OWN else r
        if out and blocks.joined(out[-1], here, number):
            out[-1] = Range(out[-1].first, here.last, out[-1].skip, here.end)
        else:
            out.append(here)
    return tuple(out)
