"""What a removal takes away, found out before it is written down; and doing it to the documents afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from locus_store.backends.opensearch.names import SMALL, Source, checkpoint_name, life_name, pack, slot_name, unpack
from locus_store.backends.opensearch.reading import BLOCK, Seen, checkpoints, read, slots
from locus_store.backends.opensearch.searching import add_texts_again
from locus_store.backends.opensearch.thread import Checkpoint, Cleaning, Thread
from locus_store.backends.opensearch.wire import PAGE, Act, Found, Wire
from locus_store.core import clock, payloads
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.references import EntrySet, References, unreferenced

_BATCH = 200


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes with some checkpoints.

    Attributes:
        gone: Their versions.
        slots: Their slots.
        freed: Numbers of blocks that go whole.
        cleaning: What is to be done to the documents; the slot that does it is filled in later.
        oldest_at: When the oldest checkpoint that stays was made, None if that did not change.
        head: The newest one that stays, where it is another one than before.
    """

    gone: tuple[int, ...]
    freed: tuple[int, ...]
    cleaning: Cleaning
    oldest_at: int | None = None
    head: Checkpoint | None = None

    @property
    def changes_blocks(self) -> bool:
        """Whether entries go, so that the thread needs a new epoch."""
        return bool(self.cleaning.free or self.cleaning.strip)


