"""Frames: how encoded entries lie in a block, and the rest of a document in a checkpoint.

A frame is one line of ASCII, then a body::

    <format> <kind> <codec> <counts> <length> <checksum>\\n
    <body>

``counts`` says how many entries of which list follow, ``1:2,3:1``, or ``-``; ``codec`` is the name of the codec that
the body went through, or ``-``; ``length`` counts the stored body's bytes; the checksum is the CRC-32 of all before it
and the body. Bodies of kind ``j`` (plain JSON) and ``m`` (JSON with marks) hold one entry a line. Kind ``r`` holds
entries that may be raw bytes, each with a kind and a length in front. An entry that a removal took out is an empty line
(or a ``-``), so that the offsets of the others stay true.

In a block's payload each frame has the block's number and a space in front (see `locus_store.core.payloads`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

from locus_store.core.references import Range

FORMAT = 1

PLAIN, MARKED, RAW, REMOVED = b"j", b"m", b"b", b"-"
MIXED = b"r"
_ENTRY_HEAD = struct.Struct(">cI")


class DamagedError(ValueError):
    """Stored bytes are not what was written.

    Attributes:
        checkpoint_id: Whose they are, where only the one who found it can tell; else the caller adds it.
    """

    checkpoint_id: str | None = None


class UnknownFormatError(ValueError):
    """Stored bytes carry a format number, or went through a codec, that this reader does not know."""


class ThreadName(NamedTuple):
    """Tells a codec where its bytes belong."""

    tenant: str
    thread_id: str


class Codec(Protocol):
    """Something that stored bytes go through, for compression or encryption.

    Attributes:
        name: At most 16 letters and digits, stored with each frame.
        bound: True if what is encoded for one thread cannot be decoded for another; copies are then encoded anew.
    """

    name: str
    bound: bool

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        """What is stored in place of the data."""

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        """The data again; raises ValueError if the bytes are damaged or belong to another thread."""


class Entry(NamedTuple):
    """One encoded entry: its bytes and its kind (PLAIN, MARKED or RAW)."""

    data: bytes
    kind: bytes


Counts = tuple[tuple[int, int], ...]
Body = bytes | memoryview


class Lines(NamedTuple):
    """Entries that are one text.

    Attributes:
        kind: PLAIN or MARKED.
        text: One entry a line, each with a newline behind it; or a JSON array with one element a line.
        array: Whether it is the latter.
    """

    kind: bytes
    text: Body
    array: bool = False

    def entries(self) -> list[Entry]:
        """The entries, one by one."""
        text = bytes(self.text)
        return [Entry(line, self.kind) for line in (text[1:-1].split(b",\n") if self.array else text.split(b"\n")[:-1])]


Taken = Lines | list[Entry]
"""Entries of one list, as a frame has them."""


class Frame(NamedTuple):
    """One frame of a block.

    Attributes:
        number: The block's number.
        counts: Pairs of a list's number and how many of its entries follow, in the order of the body.
        kind: PLAIN, MARKED or MIXED.
        body: The decoded body.
    """

    number: int
    counts: Counts
    kind: bytes
    body: Body

    @property
    def last(self) -> int:
        """The last block that it is of, which is the only one."""
        return self.number

    def entries(self) -> list[Entry]:
        """All entries in the order of the body, removed ones included."""
        if self.kind == MIXED:
            return list(_mixed_entries(bytes(self.body)))
        return [Entry(line, self.kind if line else REMOVED) for line in bytes(self.body).split(b"\n")[:-1]]

    def take(self, listed: int, r: Range) -> Taken | None:
        """The entries of a list that a range takes; None if the frame has none of that list."""
        counts, kind = self.counts, self.kind
        if len(counts) == 1 and kind != MIXED and counts[0][0] == listed and r[2:] == _WHOLE:
            return Lines(kind, self.body)
        at = 0
        for number, count in counts:
            if number == listed:
                start = r.skip if r.first == self.number else 0
                stop = min(r.end, count) if r.last == self.number and r.end is not None else count
                taken = slice(at + start, at + max(start, stop))
                if kind == MIXED:
                    return self.entries()[taken]
                return Lines(kind, b"".join([line + b"\n" for line in bytes(self.body).split(b"\n")[taken]]))
            at += count
        return None

    def counts_of_blocks(self) -> Iterator[tuple[int, dict[int, int]]]:
        """Its block's number, and how many entries of which list that has."""
        yield self.number, dict(self.counts)

    def sizes_of_blocks(self) -> Iterator[tuple[int, int]]:
        """Its block's number, and the bytes that it has."""
        yield self.number, len(self.body)


_WHOLE = (0, None)


