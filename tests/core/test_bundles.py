"""Bundles: joined blocks read as their frames, whatever is asked of them, and what cannot be bundled stays as it is."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locus_store.core import frames, payloads
from locus_store.core.bundles import Bundle
from locus_store.core.codec import decode_all, decode_entries, encode_entry
from locus_store.core.frames import DamagedError, Entry, Frame, ThreadName, UnknownFormatError
from locus_store.core.references import EntrySet, Range, References

HERE = ThreadName("default", "here")


class Zip:
    name = "zip"
    bound = False

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        return zlib.decompress(data)


class Sealed(Zip):
    bound = True


def block(number: int, lists: dict[int, list[Any]], codec: Any = None) -> bytes:
    entries = [encode_entry(value) for values in lists.values() for value in values]
    counts = tuple((listed, len(values)) for listed, values in lists.items() if values)
    return frames.numbered(number, frames.build(counts, entries, codec, HERE))


def parts(payload: bytes, codec: Any = None) -> list[Frame | Bundle]:
    return payloads.scan([payload], codec, HERE).parts


values = st.one_of(
    st.text(max_size=6),
    st.integers(-5, 5),
    st.dictionaries(st.sampled_from(["$tuple", "a", "b\n"]), st.text(max_size=3), max_size=2),
    st.tuples(st.integers()),
)
with_bytes = st.one_of(values, st.binary(max_size=4))
histories = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.dictionaries(st.integers(1, 3), st.lists(values, min_size=1, max_size=3), min_size=1),
    ),
    min_size=2,
    max_size=7,
)


def numbered_history(steps: list[tuple[int, dict[int, list[Any]]]]) -> list[tuple[int, dict[int, list[Any]]]]:
    number, found = 4, []
    for step, lists in steps:
        number += step
        found.append((number, lists))
    return found


@settings(max_examples=300)
@given(histories, st.integers(0, 30), st.integers(0, 30), st.integers(0, 3), st.none() | st.integers(0, 3))
def test_a_range_takes_from_a_bundle_what_it_takes_from_the_frames(steps, first, last, skip, end):
    history = numbered_history(steps)
    apart = b"".join([block(n, lists) for n, lists in history])
    together = payloads.join([block(n, lists) for n, lists in history])
    (bundle,) = parts(together)
    assert isinstance(bundle, Bundle)
    assert payloads.read(together, None, HERE) == sorted_by_list(payloads.read(apart, None, HERE), bundle)
    assert payloads.numbers([together], None, HERE) == [n for n, _ in history]
    assert list(bundle.counts_of_blocks()) == [(n, {k: len(v) for k, v in lists.items()}) for n, lists in history]

    wanted = Range(min(first, last), max(first, last), skip, end)
    for listed in (1, 2, 3):
        one_by_one = taken(payloads.scan([apart], None, HERE), listed, wanted)
        at_once = taken(payloads.scan([together], None, HERE), listed, wanted)
        assert decode_all(at_once) == decode_all(one_by_one)
        assert entries(at_once) == entries(one_by_one)


def sorted_by_list(found: list[Frame], bundle: Bundle) -> list[Frame]:
    """The frames with their lists in the bundle's order, and its kind."""
    order = {listed: i for i, listed in enumerate(bundle.sections)}
    out = []
    for frame in found:
        lines: dict[int, list[bytes]] = {}
        at = iter(frame.entries())
        for listed, count in frame.counts:
            lines[listed] = [next(at).data for _ in range(count)]
        counts = tuple(sorted(frame.counts, key=lambda c: order[c[0]]))
        body = b"".join([line + b"\n" for listed, _ in counts for line in lines[listed]])
        out.append(Frame(frame.number, counts, bundle.kind, body))
    return out


def taken(scanned: payloads.Scanned, listed: int, r: Range) -> list[frames.Taken]:
    found = [part.take(listed, r) for part in scanned.between(r.first, r.last)]
    return [part for part in found if part is not None]


def entries(found: list[frames.Taken]) -> list[bytes]:
    return [e.data for part in found for e in (part if isinstance(part, list) else part.entries())]


@settings(max_examples=100)
@given(histories, st.lists(st.integers(1, 6), min_size=1, max_size=7))
def test_bundles_are_bundled_again(steps, cuts):
    history = [block(n, lists) for n, lists in numbered_history(steps)]
    pieces = []
    while history:
        cut = cuts[len(pieces) % len(cuts)]
        pieces.append(payloads.join(history[:cut]))
        history = history[cut:]
    whole = payloads.join([block(n, lists) for n, lists in numbered_history(steps)])
    (bundle,) = parts(whole)
    again = payloads.join(pieces)
    assert payloads.join([again]) == again
    (one,) = parts(again)
    assert isinstance(one, Bundle)
    assert isinstance(bundle, Bundle)
    assert list(one.counts_of_blocks()) == list(bundle.counts_of_blocks())
    for listed in (1, 2, 3):
        everything = Range(1, 99)
        assert entries(taken(payloads.scan([again], None, HERE), listed, everything)) == entries(
            taken(payloads.scan([whole], None, HERE), listed, everything)
        )


