"""Finding out which elements of a document's lists are entries that are already stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locus_store.core.codec import encode_entry
from locus_store.core.errors import RetryableError
from locus_store.core.frames import Entry
from locus_store.core.known import Blocks, Known, KnownList, Remembered
from locus_store.core.lists import Found
from locus_store.core.unchanged import digest_of

MIN_RUN = 64
"""A run of old entries that is not at the beginning is reused only above so many bytes."""
_STEPS = 1000
"""Comparing by content steps over all elements before; to encode an element costs about as much as so many steps."""
_AT_FIRST = 1000 * _STEPS
"""So many steps are taken in any case."""


class Draft:
    """One list of the document that is being planned.

    Attributes:
        found: The list.
        base: What is known of it in the checkpoint that is planned on, or None.
        kept: How many elements at the beginning are the known ones and are not in the tail.
        tail: For each element after them the index of a known entry, or an encoded entry.
        number: Its number in the blocks.
        recognised: How many elements at the beginning are objects that are watched.
        learned: What is to be remembered of its elements, once that was worked out.
        late: Whether the caller may have changed its elements since the save began.
    """

    __slots__ = ("_encoded", "_plain", "base", "found", "kept", "late", "learned", "number", "recognised", "tail")

    def __init__(self, found: Found, base: KnownList | None) -> None:
        self.found = found
        self.base = base
        self.kept = 0
        self.tail: list[int | Entry] = []
        self.number = 0
        self.recognised = 0
        self.learned: Remembered | None = None
        self.late = False
        self._encoded: dict[int, Entry] = {}
        self._plain: dict[int, Any] = {}

    @property
    def count(self) -> int:
        """How many elements the list has."""
        return len(self.found.items)

    def size(self) -> int:
        """Encoded bytes of the whole list."""
        old = self.base.entries.sizes if self.base is not None else []
        return sum(old[: self.kept]) + sum([len(t.data) if isinstance(t, Entry) else old[t] for t in self.tail])

    def new(self) -> list[Entry]:
        """The entries that are to be stored."""
        return [t for t in self.tail if isinstance(t, Entry)]

    def plain(self, start: int, stop: int) -> Sequence[Any]:
        """Some elements as plain data."""
        if self.found.state_list is None:
            return self.found.items[start:stop]
        for i in range(start, stop):
            if i not in self._plain:
                self._plain[i] = self.found.plain_item(i)
        return [self._plain[i] for i in range(start, stop)]

    def entry(self, index: int) -> Entry:
        """One element, encoded."""
        entry = self._encoded.get(index)
        if entry is None:
            if self.late and self.learned is not None:
                entry = self._entry_as_it_was(index, self.learned)
            else:
                entry = encode_entry(self.plain(index, index + 1)[0], self.found.path_of(index))
            self._encoded[index] = entry
        return entry

    def _entry_as_it_was(self, index: int, learned: Remembered) -> Entry:
        """One element as it was when the save began: the caller may have changed its document since then."""
        if learned.snapshot is not None and learned.snapshot.comparable(index):
            return encode_entry(learned.snapshot.value(index))
        entry = encode_entry(self.found.plain_item(index), self.found.path_of(index))
        if digest_of(entry) != learned.digests[index]:
            raise RetryableError(
                "the document was changed while it was being saved, and the save had to be planned anew; save it again"
            )
        return entry

    def store_again(self, start: int, stop: int) -> None:
        """Store a part of the tail anew."""
        for i in range(start, stop):
            if not isinstance(self.tail[i], Entry):
                self.tail[i] = self.entry(self.kept + i)

    def fold(self) -> None:
        """Treat the common beginning like any other known entries."""
        self.tail[:0] = range(self.kept)
        self.kept = 0

    def size_below(self, block: int, blocks: Blocks) -> int:
        """Bytes of the known entries that lie in older blocks than the given one."""
        if self.base is None:
            return 0
        places, sizes = self.base.places(blocks), self.base.entries.sizes
        old = sum([size for (where, _), size in zip(places[: self.kept], sizes, strict=False) if where < block])
        return old + sum([sizes[t] for t in self.tail if not isinstance(t, Entry) and places[t][0] < block])

    def store_again_below(self, block: int, blocks: Blocks) -> None:
        """Store those entries again."""
        if self.base is None or not self.count:
            return
        places = self.base.places(blocks)
        self.fold()
        for i, t in enumerate(self.tail):
            if not isinstance(t, Entry) and places[t][0] < block:
                self.store_again(i, i + 1)

    def learn(self) -> Remembered:
        """Work out what is to be remembered of the elements; the caller may change them afterwards."""
        before = self.base.entries if self.base is not None else Remembered.nothing()
        sizes = [len(t.data) if isinstance(t, Entry) else before.sizes[t] for t in self.tail]
        digests = [digest_of(t) if isinstance(t, Entry) else before.digests[t] for t in self.tail]
        learned = before.then(self.kept, sizes, digests, self.plain(self.kept, self.count))
        if self.found.state_list is not None:
            learned.watch = before.watched(self.found.items, self.recognised)
        self.learned = learned
        return learned


def match(found: Found, known: Known | None) -> Draft:
    """Find the elements of a list that are known ones, and encode the others.

    Args:
        found: The list.
        known: The checkpoint that is planned on, or None.

    Raises:
        SerializationError: An element cannot be stored.
    """
    base = known.lists.get(found.path) if known is not None else None
    draft = Draft(found, base)
    if base is None:
        draft.tail = [draft.entry(i) for i in range(draft.count)]
        return draft
    # What is surely new comes first: an error in it is then named before anything is compared with it.
    for i in range(base.entries.count, draft.count):
        draft.entry(i)
    if found.state_list is not None and base.entries.watch is not None:
        draft.kept = draft.recognised = min(base.entries.watch.run(found.items), base.entries.count)
    if draft.kept < min(base.entries.count, draft.count):
        draft.kept += _run(draft, base.entries, draft.kept, draft.kept, whole_first=True)
    _match_tail(draft, base.entries)
    return draft


def _run(draft: Draft, entries: Remembered, start: int, at: int, *, whole_first: bool = False) -> int:
    """How many elements from ``start`` on are the entries from ``at`` on."""
    most = min(draft.count - start, entries.count - at)
    snapshot = entries.snapshot
    done = 0
    while done < most:
        stop = most if snapshot is None else min(most, done + snapshot.comparable(at + done))
        if snapshot is not None and stop > done:
            same = snapshot.run(draft.plain(start + done, start + stop), at + done, whole_first=whole_first)
            done += same
            if done < stop:
                return done
        elif digest_of(draft.entry(start + done)) == entries.digests[at + done]:
            done += 1
        else:
            return done
    return done


def _match_tail(draft: Draft, entries: Remembered) -> None:
    """Look behind the common beginning for runs of known entries, wherever they were."""
    at = draft.kept
    if at == entries.count:
        draft.tail = [draft.entry(i) for i in range(at, draft.count)]
        return
    by_digest = {d: i for i, d in enumerate(entries.digests[: entries.count])}
    expected = at
    # Where nearly every element has changed, comparing by content is fruitless, and digests alone are compared.
    steps = _AT_FIRST
    while at < draft.count:
        where = expected
        length = 0
        if where < entries.count and steps > 0:
            length = _run(draft, entries, at, where)
            steps += length * _STEPS - where
        if not length:
            entry = draft.entry(at)
            digest = digest_of(entry)
            same = where < entries.count and entries.digests[where] == digest
            found = where if same else by_digest.get(digest)
            if found is None:
                draft.tail.append(entry)
                at, expected = at + 1, expected + 1
                continue
            where, length = found, 1
            if steps > 0:
                length += _run(draft, entries, at + 1, found + 1)
                steps += (length - 1) * _STEPS - where
        draft.tail += range(where, where + length)
        at, expected = at + length, where + length
    _break_short_runs(draft, entries)


def match_again(draft: Draft, known: Known | None) -> Draft:
    """The same list, planned on another checkpoint: by digests alone, since the document may have changed meanwhile."""
    assert draft.learned is not None
    base = known.lists.get(draft.found.path) if known is not None else None
    made = Draft(draft.found, base)
    made.learned, made.late = draft.learned, True
    made._encoded = draft._encoded
    digests = draft.learned.digests
    if base is None:
        made.tail = [made.entry(i) for i in range(made.count)]
        return made
    there = base.entries.digests[: base.entries.count]
    while made.kept < min(made.count, len(there)) and digests[made.kept] == there[made.kept]:
        made.kept += 1
    by_digest = {d: i for i, d in enumerate(there)}
    for i in range(made.kept, made.count):
        before = made.tail[-1] if made.tail else made.kept - 1
        following = before + 1 if isinstance(before, int) else len(there)
        if following < len(there) and digests[i] == there[following]:
            made.tail.append(following)
        else:
            found = by_digest.get(digests[i])
            made.tail.append(made.entry(i) if found is None else found)
    _break_short_runs(made, base.entries)
    return made


def _break_short_runs(draft: Draft, entries: Remembered) -> None:
    """Store short runs of old entries again: a range costs as much as they do."""
    for start, stop in _runs(draft.tail):
        if sum([entries.sizes[t] for t in draft.tail[start:stop] if not isinstance(t, Entry)]) <= MIN_RUN:
            draft.store_again(start, stop)


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
