"""From what is stored to the document: reading one checkpoint."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from locus_store.core import frames
from locus_store.core.codec import decode_entries, decode_lines
from locus_store.core.driver import Base, Stored
from locus_store.core.frames import MARKED, MIXED, PLAIN, Body, Codec, Counts, DamagedError, Entry, Frame, ThreadName
from locus_store.core.lists import put_back
from locus_store.core.paths import Path
from locus_store.core.references import Range, References

REST = 0
"""The number of the reserved list, whose one entry is a large rest."""


_WHOLE = (0, None)


class ListHead(NamedTuple):
    """What a checkpoint says of one list that was taken out of its document."""

    number: int
    kind: str
    length: int
    path: Path


def heads_line(heads: Sequence[ListHead], ranges: bytes) -> list[Any]:
    """The first line of a checkpoint: a checksum of its ranges, which stand in a column of their own, and its lists."""
    return [crc32(ranges), *([h.number, h.kind, h.length, list(h.path)] for h in heads)]


class Loaded:
    """A stored checkpoint, read as far as its frames.

    Attributes:
        base: Its version and stamp, and the thread's epoch.
        own_block: The number of its own block, 0 if it has none.
        refs: Its ranges.
        heads: Its lists.
        rest: The rest of the document, or None if that is an entry of the reserved list.

    Raises:
        DamagedError: A checksum differs or the text does not parse.
        UnknownFormatError: A newer release wrote it.
    """

    __slots__ = ("_frames", "_numbers", "base", "heads", "own_block", "refs", "rest")

    def __init__(self, stored: Stored, codec: Codec | None, thread: ThreadName) -> None:
        self.base = Base(stored.version, stored.stamp, stored.epoch)
        self.own_block = stored.own_block
        lines = frames.read_one(stored.payload, codec, thread).entries()
        try:
            self.refs = References.parse(stored.own_block, stored.ranges)
            checksum, *heads = decode_entries(lines[:1])[0]
            self.heads = [ListHead(number, kind, length, tuple(path)) for number, kind, length, path in heads]
        except DamagedError:
            raise
        except (TypeError, ValueError, IndexError) as e:
            raise DamagedError("the list of lists or the ranges do not parse") from e
        if checksum != crc32(stored.ranges):
            raise DamagedError("the checksum of the ranges differs")
        self.rest = lines[1] if len(lines) > 1 else None
        self._frames = frames.scan(stored.blocks, codec, thread)
        self._numbers = list(self._frames)

    def document(self) -> dict[Any, Any]:
        """The document, made anew at each call."""
        rest = decode_entries([self.rest])[0] if self.rest is not None else self._items(REST, 1)[0]
        if type(rest) is not dict:
            raise DamagedError("the rest is not a dict")
        try:
            return put_back(rest, [(h.path, h.kind, self._items(h.number, h.length)) for h in self.heads])
        except (LookupError, TypeError) as e:
            raise DamagedError("a list does not fit into the rest") from e

    def _items(self, number: int, length: int) -> list[Any]:
        pieces, kinds = self._pieces(number)
        if MIXED in kinds:
            items = decode_entries(self._mixed_entries(number))
        else:
            items = decode_lines(pieces, marked=MARKED in kinds)
        if len(items) != length:
            raise DamagedError("a block is missing or holds fewer entries than it should")
        return items

    def entries(self, number: int) -> list[Entry]:
        """The encoded entries of one list, in its order."""
        pieces, kinds = self._pieces(number)
        if MIXED in kinds:
            return self._mixed_entries(number)
        kind = MARKED if MARKED in kinds else PLAIN
        return [Entry(line, kind) for line in b"".join(pieces).split(b"\n")[:-1]]

    def _pieces(self, number: int) -> tuple[list[Body], set[bytes]]:
        """The lines of a list, and the kinds of the frames that they lie in; incomplete if one of these is MIXED."""
        pieces: list[Body] = []
        kinds: set[bytes] = set()
        for r in self.refs.lists.get(number, ()):
            for block in self._blocks(r):
                counts, kind, body = self._frames[block]
                if len(counts) == 1 and counts[0][0] == number and r[2:] == _WHOLE:
                    pieces.append(body)
                    kinds.add(kind)
                    continue
                selected = _select(counts, number, r, block)
                if selected is not None:
                    kinds.add(kind)
                    if kind != MIXED:
                        pieces.append(b"".join([line + b"\n" for line in bytes(body).split(b"\n")[selected]]))
        return pieces, kinds

    def _mixed_entries(self, number: int) -> list[Entry]:
        found: list[Entry] = []
        for r in self.refs.lists.get(number, ()):
            for block in self._blocks(r):
                counts, kind, body = self._frames[block]
                selected = _select(counts, number, r, block)
                if selected is not None:
                    found += Frame(block, counts, kind, bytes(body)).entries()[selected]
        return found

    def _blocks(self, r: Range) -> list[int]:
        """The blocks of a range that are there."""
        return self._numbers[bisect_left(self._numbers, r.first) : bisect_right(self._numbers, r.last)]

    def counts(self) -> dict[int, dict[int, int]]:
        """For each block between the lowest and the highest one that is referred to: how many entries of which list."""
        span = self.refs.span()
        known: dict[int, dict[int, int]] = {} if span is None else {n: {} for n in range(span[0], span[1] + 1)}
        known.update({n: dict(counts) for n, (counts, _, _) in self._frames.items()})
        return known

    def sizes(self) -> dict[int, int]:
        """The bytes of each block that is there."""
        return {n: len(body) for n, (_, _, body) in self._frames.items()}

    def weight(self) -> int:
        """Bytes that this object keeps alive, roughly."""
        return sum([len(body) + 300 for _, _, body in self._frames.values()]) + 500 * len(self.heads)


def _select(counts: Counts, number: int, r: Range, block: int) -> slice | None:
    """Which of a frame's entries belong to a range; None if it has none of that list."""
    at = 0
    for listed, count in counts:
        if listed == number:
            start = r.skip if block == r.first else 0
            stop = min(r.end, count) if block == r.last and r.end is not None else count
            return slice(at + start, at + max(start, stop))
        at += count
    return None
