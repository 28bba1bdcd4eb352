"""From what is stored to the document: reading one checkpoint."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from locus_store.core import frames
from locus_store.core.codec import Path, decode_entries, decode_lines
from locus_store.core.driver import Base, Stored
from locus_store.core.frames import MARKED, MIXED, Codec, DamagedError, Entry, Frame, ThreadName
from locus_store.core.lists import put_back
from locus_store.core.references import Range, References
from locus_store.core.unchanged import Snapshot

REST = 0
"""The number of the reserved list, whose one entry is a large rest."""


class ListHead(NamedTuple):
    """What a checkpoint says of one list that was taken out of its document."""

    number: int
    kind: str
    count: int
    path: Path


def heads_line(heads: Sequence[ListHead], ranges: bytes) -> list[Any]:
    """The first line of a checkpoint: a checksum of its ranges, which stand in a column of their own, and its lists."""
    return [crc32(ranges), *([h.number, h.kind, h.count, list(h.path)] for h in heads)]


class Loaded:
    """A stored checkpoint, read as far as its frames.

    Attributes:
        base: Its version and stamp, and the thread's epoch.
        own_block: The number of its own block, 0 if it has none.
        refs: Its ranges.
        heads: Its lists.
        rest: The rest of the document, or None if that is an entry of the reserved list.
        snapshots: By number the content of each list, once `document` was asked for.

    Raises:
        DamagedError: A checksum differs or the text does not parse.
        UnknownFormatError: A newer release wrote it.
    """

    __slots__ = ("_by_number", "_lines", "_numbers", "base", "heads", "own_block", "refs", "rest", "snapshots")

    def __init__(self, stored: Stored, codec: Codec | None, thread: ThreadName) -> None:
        self.base = Base(stored.version, stored.stamp, stored.epoch)
        self.own_block = stored.own_block
        lines = frames.read_one(stored.payload, codec, thread).entries()
        try:
            self.refs = References.parse(stored.own_block, stored.ranges)
            checksum, *heads = decode_entries(lines[:1])[0]
            self.heads = [ListHead(number, kind, count, tuple(path)) for number, kind, count, path in heads]
        except DamagedError:
            raise
        except (TypeError, ValueError, IndexError) as e:
            raise DamagedError("the list of lists or the ranges do not parse") from e
        if checksum != crc32(stored.ranges):
            raise DamagedError("the checksum of the ranges differs")
        self.rest = lines[1] if len(lines) > 1 else None
        found: list[Frame] = []
        for payload in stored.blocks:
            found += frames.read(payload, codec, thread)
        self._by_number = {f.number: f for f in found}
        self._numbers = list(self._by_number)
        if len(found) != len(self._numbers) or self._numbers != sorted(self._numbers):
            raise DamagedError("the numbers of blocks do not ascend")
        self._lines: dict[int, list[Entry]] = {}
        self.snapshots: dict[int, Snapshot] = {}

    def document(self) -> dict[Any, Any]:
        """The document, made anew at each call."""
        entries = [self.rest] if self.rest is not None else self.entries(REST)
        if len(entries) != 1:
            raise DamagedError("the rest is missing")
        rest = decode_entries(entries)[0]
        if type(rest) is not dict:
            raise DamagedError("the rest is not a dict")
        if self.rest is None:
            self._remember(REST, [rest])
        lists = []
        for head in self.heads:
            items = self._items(head)
            self._remember(head.number, items)
            lists.append((head.path, head.kind, items))
        try:
            return put_back(rest, lists)
        except (LookupError, TypeError) as e:
            raise DamagedError("a list does not fit into the rest") from e

    def _remember(self, number: int, items: Sequence[Any]) -> None:
        """Keep what the elements are now: they belong to the caller, who may change them."""
        snapshot = self.snapshots[number] = Snapshot()
        snapshot.extend(items)

    def frames_of(self, r: Range) -> list[Frame]:
        """The frames of a range's blocks."""
        wanted = self._numbers[bisect_left(self._numbers, r.first) : bisect_right(self._numbers, r.last)]
        return list(map(self._by_number.__getitem__, wanted))

    def entries(self, number: int) -> list[Entry]:
        """The encoded entries of one list, in its order."""
        found: list[Entry] = []
        for r in self.refs.lists.get(number, ()):
            for f in self.frames_of(r):
                at = 0
                for listed, count in f.counts:
                    if listed == number:
                        here = self._split(f)[at : at + count]
                        if f.number == r.last:
                            here = here[: r.end]
                        found += here[r.skip :] if f.number == r.first else here
                    at += count
        return found

    def _split(self, f: Frame) -> list[Entry]:
        split = self._lines.get(f.number)
        if split is None:
            split = self._lines[f.number] = f.entries()
        return split

    def _items(self, head: ListHead) -> list[Any]:
        whole = self._whole_bodies(head.number)
        if whole is None:
            return self._checked(decode_entries(self.entries(head.number)), head)
        lines, marked = whole
        return self._checked(decode_lines(lines, marked=marked), head)

    def _whole_bodies(self, number: int) -> tuple[bytes, bool] | None:
        """The lines of a list, if it consists of the whole bodies of frames that hold nothing else."""
        bodies: list[bytes] = []
        marked = False
        for r in self.refs.lists.get(number, ()):
            if r.skip or r.end is not None:
                return None
            for f in self.frames_of(r):
                if len(f.counts) == 1 and f.counts[0][0] == number and f.kind != MIXED:
                    bodies.append(f.body)
                    marked = marked or f.kind == MARKED
                elif any(listed == number for listed, _ in f.counts):
                    return None
        return b"".join(bodies), marked

    @staticmethod
    def _checked(items: list[Any], head: ListHead) -> list[Any]:
        if len(items) != head.count:
            raise DamagedError("a block is missing or holds fewer entries than it should")
        return items

    def counts(self) -> dict[int, dict[int, int]]:
        """For each block between the lowest and the highest one that is referred to: how many entries of which list."""
        span = self.refs.span()
        known: dict[int, dict[int, int]] = {} if span is None else {n: {} for n in range(span[0], span[1] + 1)}
        known.update({n: dict(f.counts) for n, f in self._by_number.items()})
        return known

    def weight(self) -> int:
        """Bytes that this object keeps alive, roughly."""
        held = sum(s.weight() for s in self.snapshots.values())
        return held + 2 * sum(len(f.body) for f in self._by_number.values()) + 500 * len(self.heads)
