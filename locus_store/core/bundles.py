"""Bundles: the frames of neighbouring blocks as one, which is read in one step and decoded in one call a list.

In place of a frame's first line there is::

    <first>-<last> <format> <kind> - <lists> <length> <checksum>\\n

``lists`` says for each list how many of its entries which block has and how many bytes it takes,
``1:2x49+3@51234,2:1x50@1021``: 49 blocks with two each, then one with three. The body holds, for each list, a JSON
array with one element a line, and a newline. The checksum covers the numbers too, which are given out already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from locus_store.core.frames import FORMAT, MARKED, MIXED, PLAIN, Body, DamagedError, Frame, Lines
from locus_store.core.references import Range


class Section(NamedTuple):
    """One list's part of a bundle.

    Attributes:
        counts: How many entries each block has, as the first line says it.
        start: Where its text begins in the body.
        stop: Where it ends.
    """

    counts: bytes
    start: int
    stop: int

    def by_block(self) -> list[int]:
        """How many entries each block has."""
        found: list[int] = []
        for run in self.counts.split(b"+"):
            count, _, times = run.partition(b"x")
            found += [int(count)] * int(times or 1)
        return found


class Bundle:
    """The frames of several blocks, read from one text.

    Attributes:
        number: The number of the first block.
        last: The number of the last one; some between may have nothing.
        kind: PLAIN or MARKED.
        body: The sections' texts.
        sections: By list's number.
    """

    __slots__ = ("body", "kind", "last", "number", "sections")

    def __init__(self, number: int, last: int, kind: bytes, body: Body, sections: dict[int, Section]) -> None:
        self.number = number
        self.last = last
        self.kind = kind
        self.body = body
        self.sections = sections

    def take(self, listed: int, r: Range) -> Lines | None:
        """The entries of a list that a range takes; None if there are none of that list."""
        section = self.sections.get(listed)
        if section is None:
            return None
        text = self._text(section)
        from_start = r.first < self.number or (r.first == self.number and not r.skip)
        to_end = r.last > self.last or (r.last == self.last and r.end is None)
        if from_start and to_end:
            return Lines(self.kind, text, array=True)
        counts = section.by_block()

        def place(block: int, offset: int | None) -> int:
            """Where an offset of a block is among the lines; None is the block's end."""
            count = counts[block - self.number]
            return sum(counts[: block - self.number]) + (count if offset is None else min(offset, count))

        start = 0 if from_start else place(r.first, r.skip)
        stop = sum(counts) if to_end else place(r.last, r.end)
        lines = bytes(text[1:-1]).split(b",\n")[start : max(start, stop)]
        return Lines(self.kind, b"".join([line + b"\n" for line in lines]))

    def _text(self, section: Section) -> Body:
        return self.body[section.start : section.stop]

    def frames(self) -> Iterator[Frame]:
        """The frames that it stands for."""
        lists = [
            (
                listed,
                section.by_block(),
                iter(Lines(self.kind, self.body[section.start : section.stop], True).entries()),
            )
            for listed, section in self.sections.items()
        ]
        for i in range(self.last - self.number + 1):
            counts = tuple([(listed, by_block[i]) for listed, by_block, _ in lists if by_block[i]])
            if counts:
                lines = [next(e).data + b"\n" for _, by_block, e in lists for _ in range(by_block[i])]
                yield Frame(self.number + i, counts, self.kind, b"".join(lines))

    def counts_of_blocks(self) -> Iterator[tuple[int, dict[int, int]]]:
        """For each block that has anything: how many entries of which list."""
        lists = [(listed, section.by_block()) for listed, section in self.sections.items()]
        for i in range(self.last - self.number + 1):
            counts = {listed: by_block[i] for listed, by_block in lists if by_block[i]}
            if counts:
                yield self.number + i, counts

    def sizes_of_blocks(self) -> Iterator[tuple[int, int]]:
        """The bytes of each block that has anything, roughly: all entries of a list count alike."""
        lists = [(section.by_block(), section.stop - section.start) for section in self.sections.values()]
        shares = [(by_block, size / sum(by_block)) for by_block, size in lists]
        for i in range(self.last - self.number + 1):
            size = round(sum([by_block[i] * share for by_block, share in shares]))
            if size:
                yield self.number + i, size


