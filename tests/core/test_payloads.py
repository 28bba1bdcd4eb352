"""Frames: what is written is read, joined frames stay frames, and nothing damaged is ever taken for something else."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locus_store.core import frames, payloads
from locus_store.core.codec import encode_entry
from locus_store.core.frames import (
    FORMAT,
    MARKED,
    MIXED,
    PLAIN,
    RAW,
    REMOVED,
    DamagedError,
    Entry,
    Frame,
    ThreadName,
    UnknownFormatError,
)
from locus_store.core.references import EntrySet, Range, References

HERE, THERE = ThreadName("default", "here"), ThreadName("default", "there")


class Zip:
    name = "zip"
    bound = False

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        return zlib.decompress(data)


class Bound:
    """Bytes that only their own thread can read."""

    name = "bound"
    bound = True

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return f"{thread.tenant}/{thread.thread_id}\n".encode() + bytes(b ^ 0x55 for b in data)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        head, _, body = data.partition(b"\n")
        if head.decode() != f"{thread.tenant}/{thread.thread_id}":
            raise ValueError("of another thread")
        return bytes(b ^ 0x55 for b in body)


CODECS: dict[str, Any] = {"none": None, "zip": Zip(), "bound": Bound()}


@pytest.fixture(params=list(CODECS))
def codec(request):
    return CODECS[request.param]


entry_lists = st.lists(
    st.one_of(st.text(max_size=8), st.integers(), st.tuples(st.integers()), st.binary(max_size=8)).map(encode_entry),
    min_size=1,
    max_size=6,
)


def counts_for(entries: list[Entry], cut: int) -> frames.Counts:
    cut = min(cut, len(entries))
    return tuple((n, c) for n, c in ((1, cut), (3, len(entries) - cut)) if c)


def values_of(entries: list[Entry]) -> list[tuple[bytes, bool]]:
    """What entries are, whatever the kind of the frame that they came in."""
    return [(e.data, e.kind == RAW) for e in entries]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 5), entry_lists, st.integers(0, 6)), min_size=1, max_size=5),
    st.sampled_from(list(CODECS)),
)
def test_joined_payloads_read_as_their_frames(blocks, name):
    codec = CODECS[name]
    number, written, payload = 0, [], b""
    for step, entries, cut in blocks:
        number += step
        counts = counts_for(entries, cut)
        payload += frames.numbered(number, frames.build(counts, entries, codec, HERE))
        written.append((number, counts, values_of(entries)))
    found = payloads.read(payload, codec, HERE)
    assert [(f.number, f.counts, values_of(f.entries())) for f in found] == written
    assert payloads.numbers([payload], codec, HERE) == [n for n, _, _ in written]
    scanned = payloads.scan([payload], codec, HERE)
    assert [f._replace(body=bytes(f.body)) for f in scanned.parts if isinstance(f, Frame)] == found


def test_kinds(codec):
    for entries, kind in (
        ([Entry(b"1", PLAIN)], PLAIN),
        ([Entry(b"1", PLAIN), Entry(b'{"$tuple":[]}', MARKED)], MARKED),
        ([Entry(b"1", PLAIN), Entry(b"", RAW), Entry(b"\n\n", RAW), Entry(b'{"$tuple":[]}', MARKED)], MIXED),
    ):
        frame = frames.read_one(frames.build(((1, len(entries)),), entries, codec, HERE), codec, HERE)
        assert frame.kind == kind
        assert values_of(frame.entries()) == values_of(entries)


def test_a_frame_of_no_entries(codec):
    frame = frames.build((), [Entry(b"[]", MARKED), Entry(b"{}", PLAIN)], codec, HERE)
    assert frames.read_one(frame, codec, HERE).counts == ()
    assert payloads.read(b"", codec, HERE) == []


# --- damage -----------------------------------------------------------------------------------------------------------


def payload_of(codec: Any, *numbers: int) -> bytes:
    entries = [Entry(b'{"a":1}', PLAIN), Entry(b'"\xc3\xa9"', PLAIN), Entry(b"2", PLAIN)]
    return b"".join([frames.numbered(n, frames.build(((1, 2), (12, 1)), entries, codec, HERE)) for n in numbers])


def test_every_changed_byte_of_a_frame_is_noticed(codec):
    good = frames.build(
        ((1, 2), (12, 1)), [Entry(b'{"a":1}', PLAIN), Entry(b"2", PLAIN), Entry(b"3", PLAIN)], codec, HERE
    )
    wanted = frames.read_one(good, codec, HERE)
    for at in range(len(good)):
        for value in {0, 10, 32, 45, 48, 49, 57, 255, good[at] ^ 1, good[at] ^ 0x20, good[at] ^ 0x80} - {good[at]}:
            bad = good[:at] + bytes([value]) + good[at + 1 :]
            with pytest.raises((DamagedError, UnknownFormatError)):
                frames.read_one(bad, codec, HERE)
    assert frames.read_one(good, codec, HERE) == wanted


def test_every_changed_byte_of_a_payload_is_noticed_or_changes_its_number_only(codec):
    good = payload_of(codec, 7, 12, 130)
    wanted = payloads.read(good, codec, HERE)
    for at in range(len(good)):
        for value in range(256):
            if value == good[at]:
                continue
            try:
                found = payloads.read(good[:at] + bytes([value]) + good[at + 1 :], codec, HERE)
            except (DamagedError, UnknownFormatError):
                continue
            # The store gives the number out, so the checksum cannot cover it; the order is what is left to check.
            assert [f[1:] for f in found] == [f[1:] for f in wanted]
            assert [f.number for f in found] == sorted({f.number for f in found})


def test_every_truncation_is_noticed_but_between_frames(codec):
    good = payload_of(codec, 1, 2, 3)
    ends = {0, len(payload_of(codec, 1)), len(payload_of(codec, 1, 2))}
    for at in range(len(good)):
        if at in ends:
            assert len(payloads.read(good[:at], codec, HERE)) == sorted(ends).index(at)
        else:
            with pytest.raises(DamagedError):
                payloads.read(good[:at], codec, HERE)
    one = frames.build((), [Entry(b"[]", PLAIN)], codec, HERE)
    for at in range(len(one)):
        with pytest.raises(DamagedError):
            frames.read_one(one[:at], codec, HERE)
    with pytest.raises(DamagedError):
        frames.read_one(one + b"x", codec, HERE)


def test_random_bytes_are_damage():
    rng = random.Random(1)
    for size in (1, 5, 40, 400):
        for _ in range(200):
            with pytest.raises((DamagedError, UnknownFormatError)):
                payloads.read(rng.randbytes(size), None, HERE)
            with pytest.raises((DamagedError, UnknownFormatError)):
                frames.read_one(rng.randbytes(size), None, HERE)


@pytest.mark.parametrize("numbers", [(2, 1), (3, 3), (1, 5, 4)])
def test_numbers_that_do_not_ascend_are_damage(numbers):
    """Else one block could be taken for another."""
    with pytest.raises(DamagedError, match="ascend"):
        payloads.read(payload_of(None, *numbers), None, HERE)
    with pytest.raises(DamagedError, match="ascend"):
        payloads.scan([payload_of(None, n) for n in numbers], None, HERE)


def test_a_newer_format_is_not_damage():
    for newer in (FORMAT + 1, 12, 999):
        for rest in (b" j - 1:1 3 00000000\n[]\n", b" anything else\n", b" "):
            with pytest.raises(UnknownFormatError, match=str(newer)):
                frames.read_one(b"%d%b" % (newer, rest), None, HERE)
            with pytest.raises(UnknownFormatError, match=str(newer)):
                payloads.read(b"5 %d%b" % (newer, rest), None, HERE)


def test_a_codec_that_is_missing_or_another_one():
    with pytest.raises(UnknownFormatError, match="zip"):
        payloads.read(payload_of(Zip(), 1), None, HERE)
    with pytest.raises(UnknownFormatError, match="zip"):
        payloads.read(payload_of(Zip(), 1), Bound(), HERE)
    assert payloads.read(payload_of(None, 1), Zip(), HERE) == payloads.read(payload_of(None, 1), None, HERE)
    with pytest.raises(DamagedError):  # whoever can write a row must not be able to undo the encryption
        payloads.read(payload_of(None, 1), Bound(), HERE)


def test_what_a_bound_codec_made_is_of_its_thread_only():
    payload = payload_of(Bound(), 1, 2)
    with pytest.raises(DamagedError):
        payloads.read(payload, Bound(), THERE)
    moved = payloads.rebind(payload, Bound(), HERE, THERE)
    assert payloads.read(moved, Bound(), THERE) == payloads.read(payload, Bound(), HERE)
    one = frames.build((), [Entry(b"[]", PLAIN)], Bound(), HERE)
    assert frames.read_one(frames.rebind_one(one, Bound(), HERE, THERE), Bound(), THERE) == frames.read_one(
        one, Bound(), HERE
    )


# --- removal ----------------------------------------------------------------------------------------------------------


def gone(*ranges: tuple[int, Range]) -> EntrySet:
    return EntrySet.of([References({number: [r]}) for number, r in ranges])


def test_strip_keeps_numbers_and_offsets(codec):
    entries = [encode_entry(v) for v in ("a", "b", (1,), "d")]
    payload = frames.numbered(4, frames.build(((1, 3), (2, 1)), entries, codec, HERE))
    assert payloads.strip(payload, gone((1, Range(5, 9))), codec, HERE) is payload
    assert payloads.strip(payload, gone((3, Range(1, 9))), codec, HERE) is payload

    stripped = payloads.strip(payload, gone((1, Range(4, 4, 1, 2))), codec, HERE)
    assert stripped is not None
    (frame,) = payloads.read(stripped, codec, HERE)
    assert (frame.number, frame.counts) == (4, ((1, 3), (2, 1)))
    assert [e.data for e in frame.entries()] == [b'"a"', b"", b'{"$tuple":[1]}', b'"d"']
    assert [e.kind == REMOVED for e in frame.entries()] == [False, True, False, False]

    again = payloads.strip(stripped, gone((1, Range(4, 4)), (2, Range(1, 4))), codec, HERE)
    assert again is None


def test_strip_keeps_raw_bytes_apart(codec):
    entries = [encode_entry(v) for v in (b"\x00\n", "b", b"")]
    payload = frames.numbered(1, frames.build(((1, 3),), entries, codec, HERE))
    stripped = payloads.strip(payload, gone((1, Range(1, 1, 0, 1))), codec, HERE)
    assert stripped is not None
    (frame,) = payloads.read(stripped, codec, HERE)
    assert frame.entries() == [Entry(b"", REMOVED), Entry(b'"b"', PLAIN), Entry(b"", RAW)]
    assert payloads.strip(stripped, gone((1, Range(1, 1, 0, 1))), codec, HERE) is not None


def test_strip_of_joined_blocks_drops_those_that_are_empty(codec):
    one = frames.build(((1, 1),), [Entry(b"1", PLAIN)], codec, HERE)
    payload = b"".join([frames.numbered(n, one) for n in (3, 4, 5)])
    stripped = payloads.strip(payload, gone((1, Range(4, 4))), codec, HERE)
    assert stripped is not None
    assert payloads.numbers([stripped], codec, HERE) == [3, 5]
    assert payloads.strip(payload, gone((1, Range(3, 5))), codec, HERE) is None
