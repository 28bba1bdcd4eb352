"""Plans made by hand, and documents of nothing but lists of lines, for tests that speak to a driver.

A document is ``{list number: [line, …]}``; the payload of each checkpoint names its lists again, so that a load can be
checked against what was saved.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from locus_store.core import frames, payloads
from locus_store.core.driver import Base, Key, Plan, Saved, Stored
from locus_store.core.frames import PLAIN, Codec, Entry, ThreadName
from locus_store.core.ids import new_stamp
from locus_store.core.references import Range, References

Lists = Mapping[int, Sequence[str]]
KEY = Key("default", "t")
_clock = itertools.count(1_700_000_000_000_000, 1000)


def tick() -> int:
    """A time later than all before."""
    return next(_clock)


def block_of(lists: Lists, key: Key = KEY, codec: Codec | None = None) -> bytes | None:
    """The payload of a block with these lists' lines, without a number."""
    entries = [Entry(line.encode(), PLAIN) for lines in lists.values() for line in lines]
    counts = tuple((number, len(lines)) for number, lines in lists.items())
    return frames.build(counts, entries, codec, ThreadName(*key)) if entries else None


def make_plan(
    checkpoint_id: str,
    new: Lists | None = None,
    reused: Mapping[int, Sequence[Range]] | None = None,
    *,
    base: Base | None = None,
    key: Key = KEY,
    codec: Codec | None = None,
    **options: Any,
) -> Plan:
    """A plan whose lists are the reused ranges followed by the new lines."""
    new, reused = new or {}, reused or {}
    lists = {
        number: [*reused.get(number, ()), *([Range(0, 0)] if new.get(number) else [])]
        for number in sorted({*new, *reused})
    }
    references = References(lists)
    low, high = references.span() or (None, None)
    rest = frames.build(
        ((0, 1),), [Entry(json.dumps(f"rest of {checkpoint_id}").encode(), PLAIN)], codec, ThreadName(*key)
    )
    block = block_of(new, key, codec)
    values: dict[str, Any] = {
        "fresh_id": False,
        "stamp": new_stamp(),
        "parent": None,
        "expected_version": None,
        "if_exists": "newest",
        "metadata": None,
        "terms": (),
        "size": len(block or b"") + len(rest),
        "now": tick(),
        "expires_at": None,
        "keep": None,
    }
    return Plan(
        checkpoint_id=checkpoint_id,
        base=base,
        block=block,
        low=low,
        high=high,
        ranges=references.format(),
        payload=rest,
        **(values | options),
    )


def base_of(stored: Stored) -> Base:
    """What a save that reuses blocks of this checkpoint names."""
    return Base(stored.version, stored.stamp, stored.epoch)


def grown(plan: Plan, saved: Saved) -> Base:
    """The base that a save after this one names."""
    return Base(saved.version, plan.stamp, saved.epoch)


def ranges_of(stored: Stored) -> dict[int, list[Range]]:
    """A checkpoint's ranges, with the own block's number in them."""
    return {n: list(r) for n, r in References.parse(stored.own_block, stored.ranges).lists.items()}


def document(stored: Stored | None, key: Key = KEY, codec: Codec | None = None) -> dict[int, list[str]]:
    """What a checkpoint holds; fails if anything that it refers to is gone."""
    assert stored is not None
    name = ThreadName(*key)
    rest = frames.read_one(stored.payload, codec, name)
    assert json.loads(rest.body) == f"rest of {stored.checkpoint_id}"
    entries: dict[tuple[int, int], list[Entry]] = {}
    blocks: list[int] = []
    for frame in (f for payload in stored.blocks for f in payloads.read(payload, codec, name)):
        blocks.append(frame.number)
        at = 0
        found = frame.entries()
        for number, count in frame.counts:
            entries[number, frame.number] = found[at : at + count]
            at += count
    assert blocks == sorted(set(blocks)), "blocks twice or in disorder"
    out: dict[int, list[str]] = {}
    for number, ranges in ranges_of(stored).items():
        out[number] = []
        for r in ranges:
            assert r.first in blocks
            assert r.last in blocks
            for block in [b for b in blocks if r.first <= b <= r.last]:
                lines = entries.get((number, block), [])
                lines = lines[r.skip if block == r.first else 0 : r.end if block == r.last else None]
                assert all(e.kind == PLAIN for e in lines), "an entry that is referred to was removed"
                out[number] += [e.data.decode() for e in lines]
    return out


def lines_stored(stored: Stored, key: Key = KEY, codec: Codec | None = None) -> set[str]:
    """All lines that are still in the blocks, referred to or not."""
    found = [f for payload in stored.blocks for f in payloads.read(payload, codec, ThreadName(*key))]
    return {e.data.decode() for f in found for e in f.entries() if e.kind == PLAIN}
