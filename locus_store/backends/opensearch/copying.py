"""Copying a thread: its documents are written under a new life, which then becomes that of the destination."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Literal

from locus_store.backends.opensearch.committing import life_source, new_thread
from locus_store.backends.opensearch.names import (
    Source,
    checkpoint_name,
    life_name,
    pack,
    records_name,
    slot_name,
    unpack,
)
from locus_store.backends.opensearch.reading import DisturbedError, checkpoints, name_source, slots
from locus_store.backends.opensearch.records import Records
from locus_store.backends.opensearch.runs import Runs
from locus_store.backends.opensearch.saving import Saver
from locus_store.backends.opensearch.searching import add_texts_again
from locus_store.backends.opensearch.slots import checkpoint_in
from locus_store.backends.opensearch.thread import Thread
from locus_store.backends.opensearch.wire import Act, Wire
from locus_store.core import clock, frames, payloads
from locus_store.core.driver import Key
from locus_store.core.errors import BackendError
from locus_store.core.frames import Codec, DamagedError, ThreadName
from locus_store.core.ids import new_stamp
from locus_store.core.references import EntrySet, References, unreferenced

_BATCH = 100


class Copier:
    """Copies threads.

    Args:
        wire: Where they are.
        saver: Knows how a thread begins.
        records: Knows where records are.
        codec: What frames go through.
    """

    def __init__(self, wire: Wire, saver: Saver, records: Records, codec: Codec | None) -> None:
        self.wire = wire
        self.saver = saver
        self.records = records
        self.codec = codec

    async def clone(
        self, source: Key, dest: Key, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        self.saver.recent.take(dest)
        while True:
            seen = await self.saver.settled(source)
            live = seen.thread if seen and not seen.thread.expired(now) else None
            versions = [v for v, _ in live.live.pairs() if upto is None or v <= upto] if live else []
            if live is None or not versions:
                return "missing"
            there = await self.saver.settled(dest)
            valid = there.thread if there and not there.thread.expired(now) else None
            if valid and valid.live.count() and not overwrite:
                return "exists"
            updated_at = max(now, valid.updated_at + 1) if valid else now
            copy = replace(new_thread(dest), slot=live.slot, version=versions[-1], updated_at=updated_at)
            copy = replace(copy, expires_at=live.expires_at, scopes=new_stamp().hex() if live.scopes else "")
            try:
                copy = await self._write(live, copy, versions)
            except DisturbedError:
                await self.saver.remover.remove_all(copy)
                continue
            except Exception:
                # The next vacuum does it if this cannot.
                with suppress(BackendError):
                    await self.saver.remover.remove_all(copy)
                raise
            if await self.saver.replace_thread(there, copy) is not None:
                return "copied"

    async def _write(self, source: Thread, copy: Thread, versions: list[int]) -> Thread:
        """Write all documents of a copy; returns what its own document is to say."""
        await self.wire.put(Act("index", life_name(copy.life), life_source(copy)))
        lost = await self._lost(source, versions)
        live = Runs.of((v, s) for v, s in source.live.pairs() if v in set(versions))
        wanted = sorted({*live.slots(), *source.blocks.slots()})
        holders = {slot: number for number, slot in source.blocks.pairs()}
        blocks: list[tuple[int, int]] = []
        for at in range(0, len(wanted), _BATCH):
            acts: list[Act] = []
            for one in await slots(self.wire, source, wanted[at : at + _BATCH], True):
                slot = one.source["data"]["slot"]
                made = self._slot(source, copy, one.source, live, lost)
                if made["kind"] == "empty":
                    continue
                if "block" in made["body"]:
                    blocks.append((holders[slot], slot))
                acts.append(Act("create", slot_name(copy.life, slot), made))
                checkpoint = checkpoint_in(made)
                if checkpoint is not None:
                    name = checkpoint_name(copy.key, checkpoint.checkpoint_id)
                    acts.append(Act("index", name, name_source(copy, checkpoint, slot)))
                    copy = replace(copy, head=checkpoint if checkpoint.version == versions[-1] else copy.head)
                    if checkpoint.version == versions[0]:
                        copy = replace(copy, oldest_at=checkpoint.created_at)
            await self.wire.put_several(acts)
        await self._records(source, copy)
        found = Runs.of(blocks)
        return replace(copy, live=live, blocks=found, block_count=found.last())

    async def _lost(self, source: Thread, versions: list[int]) -> EntrySet:
        """The entries that only later checkpoints refer to."""
        if len(versions) == source.live.count():
            return EntrySet({})
        kept: list[References] = []
        dropped: list[References] = []
        wanted = [slot for _, slot in source.live.pairs()]
        for checkpoint in await checkpoints(self.wire, source, wanted):
            (kept if checkpoint.version <= versions[-1] else dropped).append(checkpoint.references())
        return unreferenced(dropped, kept)

    def _slot(self, source: Thread, copy: Thread, stored: Source, live: Runs, lost: EntrySet) -> Source:
        """One document of the copy."""
        slot = stored["data"]["slot"]
        body: Source = {}
        data: Source = {"slot": slot, "cleaned": 0}
        made: Source = {
            "kind": "empty",
            "tenant": copy.key.tenant,
            "thread_id": copy.key.thread_id,
            "life": copy.life,
            "slot": slot,
            "at": clock.system_clock(),
            "data": data,
            "body": body,
        }
        if "block" in stored.get("body", {}):
            block = self._block(source, unpack(stored["body"]["block"]), lost)
            if block is not None:
                made["kind"] = "block"
                body["block"] = pack(self._bound(block, source.key, copy.key, whole=False))
        if slot in live.slots():
            made["kind"] = "checkpoint"
            data["checkpoint"] = stored["data"]["checkpoint"]
            body["payload"] = pack(self._bound(unpack(stored["body"]["payload"]), source.key, copy.key, whole=True))
            if "terms" in stored:
                made["terms"] = stored["terms"]
        if body:
            add_texts_again(made, self.codec, ThreadName(*copy.key))
        return made

    def _block(self, source: Thread, payload: bytes, lost: EntrySet) -> bytes | None:
        if not lost:
            return payload
        try:
            return payloads.strip(payload, lost, self.codec, ThreadName(*source.key))
        except DamagedError:
            return payload

    def _bound(self, data: bytes, source: Key, dest: Key, *, whole: bool) -> bytes:
        """Bytes as the codec makes them for the destination."""
        if self.codec is None or not self.codec.bound:
            return data
        rebind = frames.rebind_one if whole else payloads.rebind
        return rebind(data, self.codec, ThreadName(*source), ThreadName(*dest))

    async def _records(self, source: Thread, copy: Thread) -> None:
        acts: list[Act] = []
        for stored in await self.records.several(source):
            scope = stored["data"]["scope"]
            items = [
                [name, pack(self._bound(unpack(payload), source.key, copy.key, whole=True))]
                for name, payload in stored["body"]["items"]
            ]
            made = {
                **stored,
                "tenant": copy.key.tenant,
                "thread_id": copy.key.thread_id,
                "life": copy.life,
                "scopes": copy.scopes,
                "name": records_name(copy.life, copy.scopes, scope),
                "body": {"items": items},
            }
            acts.append(Act("create", made["name"], made))
        if acts:
            await self.wire.put_several(acts)
