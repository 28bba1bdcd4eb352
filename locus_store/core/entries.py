"""Planning a save: what of a document is new, and where the rest of it already is.

The laws of the entry log, tested in ``tests/core``: every checkpoint of any history loads equal; lists that only grow
keep one range each; what is stored grows with what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from locus_store.core import frames
from locus_store.core.codec import Path, encode
from locus_store.core.driver import Base
from locus_store.core.frames import Codec, Entry, ThreadName
from locus_store.core.known import BlockCounts, Known, KnownList, counts_of, settled
from locus_store.core.lists import Found, take_out
from locus_store.core.loading import REST
from locus_store.core.references import OWN, Range, References
from locus_store.core.unchanged import Marks, Watch, digest_of, encode_entry, mark_of

MIN_LIST = 256
"""Bytes from which on a list is taken out of its document."""
MAX_LISTS = 64
"""How many lists of a document are taken out at the most, the largest first."""
MIN_REST = 4096
"""Bytes above which the rest is itself an entry."""
MIN_RUN = 64
"""A run of old entries that is not at the beginning is reused only above so many bytes."""
MAX_RANGES = 64
"""How many ranges a list may have; beyond it the cheapest runs are stored again until half of them are left."""
SPAN_SLACK = 64
"""A checkpoint's blocks may span twice the number it uses, plus this."""


@dataclass(slots=True, eq=False)
class _Draft:
    """One list of the document that is being planned.

    Attributes:
        kept: How many elements at the beginning are the known ones and are not in the tail.
        prefix: How many elements at the beginning are the known ones.
        tail: For each element after them the index of a known entry, or an encoded entry.
    """

    found: Found
    known: KnownList | None
    kept: int = 0
    prefix: int = 0
    tail: list[int | Entry] = field(default_factory=list)
    number: int = 0
    encoded: dict[int, Entry] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.kept + len(self.tail)

    def size(self) -> int:
        old = sum(self.known.sizes[: self.kept]) if self.known is not None else 0
        return old + sum(
            len(t.data) if isinstance(t, Entry) else self.known.sizes[t]  # type: ignore[union-attr]  # an index is known's
            for t in self.tail
        )

    def entry(self, index: int) -> Entry:
        """Encode one element."""
        entry = self.encoded.get(index)
        if entry is None:
            entry = self.encoded[index] = encode_entry(self.found.plain_item(index), (*self.found.path, index))
        return entry


@dataclass(frozen=True, slots=True)
class Planned:
    """A save of a document, as far as the entry log is concerned.

    Attributes:
        base: What it reuses entries of, or None.
        block: The frame of its own block, or None.
        low: The lowest older block that it refers to, or None.
        high: The highest one, or None.
        ranges: The text of the ranges column.
        payload: The frame of the rest.
        learn: Given version, stamp, epoch and the own block's number, what is known after the save.
    """

    base: Base | None
    block: bytes | None
    low: int | None
    high: int | None
    ranges: bytes
    payload: bytes
    learn: Callable[[int, bytes, int, int], Known]


def plan(document: dict[Any, Any], known: Known | None, codec: Codec | None, thread: ThreadName) -> Planned:
    """Plan a save.

    Args:
        document: What is to be saved; not changed and not kept.
        known: What this process knows of the thread, or None.
        codec: What stored bytes go through, or None.
        thread: Where they belong.

    Raises:
        SerializationError: The document holds what cannot be stored.
    """
    rest, found = take_out(document)
    drafts = _choose([_match(f, known.lists.get(f.path) if known else None) for f in found])
    rest_entry, rest_draft = _plan_rest(rest, known)
    _number(drafts, known)
    if rest_draft is not None:
        drafts.append(rest_draft)
    if known is not None:
        for draft in drafts:
            _limit_ranges(draft, known.blocks)
        known = _limit_span(drafts, known)
    return _write(drafts, rest_entry, known, codec, thread)


# ------------------------------------------------------------------------------------------------ what is unchanged


