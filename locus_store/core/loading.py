"""From what is stored to the document: reading one checkpoint."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

from locus_store.core import frames
from locus_store.core.codec import Path, decode_all, decode_joined
from locus_store.core.driver import Stored
from locus_store.core.frames import MARKED, MIXED, PLAIN, RAW, Codec, DamagedError, Entry, Frame, ThreadName
from locus_store.core.lists import put_back
from locus_store.core.references import References

REST = 0
"""The number of the reserved list, whose one entry is a large rest."""


class ListHead(NamedTuple):
    """What a checkpoint says of one list that was taken out of its document."""

    number: int
    kind: str
    count: int
    path: Path


class Loaded:
    """A stored checkpoint, read as far as its frames.

    Raises:
        DamagedError: A checksum differs or the text does not parse.
        UnknownFormatError: A newer release wrote it.
    """

    __slots__ = ("_by_number", "_numbers", "_split", "_spread", "heads", "refs", "rest", "stored")

    def __init__(self, stored: Stored, codec: Codec | None, thread: ThreadName) -> None:
        self.stored = stored
        try:
            self.refs = References.parse(stored.own_block, stored.ranges)
        except ValueError as e:
            raise DamagedError(str(e)) from e
        found = [f for payload in stored.blocks for f in frames.read(payload, codec, thread)]
        self._by_number = {f.number: f for f in found}
        self._numbers = sorted(self._by_number)
        self._split: dict[int, list[Entry]] = {}
        self._spread: dict[int, list[Entry]] = {}
        lines = frames.read_one(stored.payload, codec, thread).entries()
        try:
            self.heads = [ListHead(n, k, c, tuple(p)) for n, k, c, p in decode_all([lines[0].data], marked=True)[0]]
        except (TypeError, ValueError, IndexError) as e:
            raise DamagedError("the list of lists does not parse") from e
        self.rest = lines[1] if len(lines) > 1 else None

    def document(self) -> dict[Any, Any]:
        """The document, made anew at each call."""
        rest_entry = self.rest if self.rest is not None else self._one_entry(REST)
        rest = decode_all([rest_entry.data], marked=rest_entry.kind == MARKED)[0]
        if type(rest) is not dict:
            raise DamagedError("the rest is not a dict")
        try:
            return put_back(rest, [(h.path, h.kind, self._items(h)) for h in self.heads])
        except (LookupError, TypeError) as e:
            raise DamagedError("a list does not fit into the rest") from e

    def _one_entry(self, number: int) -> Entry:
        entries = self.entries(number)
        if len(entries) != 1:
            raise DamagedError("the rest is missing")
        return entries[0]

    def frames_of(self, first: int, last: int) -> list[Frame]:
        """The frames whose numbers lie between two, both included."""
        wanted = self._numbers[bisect_left(self._numbers, first) : bisect_right(self._numbers, last)]
        return [self._by_number[n] for n in wanted]

    def entries(self, number: int) -> list[Entry]:
        """The encoded entries of one list, in its order."""
        spread = self._spread.get(number)
        if spread is None:
            spread = []
            for r in self.refs.lists.get(number, ()):
                for f in self.frames_of(r.first, r.last):
                    spread += self._entries_in(f, number)[
                        r.skip if f.number == r.first else 0 : r.end if f.number == r.last else None
                    ]
            self._spread[number] = spread
        return spread

    def _entries_in(self, f: Frame, number: int) -> list[Entry]:
        at = 0
        for listed, count in f.counts:
            if listed == number:
                split = self._split.get(f.number)
                if split is None:
                    split = self._split[f.number] = f.entries()
                return split[at : at + count]
            at += count
        return []

    def _items(self, head: ListHead) -> list[Any]:
        items = self._items_of_whole_frames(head)
        if items is None:
            items = decode_entries(self.entries(head.number))
        if len(items) != head.count:
            raise DamagedError("a block is missing or holds fewer entries than it should")
        return items

    def _items_of_whole_frames(self, head: ListHead) -> list[Any] | None:
        """The elements, if the list consists of the whole bodies of frames that hold nothing else."""
        bodies: list[bytes] = []
        marked = False
        for r in self.refs.lists.get(head.number, ()):
            if r.skip or r.end is not None:
                return None
            for f in self.frames_of(r.first, r.last):
                if len(f.counts) == 1 and f.counts[0][0] == head.number and f.kind != MIXED:
                    bodies.append(f.body)
                    marked = marked or f.kind == MARKED
                elif any(listed == head.number for listed, _ in f.counts):
                    return None
        return decode_joined(b"".join(bodies)[:-1].replace(b"\n", b","), marked=marked)

    def counts(self) -> dict[int, dict[int, int]]:
        """For each block between the lowest and the highest one that is referred to: how many entries of which list."""
        span = self.refs.span()
        known: dict[int, dict[int, int]] = {} if span is None else {n: {} for n in range(span[0], span[1] + 1)}
        known.update({n: dict(f.counts) for n, f in self._by_number.items()})
        return known

    def size(self) -> int:
        """Bytes that this object keeps alive."""
        return len(self.stored.payload) + sum(map(len, self.stored.blocks))


def decode_entries(entries: list[Entry]) -> list[Any]:
    """Decode entries of one list, in as few calls as possible."""
    kinds = {e.kind for e in entries}
    if kinds <= {PLAIN, MARKED}:
        return decode_all([e.data for e in entries], marked=MARKED in kinds)
    if not kinds <= {PLAIN, MARKED, RAW}:
        raise DamagedError("an entry was removed that is still referred to")
    return [e.data if e.kind == RAW else decode_all([e.data], marked=e.kind == MARKED)[0] for e in entries]
