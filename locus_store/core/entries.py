"""Planning a save: what of a document is new, and where the rest of it already is.

The laws of the entry log, tested in ``tests/core``: every checkpoint of any history loads equal; lists that only grow
keep one range each; what is stored grows with what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from locus_store.core import frames
from locus_store.core.codec import encode
from locus_store.core.driver import Base
from locus_store.core.frames import Codec, Entry, ThreadName
from locus_store.core.known import Blocks, Known, KnownList, settled
from locus_store.core.lists import LIST, Found, take_out
from locus_store.core.loading import REST, ListHead, heads_line
from locus_store.core.matching import Draft, match, match_again
from locus_store.core.placing import place, ranges_of
from locus_store.core.references import References

MIN_LIST = 256
"""Bytes from which on a list is taken out of its document."""
MAX_LISTS = 64
"""How many lists of a document are taken out at the most, the largest first."""
MIN_REST = 4096
"""Bytes above which the rest is itself an entry."""


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
        again: The same save planned on another checkpoint, or on none; the document may have been changed meanwhile.
    """

    base: Base | None
    block: bytes | None
    low: int | None
    high: int | None
    ranges: bytes
    payload: bytes
    learn: Callable[[int, bytes, int, int], Known]
    again: Callable[[Known | None], Planned]


def plan(document: dict[Any, Any], hints: Sequence[Known], codec: Codec | None, thread: ThreadName) -> Planned:
    """Plan a save.

    Args:
        document: What is to be saved; not changed and not kept.
        hints: What this process knows of the thread, the most promising first.
        codec: What stored bytes go through, or None.
        thread: Where they belong.

    Raises:
        SerializationError: The document holds what cannot be stored.
    """
    known = hints[0] if hints else None
    rest, found = take_out(document)
    drafts = _choose(found, known)
    rest_draft = match(Found((), (rest,), LIST, None, {}), known)
    inline = next((e for e in rest_draft.new() if len(e.data) <= MIN_REST), None)
    if inline is None:
        drafts.append(rest_draft)
    # Worked out now, not after the save: the caller may change its document while the save is under way.
    for draft in drafts:
        draft.learn()
    planned = _Plan(drafts, inline, codec, thread).on(known)
    for other in hints[1:]:  # whoever looks at an old checkpoint may go on from there, or from where it was before
        if planned.block is not None:
            second = planned.again(other)
            if second.block is None or len(second.block) < len(planned.block):
                planned = second
    return planned


def _choose(found: Sequence[Found], known: Known | None) -> list[Draft]:
    """Decide which lists are taken out; the others go back into the rest."""
    drafts: list[Draft] = []
    for one in found:
        if (known is None or one.path not in known.lists) and _surely_small(one):
            one.put_back()
            continue
        draft = match(one, known)
        if draft.base is None and draft.size() < MIN_LIST:
            one.put_back()
        else:
            drafts.append(draft)
    if len(drafts) > MAX_LISTS:
        largest = sorted(drafts, key=Draft.size, reverse=True)
        for draft in largest[MAX_LISTS:]:
            draft.found.put_back()
        chosen = {id(d) for d in largest[:MAX_LISTS]}
        drafts = [d for d in drafts if id(d) in chosen]
    return drafts


def _surely_small(found: Found) -> bool:
    """Whether a list is so small that it need not be encoded to know that it is not taken out."""
    if 2 * len(found.items) >= MIN_LIST or found.state_list is not None:
        return not found.items
    size = 0
    for item in found.items:
        kind = type(item)
        if kind is float or kind is bool or item is None:
            size += 25
        elif kind is str:
            size += 12 * len(item) + 12
        else:
            return False
    return size < MIN_LIST


@dataclass(frozen=True, slots=True)
class _Plan:
    """A document that is to be saved.

    Attributes:
        drafts: Its lists, the reserved one of a large rest included.
        rest: A small rest, or None.
    """

    drafts: list[Draft]
    rest: Entry | None
    codec: Codec | None
    thread: ThreadName

    def again(self, known: Known | None) -> Planned:
        """Plan on another checkpoint."""
        return _Plan([match_again(d, known) for d in self.drafts], self.rest, self.codec, self.thread).on(known)

    def on(self, known: Known | None) -> Planned:
        """Plan on the checkpoint that the drafts were matched with."""
        drafts = self.drafts
        known = place(drafts, known)
        blocks = known.blocks if known is not None else Blocks({}, {}, 0)
        ranges = {d.number: ranges_of(d, blocks) for d in drafts}
        references = References({n: r for n, r in ranges.items() if r})
        span = references.span()
        text = references.format()
        new = [(d.number, d.new()) for d in drafts]
        counts = tuple((number, len(entries)) for number, entries in new if entries)
        block = None
        if counts:
            block = frames.build(counts, [e for _, entries in new for e in entries], self.codec, self.thread)
        heads = [ListHead(d.number, d.found.kind, d.count, d.found.path) for d in drafts if d.number != REST]
        lines = [encode(heads_line(heads, text))]
        if self.rest is not None:
            lines.append(self.rest)
        learned = [(d.found.path, d.number, d.learned) for d in drafts]
        checked_span = known.checked_span if known is not None else 0

        def learn(version: int, stamp: bytes, epoch: int, own: int) -> Known:
            after = blocks
            if span is None or len(blocks) > 4 * (span[1] - span[0]) + 256:
                after = blocks.above(span[0] if span is not None else own)
            if own:
                after = after.grown(own, dict(counts), len(block or b""))
            lists = {
                path: KnownList(number, entries, settled(ranges[number], number, own, after))
                for path, number, entries in learned
                if entries is not None
            }
            return Known(Base(version, stamp, epoch), lists, after, checked_span)

        return Planned(
            base=known.base if known is not None and span is not None else None,
            block=block,
            low=span[0] if span else None,
            high=span[1] if span else None,
            ranges=text,
            payload=frames.build((), lines, self.codec, self.thread),
            learn=learn,
            again=self.again,
        )
