"""What a process remembers of a thread: a hint, from which the next save is planned and which the store checks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock

from locus_store.core.codec import Path
from locus_store.core.driver import Base, Key
from locus_store.core.loading import REST, Loaded, decode_entries
from locus_store.core.references import OWN, Range
from locus_store.core.unchanged import Marks, Watch, digest_of

BlockCounts = dict[int, dict[int, int]]
"""Of blocks whose content is known: how many entries of which list; no row for a list that has none."""


@dataclass(frozen=True, slots=True)
class KnownList:
    """One list of a checkpoint that this process has saved or loaded.

    Attributes:
        number: Its number in the blocks.
        count: How many entries it has; `sizes` and `digests` may hold more, which belong to a later state.
        sizes: Encoded bytes of each entry.
        digests: Digest of each encoded entry.
        quick: How its elements are recognised without encoding them; None if they have to be encoded.
        ranges: Where its entries are.
    """

    number: int
    count: int
    sizes: list[int]
    digests: list[bytes]
    quick: Marks | Watch | None
    ranges: tuple[Range, ...]

    def places(self, blocks: BlockCounts) -> list[tuple[int, int]]:
        """Block and offset of each entry."""
        out: list[tuple[int, int]] = []
        for r in self.ranges:
            for block in range(r.first, r.last + 1):
                count = blocks[block].get(self.number, 0)
                stop = count if block != r.last or r.end is None else r.end
                out += [(block, i) for i in range(r.skip if block == r.first else 0, stop)]
        return out


@dataclass(frozen=True, slots=True)
class Known:
    """One checkpoint that this process has saved or loaded.

    Attributes:
        base: Its version, stamp and the thread's epoch.
        lists: By path; the reserved list of the rest has the path ``()``.
        blocks: What is in the blocks that this process knows.
        checked_span: The span at which it was last seen that the blocks are used well enough.
    """

    base: Base
    lists: dict[Path, KnownList]
    blocks: BlockCounts
    checked_span: int = 0

    def weight(self) -> int:
        """Bytes that it keeps alive, roughly."""
        return sum(
            sum(known.sizes[: known.count]) + 120 * known.count + 300 for known in self.lists.values()
        ) + 150 * len(self.blocks)


def from_loaded(loaded: Loaded) -> Known:
    """What is known after a load."""
    blocks = loaded.counts()
    lists = {h.path: _known_list(loaded, h.number, blocks) for h in loaded.heads}
    if loaded.rest is None:
        lists[()] = _known_list(loaded, REST, blocks)
    stored = loaded.stored
    return Known(Base(stored.version, stored.stamp, stored.epoch), lists, blocks)


def _known_list(loaded: Loaded, number: int, blocks: BlockCounts) -> KnownList:
    entries = loaded.entries(number)
    return KnownList(
        number,
        len(entries),
        [len(e.data) for e in entries],
        [digest_of(e) for e in entries],
        Marks([], 0, slow=False).extended(decode_entries(entries), entries),
        settled(loaded.refs.lists.get(number, ()), number, loaded.stored.own_block, blocks),
    )


def settled(ranges: Sequence[Range], number: int, own: int, blocks: BlockCounts) -> tuple[Range, ...]:
    """Ranges of a checkpoint that is stored: the own block has its number, and ranges are joined where they can be."""
    out: list[Range] = []
    for r in ranges:
        here = Range(own, own, r.skip, r.end) if r.first == OWN else r
        before = out[-1] if out else None
        if (
            before is not None
            and before.end is None
            and here.skip == 0
            and before.last < here.first
            and all(number not in blocks.get(b, (number,)) for b in range(before.last + 1, here.first))
        ):
            out[-1] = Range(before.first, here.last, before.skip, here.end)
        else:
            out.append(here)
    return tuple(out)


class Ledger:
    """The hints of one backend, the least recently used forgotten first.

    Args:
        limit: The most bytes that hints may keep alive.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._hints: OrderedDict[Key, tuple[Known | Loaded, int]] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: Key) -> Known | None:
        """What is remembered of a thread; what was loaded is worked out now."""
        with self._lock:
            found = self._hints.get(key)
            if found is None:
                return None
            self._hints.move_to_end(key)
        hint = found[0]
        if isinstance(hint, Loaded):
            hint = from_loaded(hint)
            self.put(key, hint)
        return hint

    def put(self, key: Key, hint: Known | Loaded) -> None:
        """Remember a save or a load in place of what was remembered."""
        weight = hint.size() if isinstance(hint, Loaded) else hint.weight()
        with self._lock:
            self._drop(key)
            if weight > self._limit:
                return
            self._hints[key] = hint, weight
            self._total += weight
            while self._total > self._limit:
                self._drop(next(iter(self._hints)))

    def forget(self, key: Key) -> None:
        """Remember nothing of a thread."""
        with self._lock:
            self._drop(key)

    def new_epoch(self, key: Key, before: int, after: int) -> None:
        """This process has removed entries: what it knows of the others stays true under the new epoch."""
        with self._lock:
            found = self._hints.get(key)
            if found is None:
                return
            hint, weight = found
            if isinstance(hint, Loaded):
                if hint.stored.epoch == before:
                    hint.stored = replace(hint.stored, epoch=after)
            elif hint.base.epoch == before:
                self._hints[key] = replace(hint, base=hint.base._replace(epoch=after)), weight

    def _drop(self, key: Key) -> None:
        found = self._hints.pop(key, None)
        if found is not None:
            self._total -= found[1]


def counts_of(numbers: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The counts of a block's lists as a dict, without empty ones."""
    return {number: count for number, count in numbers if count}
