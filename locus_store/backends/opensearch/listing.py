"""Listing and finding threads: searches, after a refresh that is shared by all who search at the same time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from locus_store.backends.opensearch.names import SMALL, Source, pack_terms, thread_name
from locus_store.backends.opensearch.reading import consistent, read, slots
from locus_store.backends.opensearch.slots import checkpoint_in
from locus_store.backends.opensearch.thread import Thread
from locus_store.backends.opensearch.wire import PAGE, Wire
from locus_store.core import patterns
from locus_store.core.driver import Info, Key
from locus_store.core.patterns import Pattern, Wildcard

_ONE_SEARCH = 10_000
"""As many as one search gives (``index.max_result_window``)."""

_ORDER: list[Source] = [{"updated_at": "desc"}, {"thread_id": "asc"}]
_SLOTS: list[Source] = [{"thread_id": "asc"}, {"life": "asc"}, {"slot": "asc"}]


def there(tenant: str, now: int) -> Source:
    """A query for a tenant's threads that have checkpoints and have not expired."""
    return {
        "bool": {
            "filter": [
                {"term": {"kind": "thread"}},
                {"term": {"tenant": tenant}},
                {"range": {"checkpoints": {"gte": 1}}},
            ],
            "must_not": [{"range": {"expires_at": {"lte": now}}}],
        }
    }


def prefix_of(pattern: str) -> list[Source]:
    """What a query can say of ids that match a pattern: how they begin."""
    prefix = patterns.parse(pattern).prefix
    return [{"prefix": {"thread_id": prefix}}] if prefix else []


class Lister:
    """The primitives that look at more than one thread.

    Args:
        wire: Where they are.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def threads(
        self, tenant: str, pattern: str, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        parsed = patterns.parse(pattern)
        if parsed.literal is not None:
            seen = await read(self.wire, Key(tenant, parsed.literal))
            lives = seen is not None and seen.thread.live.count() and not seen.thread.expired(now)
            found = [(seen.thread.key.thread_id, seen.thread.updated_at)] if seen and lives else []
            return found[offset:][:limit]
        query = there(tenant, now)
        query["bool"]["filter"] += prefix_of(pattern)
        # What a prefix does not say is looked at here: patterns mean the same everywhere, and cost no more than a look.
        matches = None if _is_prefix(parsed) else parsed.regex().fullmatch
        sources = await self._page(query, ["thread_id", "updated_at"], limit, offset, matches)
        return [(source["thread_id"], source["updated_at"]) for source in sources]

    async def _page(
        self, query: Source, fields: Any, limit: int | None, offset: int, matches: Callable[[str], Any] | None = None
    ) -> list[Source]:
        """Threads' documents in the order of listings, as many as are wanted."""
        await self.wire.refresh()
        if limit == 0:
            return []
        if matches is None and limit is not None and offset + limit <= _ONE_SEARCH:
            return [hit["_source"] for hit in await self.wire.search(query, _ORDER, fields, limit, offset)]
        found: list[Source] = []
        passed = 0
        async with aclosing(self.wire.scan(query, _ORDER, fields)) as pages:
            async for page in pages:
                for hit in page:
                    source = hit["_source"]
                    if matches is not None and not matches(source["thread_id"]):
                        continue
                    passed += 1
                    if passed > offset:
                        found.append(source)
                    if limit is not None and len(found) == limit:
                        return found
        return found

    async def find(
        self,
        tenant: str,
        terms: Sequence[bytes],
        thread_id: str | None,
        newest_only: bool,
        limit: int | None,
        offset: int,
        now: int,
    ) -> list[Info]:
        """See `Driver.find`."""
        wanted = pack_terms(list(terms))
        if thread_id is not None:
            return (await self._in_thread(Key(tenant, thread_id), wanted, newest_only, now))[offset:][:limit]
        if newest_only:
            query = there(tenant, now)
            query["bool"]["filter"] += [{"term": {"terms": term}} for term in wanted]
            sources = await self._page(query, True, limit, offset)
            threads = [Thread.load(source) for source in sources]
            return [thread.info(thread.head) for thread in threads if thread.head is not None]
        return (await self._everywhere(tenant, wanted, now))[offset:][:limit]

    async def _in_thread(self, key: Key, wanted: list[str], newest_only: bool, now: int) -> list[Info]:
        async def action(thread: Thread) -> list[Info]:
            if newest_only:
                found = [thread.head] if thread.head else []
            else:
                numbers = [slot for _, slot in thread.live.newest_first()]
                read = [checkpoint_in(one.source) for one in await slots(self.wire, thread, numbers, SMALL)]
                found = [one for one in read if one is not None]
            return [thread.info(one) for one in found if set(wanted) <= set(one.terms)]

        none: list[Info] = []
        return await consistent(self.wire, key, now, action, none)

    async def _everywhere(self, tenant: str, wanted: list[str], now: int) -> list[Info]:
        """All checkpoints of a tenant that have the terms: the threads tell which of those found are there."""
        await self.wire.refresh()
        filters: list[Source] = [{"term": {"kind": "checkpoint"}}, {"term": {"tenant": tenant}}]
        filters += [{"term": {"terms": term}} for term in wanted]
        found: dict[str, list[Source]] = {}
        query = {"bool": {"filter": filters}}
        async with aclosing(self.wire.scan(query, _SLOTS, SMALL)) as pages:
            async for page in pages:
                for hit in page:
                    found.setdefault(hit["_source"]["thread_id"], []).append(hit["_source"])
        infos: list[Info] = []
        async for thread in self._threads(tenant, list(found)):
            if thread.expired(now):
                continue
            there = thread.live.slots()
            for source in found[thread.key.thread_id]:
                checkpoint = checkpoint_in(source)
                if checkpoint and source["life"] == thread.life and source["data"]["slot"] in there:
                    infos.append(thread.info(checkpoint))
        return sorted(infos, key=lambda info: (-info.updated_at, info.thread_id, -info.version))

    async def _threads(self, tenant: str, thread_ids: list[str]) -> AsyncIterator[Thread]:
        for at in range(0, len(thread_ids), PAGE):
            names = [(thread_name(Key(tenant, one)), True) for one in thread_ids[at : at + PAGE]]
            for found in await self.wire.get_several(names):
                if found is not None:
                    yield Thread.load(found.source)


def _is_prefix(pattern: Pattern) -> bool:
    """Whether a pattern says no more than how an id begins."""
    return pattern.tokens[-1:] == (Wildcard.RUN,) and all(isinstance(t, str) for t in pattern.tokens[:-1])
