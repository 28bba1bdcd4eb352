"""`vacuum`: what is old, what has expired, and what writers left that died."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from locus_store.backends.opensearch.names import Source, thread_name
from locus_store.backends.opensearch.reading import DisturbedError, checkpoints, forget_wrong, read
from locus_store.backends.opensearch.saving import Saver
from locus_store.backends.opensearch.thread import Thread
from locus_store.backends.opensearch.wire import PAGE, Wire
from locus_store.core import clock
from locus_store.core.driver import Key, Trimmed

_HOUR = 3_600_000_000
"""What is older was not written by anybody who is still at it."""


class Trimmer:
    """Sweeps over the threads of a tenant.

    Args:
        wire: Where they are.
        saver: Changes threads.
    """

    def __init__(self, wire: Wire, saver: Saver) -> None:
        self.wire = wire
        self.saver = saver

    async def trim(self, tenant: str, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`."""
        await self.wire.refresh()
        removed = blocks = 0
        for name in await self._candidates(tenant, older_than, keep_last, now):
            trimmed = await self._thread(Key(tenant, name), older_than, keep_last, now)
            removed += trimmed.checkpoints
            blocks += trimmed.blocks
        await self._lives(tenant)
        await self._names(tenant)
        await self._empty_slots(tenant)
        return Trimmed(removed, blocks)

    async def _candidates(self, tenant: str, older_than: int, keep_last: int, now: int) -> list[str]:
        """The ids of threads of which something may go, or in which something was begun and not finished."""
        of_tenant: list[Source] = [{"term": {"kind": "thread"}}, {"term": {"tenant": tenant}}]
        old = {
            "bool": {
                "filter": [
                    {"range": {"oldest_at": {"lt": older_than}}},
                    {"range": {"checkpoints": {"gt": keep_last}}},
                ]
            }
        }
        expired = {"range": {"expires_at": {"lte": now}}}
        unfinished = {"term": {"unfinished": True}}
        query: Source = {
            "bool": {
                "filter": [*of_tenant, {"bool": {"should": [old, expired, unfinished], "minimum_should_match": 1}}]
            }
        }
        found: list[str] = []
        async with aclosing(self.wire.scan(query, [{"thread_id": "asc"}], ["thread_id"])) as pages:
            async for page in pages:
                found += [hit["_source"]["thread_id"] for hit in page]
        return found

    async def _thread(self, key: Key, older_than: int, keep_last: int, now: int) -> Trimmed:
        async with self.wire.opened.turn(key):
            self.saver.recent.take(key)
            while True:
                seen = await self.saver.settled(key)
                if seen is None:
                    return Trimmed(0, 0)
                thread = seen.thread
                if thread.expired(now):
                    if await self.saver.remover.end(seen):
                        return Trimmed(thread.live.count(), thread.blocks.count())
                    continue
                try:
                    versions = await self._old(thread, older_than, keep_last)
                    done = await self.saver.drop_versions(seen, versions) if versions else None
                except DisturbedError:
                    continue
                if not versions:
                    return Trimmed(0, 0)
                if done is not None:
                    return Trimmed(done[0].count, done[1])

    async def _old(self, thread: Thread, older_than: int, keep_last: int) -> list[int]:
        found: list[int] = []
        candidates = list(thread.live.newest_first())[keep_last:]
        for at in range(0, len(candidates), PAGE):
            some = await checkpoints(self.wire, thread, [slot for _, slot in candidates[at : at + PAGE]])
            found += [c.version for c in some if c.created_at < older_than]
        return sorted(found)

    async def _lives(self, tenant: str) -> None:
        """Remove the documents of lives that are over, or never began: their writers died in between."""
        begun: list[Source] = [
            {"term": {"kind": "life"}},
            {"term": {"tenant": tenant}},
            {"range": {"at": {"lt": clock.system_clock() - _HOUR}}},
        ]
        over: list[str] = []
        query: Source = {"bool": {"filter": begun}}
        async with aclosing(self.wire.scan(query, [{"life": "asc"}], ["life", "thread_id"])) as pages:
            async for page in pages:
                sources = [hit["_source"] for hit in page]
                names = [(thread_name(Key(tenant, one["thread_id"])), ["life"]) for one in sources]
                for one, found in zip(sources, await self.wire.get_several(names), strict=True):
                    if found is None or found.source["life"] != one["life"]:
                        over.append(one["life"])
        for life in over:
            await self.saver.remover.sweep(life)

    async def _names(self, tenant: str) -> None:
        """Remove the names of checkpoints that are not there: their writers died before they could take them back."""
        query: Source = {
            "bool": {
                "filter": [
                    {"term": {"kind": "name"}},
                    {"term": {"tenant": tenant}},
                    {"range": {"at": {"lt": clock.system_clock() - _HOUR}}},
                ]
            }
        }
        wrong: list[str] = []
        async with aclosing(self.wire.scan(query, [{"thread_id": "asc"}, {"name": "asc"}], True)) as pages:
            async for page in pages:
                sources = [hit["_source"] for hit in page]
                threads = await self._threads(tenant, {one["thread_id"] for one in sources})
                wrong += [one["name"] for one in sources if not _is_right(one, threads.get(one["thread_id"]))]
        for one in wrong:
            name = await self.wire.get(one)
            if name is not None:
                seen = await read(self.wire, Key(tenant, name.source["thread_id"]))
                await forget_wrong(self.wire, seen and seen.thread, name)

    async def _threads(self, tenant: str, thread_ids: set[str]) -> dict[str, Thread]:
        wanted: list[tuple[str, Any]] = [(thread_name(Key(tenant, one)), True) for one in sorted(thread_ids)]
        found = [Thread.load(one.source) for one in await self.wire.get_several(wanted) if one is not None]
        return {thread.key.thread_id: thread for thread in found}

    async def _empty_slots(self, tenant: str) -> None:
        """Remove what kept the numbers of slots with nothing left in them."""
        await self.wire.delete_found(
            {
                "bool": {
                    "filter": [
                        {"terms": {"kind": ["empty", "event"]}},
                        {"term": {"tenant": tenant}},
                        {"range": {"at": {"lt": clock.system_clock() - _HOUR}}},
                    ]
                }
            }
        )


def _is_right(name: Source, thread: Thread | None) -> bool:
    return thread is not None and name["life"] == thread.life and name["data"]["slot"] in thread.live.slots()
