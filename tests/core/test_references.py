"""Ranges and sets of entries, against sets of (list, block, offset) written out one by one."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locus_store.core.known import Blocks, settled
from locus_store.core.placing import compress
from locus_store.core.references import OWN, EntrySet, Range, References, unreferenced

BLOCKS = 7
LISTS = (1, 2)
Entries = set[tuple[int, int, int]]
counts_of_blocks = st.lists(
    st.dictionaries(st.sampled_from(LISTS), st.integers(1, 3), max_size=2), min_size=BLOCKS, max_size=BLOCKS
).map(lambda found: {n + 1: c for n, c in enumerate(found)})


@st.composite
def ranges(draw: st.DrawFn, counts: dict[int, dict[int, int]], number: int) -> Range:
    """A range that begins and ends inside blocks which have entries of the list, as every real one does."""
    filled = [n for n, c in counts.items() if number in c]
    first = draw(st.sampled_from(filled))
    last = draw(st.sampled_from([n for n in filled if n >= first]))
    skip = draw(st.integers(0, counts[first][number] - 1))
    end = draw(st.one_of(st.none(), st.integers(skip + 1 if first == last else 1, counts[last][number])))
    return Range(first, last, skip, end)


@st.composite
def references(draw: st.DrawFn, counts: dict[int, dict[int, int]]) -> References:
    numbers = [n for n in LISTS if any(n in c for c in counts.values())]
    return References({n: draw(st.lists(ranges(counts, n), max_size=4)) for n in numbers})


def entries_of(refs: References, counts: dict[int, dict[int, int]]) -> Entries:
    """One by one, from the definition of a range."""
    found: Entries = set()
    for number, listed in refs.lists.items():
        for r in listed:
            for block in range(r.first, r.last + 1):
                for offset in range(counts.get(block, {}).get(number, 0)):
                    before = block == r.first and offset < r.skip
                    behind = block == r.last and r.end is not None and offset >= r.end
                    if not before and not behind:
                        found.add((number, block, offset))
    return found


def members(entries: EntrySet, counts: dict[int, dict[int, int]]) -> Entries:
    return {
        (number, block, offset)
        for block, listed in counts.items()
        for number, count in listed.items()
        for offset in entries.offsets(number, block, count)
    }


@settings(max_examples=150)
@given(st.data(), counts_of_blocks)
def test_what_only_the_dropped_refer_to(data, counts):
    dropped = data.draw(st.lists(references(counts), max_size=3))
    kept = data.draw(st.lists(references(counts), max_size=3))
    wanted: Entries = set().union(*(entries_of(r, counts) for r in dropped))
    wanted -= set().union(*(entries_of(r, counts) for r in kept))
    lost = unreferenced(dropped, kept)
    assert members(lost, counts) == wanted
    assert bool(lost) or not wanted
    within = {n for first, last in lost.blocks() for n in range(first, last + 1)}
    assert {block for _, block, _ in wanted} <= within
    runs = lost.blocks()
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(runs))


@settings(max_examples=100)
@given(st.data(), counts_of_blocks)
def test_minus_and_union_are_those_of_sets(data, counts):
    one, other = data.draw(references(counts)), data.draw(references(counts))
    both = EntrySet.of([one, other])
    assert members(both, counts) == entries_of(one, counts) | entries_of(other, counts)
    assert members(both.minus(EntrySet.of([other])), counts) == entries_of(one, counts) - entries_of(other, counts)
    assert not EntrySet.of([one]).minus(both)


@settings(max_examples=150)
@given(st.data(), counts_of_blocks)
def test_compressed_places_are_those_places_in_that_order(data, counts):
    number = 1
    everything = [(b, i) for b, c in counts.items() for i in range(c.get(number, 0))]
    places = data.draw(st.lists(st.sampled_from(everything), max_size=8)) if everything else []
    own = data.draw(st.integers(0, 2))
    places += [(OWN, i) for i in range(own)]
    known = Blocks(counts, {}, BLOCKS)
    found = compress(places, number, known, own)

    def spread(r: Range) -> list[tuple[int, int]]:
        there = {**counts, OWN: {number: own}}
        return sorted((b, i) for _, b, i in entries_of(References({number: [r]}), there))

    assert [place for r, _ in found for place in spread(r)] == places
    starts = [start for _, start in found]
    assert starts == sorted(set(starts))
    assert (starts[:1] == [0]) == bool(places)
    for (before, _), (after, _) in itertools.pairwise(found):
        if OWN not in (before.first, after.first):
            assert not known.joined(before, after, number), "two ranges that are one"


@given(st.data(), counts_of_blocks)
def test_settled_ranges_take_the_same_entries(data, counts):
    number, own = 1, BLOCKS + 1
    counts = {**counts, own: {number: 2}}
    listed = data.draw(references(counts)).lists.get(number, [])
    text = [r if r.first < own else Range(OWN, OWN, r.skip, r.end) for r in listed if r.first == r.last or r.last < own]
    wanted = [Range(own, own, r.skip, r.end) if r.first == OWN else r for r in text]
    found = settled(text, number, own, Blocks(counts, {}, own))
    assert entries_of(References({number: found}), counts) == entries_of(References({number: wanted}), counts)
    assert len(found) <= len(text)


def test_ranges_are_never_joined_over_blocks_that_are_not_known():
    counts = {1: {1: 1}, 2: {2: 1}, 3: {1: 1}}
    listed = [Range(1, 1), Range(3, 3)]
    assert settled(listed, 1, 0, Blocks(counts, {}, 3)) == (Range(1, 3),)
    assert settled(listed, 1, 0, Blocks({n: c for n, c in counts.items() if n != 2}, {}, 3)) == tuple(listed)
    assert settled(listed, 1, 0, Blocks({**counts, 2: {1: 1}}, {}, 3)) == tuple(listed)
    assert settled([Range(1, 1, 0, 1), Range(3, 3)], 1, 0, Blocks(counts, {}, 3)) == (Range(1, 1, 0, 1), Range(3, 3))
    # What others, who share the counts, know of later blocks is not this one's knowledge.
    early = Blocks({1: {1: 1}}, {}, 1)
    early.grown(2, {2: 1}, 9)
    assert settled([Range(1, 1), Range(OWN, OWN)], 1, 3, early.grown(3, {1: 1}, 9)) == (Range(1, 1), Range(3, 3))


def test_a_number_that_is_given_out_twice_leaves_earlier_knowledge_alone():
    """A store that was put back to an earlier state gives the next number again, for something else."""
    early = Blocks({1: {1: 1}}, {}, 1)
    one = early.grown(2, {1: 5}, 9)
    other = early.grown(2, {2: 7}, 8)
    assert (one.count(2, 1), one.count(2, 2)) == (5, 0)
    assert (other.count(2, 1), other.count(2, 2)) == (0, 7)
    assert one.lack(2, 2, 2)
    assert not other.lack(2, 2, 2)
    assert not early.lack(1, 2, 2)
    assert (early.size(2), one.size(2), other.size(2)) == (0, 9, 8)


@settings(max_examples=100)
@given(st.data(), counts_of_blocks)
def test_the_ranges_column_reads_as_it_was_written(data, counts):
    refs = data.draw(references(counts))
    assert References.parse(0, refs.format()).lists == refs.lists
    blocks = [b for listed in refs.lists.values() for r in listed for b in (r.first, r.last)]
    assert refs.span() == ((min(blocks), max(blocks)) if blocks else None)


def test_the_own_block_gets_its_number_when_it_is_read():
    refs = References({1: [Range(2, 5), Range(OWN, OWN)], 4: [Range(OWN, OWN, 1, 3)]})
    assert refs.format() == b"[[1,[2,5],[0]],[4,[0,0,1,3]]]"
    assert refs.span() == (2, 5)
    read = References.parse(9, refs.format())
    assert read.lists == {1: [Range(2, 5), Range(9, 9)], 4: [Range(9, 9, 1, 3)]}
    assert read.span() == (2, 9)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"1",
        b"{",
        b"[1]",
        b"[[]]",
        b'["ab"]',
        b'[["a",[1]]]',
        b"[[1,1]]",
        b"[[1,[]]]",
        b"[[1,[1,2,3,4,5]]]",
        b"[[1,[5,4]]]",
        b"[[1,[1.5]]]",
        b"[[1,[true]]]",
        b"[[1,[-1]]]",
        b'[[1,["1"]]]',
        b'{"1":[1]}',
        b"[[1,[null]]]",
        b"[[1,[0]]]",
        b"\xff",
    ],
)
def test_anything_else_is_no_ranges_column(text):
    with pytest.raises(ValueError, match="ranges"):
        References.parse(0, text)


def test_the_text_is_strict_json():
    refs = References({1: [Range(1, 1), Range(3, 4, 1), Range(6, 9, 0, 2)]})
    assert json.loads(refs.format()) == [[1, [1], [3, 4, 1], [6, 9, 0, 2]]]