def _match(found: Found, known: KnownList | None) -> _Draft:
    """Find out which elements are known ones."""
    draft = _Draft(found, known)
    if known is None:
        draft.tail = [draft.entry(i) for i in range(len(found.items))]
        return draft
    if known.quick is not None and _fits(known.quick, found) and known.quick.unchanged(found.items):
        draft.kept = draft.prefix = known.count
        draft.tail = [draft.entry(i) for i in range(known.count, len(found.items))]
        return draft
    return _match_slowly(draft, known)


def _fits(quick: Marks | Watch, found: Found) -> bool:
    return isinstance(quick, Marks) == (found.state_list is None)


def _match_slowly(draft: _Draft, known: KnownList) -> _Draft:
    """Compare element by element: the common beginning first, then runs of equal entries anywhere."""
    items = draft.found.items
    quick = known.quick if isinstance(known.quick, Marks) and draft.found.state_list is None else None
    while draft.kept < min(known.count, len(items)):
        i = draft.kept
        if quick is not None and not quick.recognises(items[i], quick.marks[i]):
            break
        if quick is None and digest_of(draft.entry(i)) != known.digests[i]:
            break
        draft.kept += 1
    draft.prefix = draft.kept
    if draft.kept == known.count:
        draft.tail = [draft.entry(i) for i in range(draft.kept, len(items))]
        return draft
    by_mark = {m: i for i, m in enumerate(quick.marks[: known.count])} if quick is not None else {}
    by_digest = {d: i for i, d in enumerate(known.digests[: known.count])}
    for i in range(draft.kept, len(items)):
        at = by_mark.get(mark_of(items[i], None)) if by_mark else None
        if at is None:
            at = by_digest.get(digest_of(draft.entry(i)))
        draft.tail.append(draft.entry(i) if at is None else at)
    _break_short_runs(draft, known)
    return draft


def _break_short_runs(draft: _Draft, known: KnownList) -> None:
    """Store short runs of old entries again: a range costs as much as they do."""
    for start, stop in _runs(draft.tail):
        if sum(known.sizes[t] for t in draft.tail[start:stop] if not isinstance(t, Entry)) <= MIN_RUN:
            _store_again(draft, start, stop)


def _runs(tail: Sequence[int | Entry]) -> list[tuple[int, int]]:
    """The runs of consecutive known indexes in a tail, as (start, stop)."""
    runs: list[tuple[int, int]] = []
    for i, t in enumerate(tail):
        if isinstance(t, Entry):
            continue
        if runs and runs[-1][1] == i and tail[i - 1] == t - 1:
            runs[-1] = runs[-1][0], i + 1
        else:
            runs.append((i, i + 1))
    return runs


def _store_again(draft: _Draft, start: int, stop: int) -> None:
    for i in range(start, stop):
        if not isinstance(draft.tail[i], Entry):
            draft.tail[i] = draft.entry(draft.kept + i)


def _choose(drafts: list[_Draft]) -> list[_Draft]:
    """Decide which lists are taken out; the others go back into the rest."""
    wanted = [d for d in drafts if d.known is not None or d.size() >= MIN_LIST]
    if len(wanted) > MAX_LISTS:
        largest = sorted(wanted, key=_Draft.size, reverse=True)[:MAX_LISTS]
        wanted = [d for d in wanted if d in largest]
    for d in drafts:
        if d not in wanted:
            d.found.put_back()
    return wanted


def _plan_rest(rest: dict[Any, Any], known: Known | None) -> tuple[Entry | None, _Draft | None]:
    """The rest as a line of the checkpoint, or as the entry of the reserved list."""
    found = Found((), (rest,), "l", None, {})
    known_rest = known.lists.get(()) if known is not None else None
    if known_rest is not None and isinstance(known_rest.quick, Marks) and known_rest.quick.unchanged((rest,)):
        return None, _Draft(found, known_rest, kept=1, prefix=1, number=REST)
    entry = encode(rest)
    if len(entry.data) <= MIN_REST:
        return entry, None
    if known_rest is not None and known_rest.digests[0] == digest_of(entry):
        return None, _Draft(found, known_rest, kept=1, prefix=1, number=REST)
    return None, _Draft(found, known_rest, tail=[entry], number=REST, encoded={0: entry})