class Remover:
    """Finds out what goes, and removes it.

    Args:
        wire: Where it is.
        codec: What frames go through.
    """

    def __init__(self, wire: Wire, codec: Codec | None) -> None:
        self.wire = wire
        self.codec = codec

    async def plan(
        self,
        thread: Thread,
        gone: Collection[int],
        *,
        replaced: int | None = None,
        new: Checkpoint | None = None,
    ) -> Removal:
        """Find out what goes with checkpoints; raises what `reading.slots` does.

        Args:
            thread: The thread.
            gone: The versions of those that go.
            replaced: The version of one that the new one replaces in place.
            new: A checkpoint that is about to be added.
        """
        going = sorted({*gone, *([] if replaced is None else [replaced])})
        stay = thread.live.minus(going)
        known = dict(await self._known(thread, [*going, *_neighbours(stay.pairs(), going)]))
        dropped = [_references(known[v]) for v in going]
        extra = [] if new is None else [new.references()]
        gone_slots = tuple(sorted(s for v in going if (s := thread.live.slot(v)) is not None))
        freed: list[int] = []
        cleaning = Cleaning(0, gone=gone_slots)
        close_by = [_references(known[v]) for v in known if v not in going]
        those = [r for r in dropped if r is not None]
        if None not in dropped and unreferenced(those, [*(r for r in close_by if r), *extra]):
            rest = [v for v, _ in stay.pairs() if v not in known]
            known |= dict(await self._known(thread, rest))
            kept = [_references(known[v]) for v, _ in stay.pairs()]
            if None not in kept:  # of a damaged one it cannot be told which blocks it needs, so all of them stay
                freed, cleaning = await self._blocks(thread, those, [*(r for r in kept if r), *extra], gone_slots)
        oldest, newest = stay.first(), stay.last()
        head = None
        if newest and thread.head and thread.head.version in going and thread.head.version != replaced:
            head = known.get(newest) or dict(await self._known(thread, [newest]))[newest]
        oldest_at = None
        if oldest and oldest != thread.live.first() and thread.live.first() != replaced:
            oldest_at = (known.get(oldest) or dict(await self._known(thread, [oldest]))[oldest]).created_at
        return Removal(tuple(gone), tuple(freed), cleaning, oldest_at, head)

    async def _known(self, thread: Thread, versions: Sequence[int]) -> list[tuple[int, Checkpoint]]:
        numbers = [s for v in versions if (s := thread.live.slot(v)) is not None]
        return [(c.version, c) for c in await checkpoints(self.wire, thread, numbers)]

    async def _blocks(
        self, thread: Thread, dropped: list[References], kept: list[References], gone: tuple[int, ...]
    ) -> tuple[list[int], Cleaning]:
        lost = unreferenced(dropped, kept)
        used = EntrySet.of(kept).blocks()
        candidates = [p for first, last in lost.blocks() for p in thread.blocks.pairs(first, last)]
        freed: list[tuple[int, int]] = []
        strip: list[int] = []
        for at in range(0, len(candidates), _BATCH):
            some = candidates[at : at + _BATCH]
            found = await slots(self.wire, thread, [slot for _, slot in some], BLOCK)
            for (number, slot), one in zip(some, found, strict=True):
                payload = _block(one.source)
                try:
                    left = payloads.strip(payload, lost, self.codec, ThreadName(*thread.key))
                except (DamagedError, UnknownFormatError):
                    # It cannot be rewritten. Whole it can go, if nothing else needs it; else it stays as it is.
                    left = payload if any(a <= number <= b for a, b in used) else None
                if left is None:
                    freed.append((number, slot))
                elif left is not payload:
                    strip.append(slot)
        cleaning = Cleaning(0, gone, tuple(slot for _, slot in freed), tuple(strip), _dump(lost) if strip else ())
        return [number for number, _ in freed], cleaning

    # ---------------------------------------------------------------------------------------------------- cleaning

    async def clean(self, seen: Seen) -> Seen | None:
        """Do to the documents what a removal left to be done; None if somebody else did something meanwhile."""
        thread = seen.thread
        cleaning = thread.cleaning
        assert cleaning is not None
        numbers = sorted({*cleaning.gone, *cleaning.free, *cleaning.strip, cleaning.by})
        for at in range(0, len(numbers), _BATCH):
            await self._clean_some(thread, cleaning, numbers[at : at + _BATCH])
        after = replace(thread, cleaning=None, touched=thread.touched + 1)
        source = after.dump()
        done = await self.wire.put(Act("index", seen.found.id, source, seen.found))
        return None if done.place is None else Seen(after, Found(seen.found.id, source, *done.place))

    async def _clean_some(self, thread: Thread, cleaning: Cleaning, numbers: list[int]) -> None:
        while numbers:
            found = await self.wire.get_several([(slot_name(thread.life, n), True) for n in numbers])
            todo = {
                n: one
                for n, one in zip(numbers, found, strict=True)
                if one is not None
                and one.source["data"]["cleaned"] < cleaning.by
                # A removal's own document has done what it was for; what it says of the head must not outlive that.
                and (n != cleaning.by or one.source["kind"] == "event")
            }
            await self._forget_names(thread, [one.source for n, one in todo.items() if n in cleaning.gone])
            acts = [
                Act("index", one.id, self._cleaned(thread, cleaning, n, one.source), one) for n, one in todo.items()
            ]
            done = await self.wire.put_several(acts) if acts else []
            # Who lost against another one looks again: that one was cleaning, too, or the thread is gone.
            numbers = [n for n, one in zip(todo, done, strict=True) if not one]

    async def _forget_names(self, thread: Thread, sources: list[Source]) -> None:
        wanted = {
            checkpoint_name(thread.key, source["data"]["checkpoint"]["id"]): source["data"]["slot"]
            for source in sources
            if "checkpoint" in source["data"]
        }
        if not wanted:
            return
        found = await self.wire.get_several([(name, True) for name in wanted])
        acts = [
            Act("delete", one.id, seen=one)
            for one in found
            if one is not None and (one.source["life"], one.source["data"]["slot"]) == (thread.life, wanted[one.id])
        ]
        if acts:
            await self.wire.put_several(acts)

    def _cleaned(self, thread: Thread, cleaning: Cleaning, number: int, source: Source) -> Source:
        data, body = dict(source["data"]), dict(source.get("body", {}))
        after = {**source, "data": data, "body": body}
        data["cleaned"] = cleaning.by
        if number in cleaning.gone:
            data.pop("checkpoint", None)
            body.pop("payload", None)
            after.pop("terms", None)
            after["kind"] = "block"
        if number in cleaning.free:
            body.pop("block", None)
        elif number in cleaning.strip and "block" in body:
            with suppress(DamagedError, UnknownFormatError):
                lost = _load(cleaning.lost)
                body["block"] = pack(payloads.strip(_block(source), lost, self.codec, ThreadName(*thread.key)) or b"")
        if body:
            add_texts_again(after, self.codec, ThreadName(*thread.key))
        else:
            after["kind"] = "empty"
            after.pop("words", None)
            data.pop("digests", None)
        after["at"] = clock.system_clock()
        # The mark stays, by which a writer whose answer was lost knows its own.
        if "change" in data:
            data["change"] = {"mark": data["change"]["mark"]}
        return after

    # ---------------------------------------------------------------------------------------------- whole threads

    async def end(self, seen: Seen) -> bool:
        """Remove a thread; False if it changed meanwhile. It is gone with its own document, at once."""
        done = await self.wire.put(Act("delete", seen.found.id, seen=seen.found))
        if done or await read(self.wire, seen.thread.key) is None:
            await self.remove_all(seen.thread)
        return bool(done)

    async def remove_all(self, thread: Thread) -> None:
        """Remove the documents of a thread that is gone; the one that tells of its life last.

        They are known by their ids, but for records: so this takes no refresh. A save that comes too late notices, and
        takes back what it wrote; what nobody took back, `vacuum` finds.
        """
        if thread.scopes:
            await self.sweep(thread.life)
            return
        numbers = range(1, thread.slot + 2)
        for at in range(0, len(numbers), PAGE):
            wanted = [(slot_name(thread.life, n), SMALL) for n in numbers[at : at + PAGE]]
            found = [one for one in await self.wire.get_several(wanted) if one is not None]
            ids = [one.source["data"]["checkpoint"]["id"] for one in found if "checkpoint" in one.source["data"]]
            names = await self.wire.get_several([(checkpoint_name(thread.key, one), True) for one in ids])
            acts = [Act("delete", one.id) for one in found]
            acts += [Act("delete", one.id, seen=one) for one in names if one and one.source["life"] == thread.life]
            await self.wire.put_several(acts)
        await self.wire.put(Act("delete", life_name(thread.life)))

    async def sweep(self, life: str) -> None:
        """Remove all documents of a life that is over; the one that tells of it last."""
        everything: dict[str, Any] = {"term": {"life": life}}
        rest: Source = {"bool": {"filter": [everything], "must_not": [{"term": {"kind": "life"}}]}}
        # What somebody changed at this moment stays for the next vacuum, which finds it by that one.
        if await self.wire.delete_found(rest):
            await self.wire.put(Act("delete", life_name(life)))


def _references(checkpoint: Checkpoint) -> References | None:
    """What a checkpoint refers to, None if that is damaged."""
    try:
        return checkpoint.references()
    except ValueError:
        return None


def _neighbours(stay: Any, going: Sequence[int]) -> list[int]:
    """The next older and newer checkpoint of each that goes: as a rule they cover what it refers to."""
    kept = [version for version, _ in stay]
    found: set[int] = set()
    at = 0
    for version in going:
        while at < len(kept) and kept[at] < version:
            at += 1
        found.update(kept[max(0, at - 1) : at + 1])
    return sorted(found)


def _block(source: Source) -> bytes:
    try:
        return unpack(source["body"]["block"])
    except (KeyError, ValueError):
        return b"damaged"


def _dump(lost: EntrySet) -> tuple[Any, ...]:
    return tuple([number, [[*a, *b] for a, b in intervals]] for number, intervals in lost.intervals.items())


def _load(stored: Sequence[Any]) -> EntrySet:
    return EntrySet({number: [((a, b), (c, d)) for a, b, c, d in intervals] for number, intervals in stored})
