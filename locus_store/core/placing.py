"""Where the entries of a draft are and will be: numbers of lists, ranges of blocks, and what limits both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from locus_store.core.frames import Entry
from locus_store.core.known import Blocks, Known
from locus_store.core.loading import REST
from locus_store.core.matching import Draft
from locus_store.core.references import OWN, Range, References

MAX_RANGES = 64
"""How many ranges a list may have; beyond it a part of the list is stored again, such that half of them are left."""
SPAN_SLACK = 64
"""A checkpoint's blocks may span twice the number it uses, plus this."""
BLOCK_COST = 300
"""What it costs to read a block, in bytes, beside those that it holds."""


def place(drafts: Sequence[Draft], known: Known | None) -> Known | None:
    """Give the lists numbers, and store again what would make the checkpoint slow to load.

    Returns:
        What is known, with the span that was looked at.
    """
    _number(drafts, known)
    if known is None:
        return None
    for draft in drafts:
        _limit_ranges(draft, known.blocks)
    return _limit_span(drafts, known)


def _number(drafts: Sequence[Draft], known: Known | None) -> None:
    """Lists keep the numbers of the base; new ones get numbers that no list of the base has."""
    last = max((k.number for k in known.lists.values()), default=REST) if known is not None else REST
    for draft in drafts:
        if not draft.found.path:
            draft.number = REST
        elif draft.base is not None:
            draft.number = draft.base.number
        else:
            last += 1
            draft.number = last


# --------------------------------------------------------------------------------------------------------- the ranges


def ranges_of(draft: Draft, blocks: Blocks) -> list[Range]:
    """Where the draft's entries are and will be; block OWN stands for the own one."""
    base = draft.base
    if base is not None and draft.kept == base.entries.count and all([isinstance(t, Entry) for t in draft.tail]):
        return [*base.ranges, Range(OWN, OWN)] if draft.tail else list(base.ranges)
    return [r for r, _ in _pieces(draft, blocks)]


def _pieces(draft: Draft, blocks: Blocks) -> list[tuple[Range, int]]:
    """The ranges of a draft, each with the index of its first element."""
    places = draft.base.places(blocks) if draft.base is not None else []
    wanted: list[tuple[int, int]] = places[: draft.kept]
    new = 0
    for t in draft.tail:
        if isinstance(t, Entry):
            wanted.append((OWN, new))
            new += 1
        else:
            wanted.append(places[t])
    return compress(wanted, draft.number, blocks, new)


def compress(places: Sequence[tuple[int, int]], number: int, blocks: Blocks, own: int = 0) -> list[tuple[Range, int]]:
    """Ranges that take just these entries of a list, in this order, each with the index of its first one.

    Args:
        places: Block and offset of each entry.
        number: The list's number.
        blocks: What the blocks hold.
        own: How many entries of the list the own block will have.
    """

    def count(block: int) -> int:
        return own if block == OWN else blocks.count(block, number)

    found: list[tuple[Range, int]] = []
    first = skip = last = at = start = -1
    for index, (block, offset) in enumerate(places):
        if first >= 0:
            if (block == last and offset == at + 1) or (
                offset == 0
                and OWN < last < block
                and at + 1 == blocks.count(last, number)
                and blocks.lack(number, last + 1, block - 1)
            ):
                last, at = block, offset
                continue
            found.append((_range(first, skip, last, at, count(last)), start))
        first, skip, last, at, start = block, offset, block, offset, index
    if first >= 0:
        found.append((_range(first, skip, last, at, count(last)), start))
    return found


def _range(first: int, skip: int, last: int, at: int, count: int) -> Range:
    return Range(first, last, skip, None if at + 1 == count else at + 1)


# --------------------------------------------------------------------------------------------------------- the limits


def _limit_ranges(draft: Draft, blocks: Blocks) -> None:
    """Where a list would have too many ranges, store that part of it again which costs least."""
    if draft.base is None or len(draft.base.ranges) + len(draft.tail) <= MAX_RANGES:
        return
    pieces = _pieces(draft, blocks)
    if len(pieces) <= MAX_RANGES:
        return
    draft.fold()
    sizes = draft.base.entries.sizes
    costs = [0, *accumulate([0 if isinstance(t, Entry) else sizes[t] for t in draft.tail])]
    starts = [*(start for _, start in pieces), len(draft.tail)]
    # So many neighbouring ranges become one.
    width = len(pieces) - MAX_RANGES // 2 + 1
    cheapest = min(range(len(pieces) - width + 1), key=lambda i: costs[starts[i + width]] - costs[starts[i]])
    draft.store_again(starts[cheapest], starts[cheapest + width])


def _limit_span(drafts: Sequence[Draft], known: Known) -> Known:
    """Store the entries of far older blocks again where a load would have to read too much between.

    That is done when what is read in vain costs more than to store them again: then what is stored grows at most twice
    as fast as what is new, and a load reads at most about three times what it uses.
    """
    blocks = known.blocks
    low, high = _span(drafts, blocks)
    span = high - low + 1
    if span <= max(SPAN_SLACK, known.checked_span + SPAN_SLACK // 2):
        return known
    used = sorted(_used_blocks(drafts, blocks))
    if span > 2 * len(used) + SPAN_SLACK:
        # The longest part, counted from the newest block, that is used well enough.
        at = next(i for i, block in enumerate(used) if used[-1] - block + 1 <= 2 * (len(used) - i) + SPAN_SLACK)
        needed = set(used)
        vain = sum([blocks.size(n) + BLOCK_COST for n in range(low, high) if n not in needed])
        if sum([d.size_below(used[at], blocks) for d in drafts]) <= vain:
            for draft in drafts:
                draft.store_again_below(used[at], blocks)
            low, high = _span(drafts, blocks)
            span = high - low + 1
    return replace(known, checked_span=span)


def _span(drafts: Sequence[Draft], blocks: Blocks) -> tuple[int, int]:
    """The lowest and the highest block that the checkpoint will refer to; its own is the next one, or a later one."""
    low, high = References({d.number: ranges_of(d, blocks) for d in drafts}).span() or (blocks.top + 1, 0)
    return low, blocks.top + 1 if any([d.new() for d in drafts]) else high


def _used_blocks(drafts: Sequence[Draft], blocks: Blocks) -> set[int]:
    used = {
        block
        for d in drafts
        for r in ranges_of(d, blocks)
        if r.first != OWN
        for block in range(r.first, r.last + 1)
        if blocks.count(block, d.number)
    }
    return used | {blocks.top + 1} if any([d.new() for d in drafts]) else used
