"""Payloads of blocks: sequences of frames with their blocks' numbers in front, and of bundles of such frames.

Joining the payloads of two blocks gives a valid payload, whatever is in them; `join` makes one that is read faster.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from zlib import crc32

from locus_store.core.bundles import Bundle, bundle, can_be_bundled, read_bundle
from locus_store.core.frames import (
    HEAD,
    REMOVED,
    Codec,
    DamagedError,
    Entry,
    Frame,
    ThreadName,
    build,
    counts_of,
    decoded,
    frame_of,
    not_ours,
    numbered,
)
from locus_store.core.references import EntrySet

Part = Frame | Bundle

_numbered_line = re.compile(rb"([0-9]{1,19}) " + HEAD).match


class Scanned:
    """The frames and bundles of some blocks, with ascending numbers.

    Attributes:
        parts: The frames and bundles.
    """

    __slots__ = ("_numbers", "parts")

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self._numbers = [part.number for part in parts]

    def between(self, first: int, last: int) -> list[Part]:
        """Those that have anything of blocks ``first`` to ``last``."""
        start = bisect_right(self._numbers, first)
        if start and self.parts[start - 1].last >= first:
            start -= 1
        return self.parts[start : bisect_right(self._numbers, last)]


# ------------------------------------------------------------------------------------------------------------ reading


def scan(payloads: Iterable[bytes], codec: Codec | None, thread: ThreadName) -> Scanned:
    """Read the frames of several blocks without copying them.

    Raises:
        DamagedError: A checksum differs, or the bytes are no frames with ascending numbers.
        UnknownFormatError: A newer release wrote them, or a codec that is missing here.
    """
    found: list[Part] = []
    for part, name, _, _ in _stored(payloads):
        if name != b"-" or codec is not None:
            body = decoded(name, part.body, codec, thread)
            part = part._replace(body=body) if isinstance(part, Frame) else part
        found.append(part)
    return Scanned(found)


def _stored(payloads: Iterable[bytes]) -> Iterator[tuple[Part, bytes, int, int]]:
    """Frames and bundles as they are stored, each with the name of its codec, and its place in its payload."""
    before = 0
    for payload in payloads:
        view = memoryview(payload)
        at = 0
        while at < len(payload):
            begin = at
            line = _numbered_line(payload, at)
            name = b"-"
            part: Part
            if line is not None:
                number, head, kind, name, counts, length, checksum = line.groups()
                start = line.end()
                at = start + int(length)
                body = view[start:at]
                if crc32(body, crc32(head)) != int(checksum, 16) or at > len(payload):
                    raise DamagedError("a checksum differs")
                part = Frame(int(number), counts_of(counts), kind, body)
            elif (bundled := read_bundle(payload, at)) is not None:
                part, at = bundled
            else:
                raise not_ours(payload, at, number=True)
            if part.number <= before:  # a frame's checksum does not cover its number, which the store gives out
                raise DamagedError("the numbers of blocks do not ascend")
            before = part.last
            yield part, name, begin, at


def read(payload: bytes, codec: Codec | None, thread: ThreadName) -> list[Frame]:
    """Read the frames of a block, those of bundles one by one; raises what `scan` does."""
    return [
        frame._replace(body=bytes(frame.body))
        for part in scan([payload], codec, thread).parts
        for frame in (part.frames() if isinstance(part, Bundle) else (part,))
    ]


def numbers(payloads: Iterable[bytes], codec: Codec | None, thread: ThreadName) -> list[int]:
    """The numbers of all frames in some blocks' payloads."""
    return [number for part in scan(payloads, codec, thread).parts for number, _ in part.counts_of_blocks()]


# ----------------------------------------------------------------------------------------------------------- changing


def join(payloads: Iterable[bytes]) -> bytes:
    """One payload in place of those of neighbouring blocks.

    What went through a codec, what holds raw bytes and what lacks entries stays as it is.

    Raises:
        DamagedError: One is damaged; in one payload with it, the others could not be read any more either.
        UnknownFormatError: A newer release wrote one; the same is true.
    """
    whole = b"".join(payloads)
    out: list[bytes] = []
    group: list[Part] = []
    start = stop = 0
    for part, name, begin, end in _stored([whole]):
        if name == b"-" and can_be_bundled(part):
            if begin != stop:
                out += [bundle(group) or whole[start:stop], whole[stop:begin]]
                group, start = [], begin
            group.append(part)
            stop = end
    return b"".join([*out, bundle(group) or whole[start:stop], whole[stop:]])


def strip(payload: bytes, gone: EntrySet, codec: Codec | None, thread: ThreadName) -> bytes | None:
    """Take entries out of a block's payload.

    Returns:
        The same object if none of them is in it, None if nothing is left, else the payload without them. Frames that
        are left keep their numbers, entries that are left keep their offsets.
    """
    out: list[bytes] = []
    changed = False
    for frame in read(payload, codec, thread):
        lost: set[int] = set()
        at = 0
        for number, count in frame.counts:
            lost.update(at + i for i in gone.offsets(number, frame.number, count))
            at += count
        entries = frame.entries()
        if lost:
            entries = [Entry(b"", REMOVED) if i in lost else e for i, e in enumerate(entries)]
        if all(e.kind == REMOVED for e in entries):
            changed = True
            continue
        changed = changed or bool(lost)
        out.append(numbered(frame.number, build(frame.counts, entries, codec, thread)))
    if not changed:
        return payload
    return join(out) or None


def rebind(payload: bytes, codec: Codec, source: ThreadName, dest: ThreadName) -> bytes:
    """A block's payload encoded anew for another thread."""
    return b"".join(
        [numbered(f.number, frame_of(f.counts, f.kind, f.body, codec, dest)) for f in read(payload, codec, source)]
    )
