"""From what is stored to the document: reading one checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from locus_store.core import frames
from locus_store.core.codec import decode_all, decode_entries
from locus_store.core.driver import Base, Stored
from locus_store.core.frames import Codec, DamagedError, Entry, Lines, Taken, ThreadName
from locus_store.core.lists import put_back
from locus_store.core.paths import Path
from locus_store.core.payloads import scan
from locus_store.core.references import Range, References

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

    __slots__ = ("_blocks", "base", "heads", "own_block", "refs", "rest")

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
        self._blocks = scan(stored.blocks, codec, thread)

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
        items = decode_all(self._taken(number))
        if len(items) != length:
            raise DamagedError("a block is missing or holds fewer entries than it should")
        return items

    def entries(self, number: int) -> list[Entry]:
        """The encoded entries of one list, in its order."""
        found: list[Entry] = []
        for taken in self._taken(number):
            found += taken.entries() if isinstance(taken, Lines) else taken
        return found

    def _taken(self, number: int) -> Iterator[Taken]:
        """The entries of one list, frame by frame."""
        for r in _neighbours_together(self.refs.lists.get(number, ())):
            for part in self._blocks.between(r.first, r.last):
                taken = part.take(number, r)
                if taken is not None:
                    yield taken

    def counts(self) -> dict[int, dict[int, int]]:
        """For each block between the lowest and the highest one that is referred to: how many entries of which list."""
        span = self.refs.span()
        known: dict[int, dict[int, int]] = {} if span is None else {n: {} for n in range(span[0], span[1] + 1)}
        for part in self._blocks.parts:
            known.update(part.counts_of_blocks())
        return known

    def sizes(self) -> dict[int, int]:
        """The bytes of each block that is there, roughly."""
        found: dict[int, int] = {}
        for part in self._blocks.parts:
            found.update(part.sizes_of_blocks())
        return found

    def weight(self) -> int:
        """Bytes that this object keeps alive, roughly."""
        return sum([len(part.body) + 300 for part in self._blocks.parts]) + 500 * len(self.heads)


def _neighbours_together(ranges: Sequence[Range]) -> list[Range]:
    """The same ranges, but the own block in one with those right before it: what was bundled is then taken whole."""
    found: list[Range] = []
    for r in ranges:
        if found and r.first == found[-1].last + 1 and not r.skip and found[-1].end is None:
            found[-1] = Range(found[-1].first, r.last, found[-1].skip, r.end)
        else:
            found.append(r)
    return found