def _mixed_entries(body: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(body):
        kind, size = _ENTRY_HEAD.unpack_from(body, at)
        at += _ENTRY_HEAD.size
        yield Entry(body[at : at + size], kind)
        at += size


# ------------------------------------------------------------------------------------------------------------ writing


def build(counts: Counts, entries: Sequence[Entry], codec: Codec | None, thread: ThreadName) -> bytes:
    """A frame without a number in front."""
    kinds = {e.kind for e in entries}
    if kinds <= {PLAIN, REMOVED}:
        kind, body = PLAIN, b"".join([e.data + b"\n" for e in entries])
    elif kinds <= {PLAIN, MARKED, REMOVED}:
        kind, body = MARKED, b"".join([e.data + b"\n" for e in entries])
    else:
        kind, body = MIXED, b"".join([_ENTRY_HEAD.pack(e.kind, len(e.data)) + e.data for e in entries])
    return frame_of(counts, kind, body, codec, thread)


def frame_of(counts: Counts, kind: bytes, body: Body, codec: Codec | None, thread: ThreadName) -> bytes:
    """A frame of a body that is there already."""
    name, body = b"-", bytes(body)
    if codec is not None:
        name, body = codec.name.encode(), codec.encode(body, thread)
    listed = b",".join([b"%d:%d" % pair for pair in counts]) or b"-"
    head = b"%d %b %b %b %d " % (FORMAT, kind, name, listed, len(body))
    return b"%b%08x\n%b" % (head, crc32(body, crc32(head)), body)


def numbered(number: int, frame: bytes) -> bytes:
    """A block's payload: its number, a space, its frame."""
    return b"%d %b" % (number, frame)


# ------------------------------------------------------------------------------------------------------------ reading


HEAD = rb"(%d ([jmr]) ([^ \n]+) ([0-9:,]+|-) ([0-9]{1,15}) )([0-9a-f]{8})\n" % FORMAT
_first_line = re.compile(HEAD).match
_any_format = re.compile(rb"([0-9]{1,9}) ").match
_any_number = re.compile(rb"[0-9]{1,19}(-[0-9]{1,19})? ").match
_known_counts: dict[bytes, Counts] = {b"-": ()}
_MOST_KNOWN_COUNTS = 4096


def counts_of(text: bytes) -> Counts:
    """The counts in a frame's first line; raises `DamagedError`."""
    known = _known_counts.get(text)
    if known is not None:
        return known
    try:
        pairs = [part.split(b":") for part in text.split(b",")]
        found = tuple([(int(a), int(b)) for a, b in pairs])
    except ValueError as e:
        raise DamagedError("a frame's first line does not parse") from e
    if len(_known_counts) < _MOST_KNOWN_COUNTS:
        _known_counts[text] = found
    return found


def not_ours(payload: bytes, at: int, *, number: bool) -> DamagedError | UnknownFormatError:
    """Why a frame's first line does not parse."""
    if number and (found := _any_number(payload, at)):
        at = found.end()
    form = _any_format(payload, at)
    if form and int(form[1]) > FORMAT:
        return UnknownFormatError(f"format {int(form[1])}, this release reads {FORMAT}")
    return DamagedError("a frame's first line does not parse")


def decoded(name: bytes, body: Body, codec: Codec | None, thread: ThreadName) -> Body:
    """A stored body as it was before it went through the codec that its frame names."""
    if name == b"-":
        if codec is None or not codec.bound:
            return body
        # Else whoever can write a row could put plain bytes in the place of encrypted ones.
        raise DamagedError(f"it did not go through the codec {codec.name!r}")
    if codec is None or codec.name.encode() != name:
        raise UnknownFormatError(f"stored with the codec {ascii(name)[2:-1]!r}, which this store was not given")
    try:
        return codec.decode(bytes(body), thread)
    except Exception as e:
        raise DamagedError(f"the codec {codec.name!r} cannot decode it") from e


def read_one(frame: bytes, codec: Codec | None, thread: ThreadName) -> Frame:
    """Read a frame that has no number in front: the rest of a document.

    Raises:
        DamagedError: The checksum differs, or it is no frame.
        UnknownFormatError: A newer release wrote it, or a codec that is missing here.
    """
    line = _first_line(frame)
    if line is None:
        raise not_ours(frame, 0, number=False)
    head, kind, name, counts, length, checksum = line.groups()
    body: Body = frame[line.end() :]
    if len(body) != int(length) or crc32(body, crc32(head)) != int(checksum, 16):
        raise DamagedError("a checksum differs")
    if name != b"-" or codec is not None:
        body = decoded(name, body, codec, thread)
    return Frame(0, counts_of(counts), kind, bytes(body))


def rebind_one(frame: bytes, codec: Codec, source: ThreadName, dest: ThreadName) -> bytes:
    """A frame without a number, encoded anew for another thread."""
    found = read_one(frame, codec, source)
    return frame_of(found.counts, found.kind, found.body, codec, dest)