# ------------------------------------------------------------------------------------------------------------ writing


def bundle(parts: Sequence[Frame | Bundle]) -> bytes | None:
    """The text of a bundle of frames and other bundles, given in the order of their blocks.

    Returns:
        None for fewer than two.
    """
    if len(parts) < 2:
        return None
    first, last = parts[0].number, parts[-1].last
    lines: dict[int, list[bytes]] = {}
    counts: dict[int, list[int]] = {}
    for part in parts:
        for number, of_lists in part.counts_of_blocks():
            for listed, count in of_lists.items():
                counts.setdefault(listed, [0] * (last - first + 1))[number - first] = count
        for listed, entries in _lists_of(part):
            lines.setdefault(listed, []).extend(entries)
    texts = {listed: b"[%b]" % b",\n".join(found) for listed, found in lines.items()}
    heads = [b"%d:%b@%d" % (listed, _runs(counts[listed]), len(text)) for listed, text in texts.items()]
    body = b"".join([text + b"\n" for text in texts.values()])
    kind = MARKED if any([part.kind == MARKED for part in parts]) else PLAIN
    head = b"%d-%d %d %b - %b %d " % (first, last, FORMAT, kind, b",".join(heads), len(body))
    return b"%b%08x\n%b" % (head, crc32(body, crc32(head)), body)


def can_be_bundled(part: Frame | Bundle) -> bool:
    """Whether what went through no codec may be part of a bundle: all its entries are there, as text."""
    if isinstance(part, Bundle):
        return True
    body = bytes(part.body)
    return part.kind != MIXED and bool(part.counts) and body[:1] != b"\n" and b"\n\n" not in body


def _lists_of(part: Frame | Bundle) -> Iterator[tuple[int, list[bytes]]]:
    everything = Range(part.number, part.last)
    listed = part.sections if isinstance(part, Bundle) else dict(part.counts)
    for number in listed:
        found = part.take(number, everything)
        assert isinstance(found, Lines)
        yield number, [entry.data for entry in found.entries()]


def _runs(counts: Sequence[int]) -> bytes:
    runs = [(count, len(list(same))) for count, same in groupby(counts)]
    return b"+".join([b"%dx%d" % run if run[1] > 1 else b"%d" % run[0] for run in runs])


# ------------------------------------------------------------------------------------------------------------ reading

_RUN = rb"[0-9]{1,15}(?:x[0-9]{1,15})?"
_LIST = rb"[0-9]{1,15}:%b(?:\+%b)*@[0-9]{1,15}" % (_RUN, _RUN)
_first_line = re.compile(
    rb"(([0-9]{1,19})-([0-9]{1,19}) %d ([jm]) - (%b(?:,%b)*) ([0-9]{1,15}) )([0-9a-f]{8})\n" % (FORMAT, _LIST, _LIST)
).match


def read_bundle(payload: bytes, at: int) -> tuple[Bundle, int] | None:
    """The bundle that begins at a place in a payload, and where it ends; None if there is none.

    Raises:
        DamagedError: The checksum differs.
    """
    line = _first_line(payload, at)
    if line is None:
        return None
    head, first, last, kind, lists, length, checksum = line.groups()
    start = line.end()
    stop = start + int(length)
    body = memoryview(payload)[start:stop]
    if crc32(body, crc32(head)) != int(checksum, 16) or stop > len(payload):
        raise DamagedError("a checksum differs")
    sections: dict[int, Section] = {}
    begin = 0
    for text in lists.split(b","):
        listed, _, rest = text.partition(b":")
        counts, _, size = rest.partition(b"@")
        end = begin + int(size)
        sections[int(listed)] = Section(counts, begin, end)
        begin = end + 1
    return Bundle(int(first), int(last), kind, body, sections), stop