def test_what_cannot_be_bundled_stays_between_the_bundles():
    zipped, raw, empty = block(5, {1: ["z"]}, Zip()), block(8, {1: [b"\x00\n\n"]}), block(9, {1: [1, 2]})
    stripped = payloads.strip(empty, EntrySet.of([References({1: [Range(9, 9, 1)]})]), None, HERE)
    assert stripped is not None
    pieces = [
        block(1, {1: ["a"]}),
        block(2, {1: ["b"], 2: [()]}),
        zipped,
        block(6, {1: ["c"]}),
        raw,
        stripped,
        block(10, {1: ["d"]}),
        block(12, {1: ["e"]}),
    ]
    joined = payloads.join(pieces)
    assert [(part.number, part.last) for part in parts(joined, Zip())] == [
        (1, 2),
        (5, 5),
        (6, 6),
        (8, 8),
        (9, 9),
        (10, 12),
    ]
    for piece in (zipped, pieces[3], raw, stripped):
        assert piece in joined
    assert [f.number for f in payloads.read(joined, Zip(), HERE)] == [1, 2, 5, 6, 8, 9, 10, 12]
    assert payloads.join([pieces[0]]) == pieces[0]
    assert payloads.join([]) == b""


def test_what_is_damaged_or_newer_is_joined_with_nothing():
    good = [block(n, {1: ["text"]}) for n in (1, 2, 3)]
    bad = good[1].replace(b"text", b"test")
    for pieces in ([good[0], bad, good[2]], [good[2], good[0]], [b"garbage", good[0]]):
        with pytest.raises(DamagedError):
            payloads.join(pieces)
        with pytest.raises(DamagedError):
            payloads.read(b"".join(pieces), None, HERE)
    newer = good[2].replace(b"3 1 j", b"3 2 j")
    with pytest.raises(UnknownFormatError, match="format 2"):
        payloads.join([good[0], newer])
    with pytest.raises(UnknownFormatError, match="format 2"):
        payloads.read(good[0] + newer, None, HERE)
    with pytest.raises(UnknownFormatError, match="format 7"):
        payloads.read(payloads.join(good).replace(b"1-3 1 j", b"1-3 7 j"), None, HERE)


def test_every_changed_byte_of_a_bundle_is_noticed():
    """Its numbers too, unlike a frame's."""
    good = payloads.join([block(n, {1: [n, {"a": 1}], 2: ["é"]}) for n in (7, 8, 12)])
    for at in range(len(good)):
        for value in range(256):
            if value != good[at]:
                with pytest.raises((DamagedError, UnknownFormatError)):
                    payloads.read(good[:at] + bytes([value]) + good[at + 1 :], None, HERE)
    for at in range(1, len(good)):
        with pytest.raises(DamagedError):
            payloads.read(good[:at], None, HERE)


def test_a_bundle_is_no_way_round_encryption():
    joined = payloads.join([block(n, {1: ["plain"]}) for n in (1, 2)])
    with pytest.raises(DamagedError, match="did not go through"):
        payloads.read(joined, Sealed(), HERE)
    assert payloads.read(joined, Zip(), HERE) == payloads.read(joined, None, HERE)


def test_entries_are_taken_out_of_a_bundle_and_the_others_stay_bundled():
    joined = payloads.join([block(n, {1: [f"{n}a", f"{n}b"], 2: [n]}) for n in range(1, 7)])
    same = EntrySet.of([References({1: [Range(7, 9)], 3: [Range(1, 9)]})])
    assert payloads.strip(joined, same, None, HERE) is joined
    gone = EntrySet.of([References({1: [Range(3, 3, 0, 1), Range(5, 5)], 2: [Range(5, 5)]})])
    left = payloads.strip(joined, gone, None, HERE)
    assert left is not None
    assert [(part.number, part.last) for part in parts(left)] == [(1, 2), (3, 3), (4, 6)]
    assert [f.number for f in payloads.read(left, None, HERE)] == [1, 2, 3, 4, 6]
    found = taken(payloads.scan([left], None, HERE), 1, Range(1, 2)) + taken(
        payloads.scan([left], None, HERE), 1, Range(3, 6, 1)
    )
    assert decode_all(found) == ["1a", "1b", "2a", "2b", "3b", "4a", "4b", "6a", "6b"]
    assert payloads.strip(joined, EntrySet.of([References({1: [Range(1, 9)], 2: [Range(1, 9)]})]), None, HERE) is None


def test_sizes_are_shared_out():
    history = [(n, {1: ["x" * 100] * n, 2: [0]}) for n in range(1, 5)]
    joined = payloads.join([block(n, lists) for n, lists in history])
    (bundle,) = parts(joined)
    sizes = dict(bundle.sizes_of_blocks())
    assert list(sizes) == [1, 2, 3, 4]
    for n, lists in history:
        alone = len(b"".join([e.data for e in map(encode_entry, lists[1] + lists[2])]))
        assert sizes[n] == pytest.approx(alone, rel=0.1)


@given(st.lists(with_bytes, max_size=6), st.booleans())
def test_values_decode_alike_from_lines_and_from_arrays(found, split):
    """Entries that are taken frame by frame, whatever their kinds, are those that one call would decode."""
    pieces = [block(n + 1, {1: [value]}) for n, value in enumerate(found)]
    payload = b"".join(pieces) if split else payloads.join(pieces)
    got = decode_all(taken(payloads.scan([payload], None, HERE), 1, Range(1, 99)))
    assert got == decode_entries([encode_entry(value) for value in found]) == found
    assert list(map(type, got)) == list(map(type, found))


def test_an_entry_that_was_removed_cannot_be_decoded():
    payload = payloads.join([block(1, {1: ["a"]}), block(2, {1: ["b", "c"]})])
    left = payloads.strip(payload, EntrySet.of([References({1: [Range(2, 2, 0, 1)]})]), None, HERE)
    assert left is not None
    scanned = payloads.scan([left], None, HERE)
    assert decode_all(taken(scanned, 1, Range(1, 1))) == ["a"]
    assert decode_all(taken(scanned, 1, Range(2, 2, 1))) == ["c"]
    with pytest.raises(DamagedError):
        decode_all(taken(scanned, 1, Range(1, 2)))
    assert Entry(b"", frames.REMOVED) in payloads.read(left, None, HERE)[1].entries()