def _number(drafts: list[_Draft], known: Known | None) -> None:
    """Lists keep the numbers of the base; new ones get numbers that no list of the base has."""
    last = max((k.number for k in known.lists.values()), default=REST) if known is not None else REST
    for draft in drafts:
        if draft.known is not None:
            draft.number = draft.known.number
        else:
            last += 1
            draft.number = last


# --------------------------------------------------------------------------------------------------------- the limits


def _limit_ranges(draft: _Draft, blocks: BlockCounts) -> None:
    """Store the cheapest runs again where a list would have too many ranges."""
    if draft.known is None or len(draft.known.ranges) + len(draft.tail) <= MAX_RANGES:
        return
    while (ranges := len(_ranges(draft, blocks))) > MAX_RANGES:
        _fold(draft)
        runs = _runs(draft.tail)
        sizes = sorted(
            (sum(draft.known.sizes[t] for t in draft.tail[a:b] if not isinstance(t, Entry)), a, b) for a, b in runs
        )
        for _, a, b in sizes[: max(1, ranges - MAX_RANGES // 2)]:
            _store_again(draft, a, b)


def _fold(draft: _Draft) -> None:
    """Treat the common beginning like any other known entries."""
    draft.tail[:0] = range(draft.kept)
    draft.kept = 0


def _limit_span(drafts: list[_Draft], known: Known) -> Known:
    """Store the entries of far older blocks again where a load would have to read too much between."""
    low, high = _span(drafts, known.blocks)
    span = high - low + 1
    if span <= max(SPAN_SLACK, known.checked_span + SPAN_SLACK // 2):
        return known
    used = sorted(_used_blocks(drafts, known.blocks))
    if span > 2 * len(used) + SPAN_SLACK:
        at = next(i for i, block in enumerate(used) if used[-1] - block + 1 <= 2 * (len(used) - i) + SPAN_SLACK)
        for draft in drafts:
            if draft.known is None or not draft.count:
                continue
            places = draft.known.places(known.blocks)
            _fold(draft)
            for i, t in enumerate(draft.tail):
                if not isinstance(t, Entry) and places[t][0] < used[at]:
                    draft.tail[i] = draft.entry(i)
        low, high = _span(drafts, known.blocks)
        span = high - low + 1
    return Known(known.base, known.lists, known.blocks, span)


def _span(drafts: list[_Draft], blocks: BlockCounts) -> tuple[int, int]:
    spans = [References({d.number: _ranges(d, blocks)}).span() for d in drafts]
    there = [s for s in spans if s is not None]
    return (min(a for a, _ in there), max(b for _, b in there)) if there else (0, -1)


def _used_blocks(drafts: list[_Draft], blocks: BlockCounts) -> set[int]:
    return {
        block
        for d in drafts
        for r in _ranges(d, blocks)
        if r.first != OWN
        for block in range(r.first, r.last + 1)
        if d.number in blocks[block]
    }


# -------------------------------------------------------------------------------------------------------- the ranges


def _ranges(draft: _Draft, blocks: BlockCounts) -> list[Range]:
    """Where the draft's entries are and will be; block OWN stands for the own one."""
    known = draft.known
    old = [t for t in draft.tail if not isinstance(t, Entry)]
    if known is not None and draft.kept == known.count and not old:
        ranges = list(known.ranges)
        if draft.tail:
            ranges.append(Range(OWN, OWN))
        return ranges
    places = known.places(blocks) if known is not None else []
    wanted: list[tuple[int, int]] = places[: draft.kept]
    new = 0
    for t in draft.tail:
        if isinstance(t, Entry):
            wanted.append((OWN, new))
            new += 1
        else:
            wanted.append(places[t])
    return compress(wanted, draft.number, {**blocks, OWN: {draft.number: new}} if new else blocks)


def compress(places: Sequence[tuple[int, int]], number: int, blocks: BlockCounts) -> list[Range]:
    """Ranges that take just these entries of a list, in this order."""
    ranges: list[Range] = []
    first = skip = last = at = -1
    for block, offset in places:
        if first >= 0 and (
            (block == last and offset == at + 1)
            or (
                offset == 0
                and OWN < last < block
                and at + 1 == blocks[last][number]
                and all(number not in blocks.get(b, (number,)) for b in range(last + 1, block))
            )
        ):
            last, at = block, offset
            continue
        if first >= 0:
            ranges.append(_range(first, skip, last, at, blocks[last][number]))
        first, skip, last, at = block, offset, block, offset
    if first >= 0:
        ranges.append(_range(first, skip, last, at, blocks[last][number]))
    return ranges


def _range(first: int, skip: int, last: int, at: int, count: int) -> Range:
    return Range(first, last, skip, None if at + 1 == count else at + 1)


# ------------------------------------------------------------------------------------------------------- the writing


def _write(
    drafts: list[_Draft], rest: Entry | None, known: Known | None, codec: Codec | None, thread: ThreadName
) -> Planned:
    blocks = known.blocks if known is not None else {}
    ranges = {d.number: _ranges(d, blocks) for d in drafts}
    references = References({n: r for n, r in ranges.items() if r})
    span = references.span()
    new = [(d.number, [t for t in d.tail if isinstance(t, Entry)]) for d in drafts]
    counts = tuple((number, len(entries)) for number, entries in new if entries)
    block = None
    if counts:
        block = frames.build(counts, [e for _, entries in new for e in entries], codec, thread)
    heads = encode([[d.number, d.found.kind, d.count, list(d.found.path)] for d in drafts if d.number != REST])
    lines = [heads] if rest is None else [heads, rest]
    payload = frames.build((), lines, codec, thread)

    # Worked out now, not after the save: the caller may change its lists while the save is under way.
    learned = [(d.found.path, _learn_list(d), ranges[d.number]) for d in drafts]
    added = counts_of(counts)
    checked_span = known.checked_span if known is not None else 0

    def learn(version: int, stamp: bytes, epoch: int, own: int) -> Known:
        after = blocks
        if span is None or len(blocks) > 4 * (span[1] - span[0]) + 256:
            after = {n: c for n, c in blocks.items() if span is not None and n >= span[0]}
        if own:
            after[own] = added
        lists = {path: replace(one, ranges=settled(r, one.number, own, after)) for path, one, r in learned}
        return Known(Base(version, stamp, epoch), lists, after, checked_span)

    return Planned(
        base=known.base if known is not None and span is not None else None,
        block=block,
        low=span[0] if span else None,
        high=span[1] if span else None,
        ranges=references.format(),
        payload=payload,
        learn=learn,
    )


def _learn_list(draft: _Draft) -> KnownList:
    """What is known of the list after the save, but for its ranges."""
    known = draft.known
    sizes: list[int] = []
    digests: list[bytes] = []
    if known is not None:
        shared = draft.kept == known.count == len(known.sizes)
        sizes = known.sizes if shared else known.sizes[: draft.kept]
        digests = known.digests if shared else known.digests[: draft.kept]
    more = [
        (len(t.data), digest_of(t)) if isinstance(t, Entry) else (known.sizes[t], known.digests[t])  # type: ignore[union-attr]
        for t in draft.tail
    ]
    sizes += [size for size, _ in more]
    digests += [digest for _, digest in more]
    return KnownList(draft.number, draft.count, sizes, digests, _learn_quick(draft, draft.found.items), ())


def _learn_quick(draft: _Draft, items: Sequence[Any]) -> Marks | Watch | None:
    """How the list's elements are recognised from now on."""
    quick = draft.known.quick if draft.known is not None else None
    if draft.found.state_list is not None:
        watch = quick if isinstance(quick, Watch) else Watch()
        if watch.count > draft.prefix:
            watch = watch.cut(draft.prefix) or Watch()
        return watch.extended(items[watch.count :])
    marks = quick if isinstance(quick, Marks) else Marks([], 0, slow=False)
    if marks.count > draft.prefix:
        marks = marks.cut(draft.prefix)
    entries = [draft.encoded.get(i) for i in range(marks.count, draft.count)]
    return marks.extended(items[marks.count : draft.count], entries)
