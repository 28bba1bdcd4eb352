"""From what is stored to the document: reading one checkpoint."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from locus_store.core import frames
from locus_store.core.codec import Path, decode_entries, decode_lines
from locus_store.core.driver import Base, Stored
from locus_store.core.frames import MARKED, MIXED, Body, Codec, DamagedError, Entry, Frame, ThreadName
from locus_store.core.lists import put_back
from locus_store.core.references import References

REST = 0
"""The number of the reserved list, whose one entry is a large rest."""


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
        parts = self._parts(number)
        kinds = {p.kind for p in parts}
        if MIXED in kinds:
            items = decode_entries(self.entries(number))
        else:
            items = decode_lines(map(_Part.lines, parts), marked=MARKED in kinds)
        if len(items) != length:
            raise DamagedError("a block is missing or holds fewer entries than it should")
        return items

    def entries(self, number: int) -> list[Entry]:
        """The encoded entries of one list, in its order."""
        found: list[Entry] = []
        for p in self._parts(number):
            found += Frame(0, (), p.kind, bytes(p.body)).entries()[p.start : p.stop]
        return found

    def _parts(self, number: int) -> list[_Part]:
        """Where the entries of a list lie."""
        parts: list[_Part] = []
        for first, last, skip, end in self.refs.lists.get(number, ()):
            for block in self._numbers[bisect_left(self._numbers, first) : bisect_right(self._numbers, last)]:
                counts, kind, body = self._frames[block]
                at = 0
                for listed, count in counts:
                    if listed == number:
                        start = at + skip if block == first else at
                        stop = at + count if block != last or end is None else min(at + end, at + count)
                        whole = len(counts) == 1 and start == 0 and stop == count
                        parts.append(_Part(kind, body, start, stop, whole))
                    at += count
        return parts

    def counts(self) -> dict[int, dict[int, int]]:
        """For each block between the lowest and the highest one that is referred to: how many entries of which list."""
        span = self.refs.span()
        known: dict[int, dict[int, int]] = {} if span is None else {n: {} for n in range(span[0], span[1] + 1)}
        known.update({n: dict(counts) for n, (counts, _, _) in self._frames.items()})
        return known

    def weight(self) -> int:
        """Bytes that this object keeps alive, roughly."""
        return sum([len(body) + 300 for _, _, body in self._frames.values()]) + 500 * len(self.heads)


class _Part(NamedTuple):
    """Some neighbouring entries of a list.

    Attributes:
        kind: The kind of the frame that they lie in.
        body: The body of that frame.
        start: The first of them, counted from the beginning of the body.
        stop: The one after the last.
        whole: Whether they are all that the body holds.
    """

    kind: bytes
    body: Body
    start: int
    stop: int
    whole: bool

    def lines(self) -> Body:
        """The entries as lines."""
        if self.whole:
            return self.body
        return b"".join([line + b"\n" for line in bytes(self.body).split(b"\n")[self.start : self.stop]])
