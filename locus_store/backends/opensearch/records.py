"""Records: those of one scope are one document, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from locus_store.backends.opensearch.committing import life_source, new_thread
from locus_store.backends.opensearch.names import Source, life_name, pack, records_name, unpack
from locus_store.backends.opensearch.reading import Seen, read
from locus_store.backends.opensearch.saving import Saver
from locus_store.backends.opensearch.thread import Thread
from locus_store.backends.opensearch.wire import Act, Wire
from locus_store.core.driver import Key
from locus_store.core.ids import new_stamp

Items = dict[str, str]


class Records:
    """The primitives for records.

    Args:
        wire: Where they are.
        saver: Knows how a thread begins and ends.
    """

    def __init__(self, wire: Wire, saver: Saver) -> None:
        self.wire = wire
        self.saver = saver

    async def put(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        self.saver.recent.take(key)
        while True:
            seen = await self.saver.settled(key)
            live = seen.thread if seen and not seen.thread.expired(now) else None
            if live is None and not items:
                return
            if live is None:
                thread = replace(new_thread(key), scopes=new_stamp().hex(), expires_at=expires_at)
                source = _source(thread, scope, _merged({}, items, keep=keep))
                name = records_name(thread.life, thread.scopes, scope)
                await self.wire.put_several(
                    [Act("index", life_name(thread.life), life_source(thread)), Act("create", name, source)]
                )
                if await self.saver.replace_thread(seen, thread) is not None:
                    return
                continue
            assert seen is not None
            if items and not live.scopes:
                # First of all the thread must tell of them, since who removes it looks for no others.
                await self._change(seen, scopes=new_stamp().hex())
                continue
            if await self._into(live, scope, items, keep=keep) and await self._touch(seen, expires_at):
                return

    async def _into(self, thread: Thread, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool) -> bool:
        if not items:
            return True
        name = records_name(thread.life, thread.scopes, scope)
        there = await self.wire.get(name)
        merged = _merged({} if there is None else dict(there.source["body"]["items"]), items, keep=keep)
        source = _source(thread, scope, merged)
        if there is None:
            return bool(await self.wire.put(Act("create", name, source)))
        return bool(await self.wire.put(Act("index", name, source, there)))

    async def _touch(self, seen: Seen, expires_at: int | None) -> bool:
        """Make sure that the thread, for which something was written, is still there; it expires anew from now on."""
        thread = seen.thread
        if thread.live.count() and thread.expires_at == expires_at:
            now = await read(self.wire, thread.key)
            return now is not None and (now.thread.life, now.thread.scopes) == (thread.life, thread.scopes)
        # A thread of records only is removed with the last of them, and that must not pass by unnoticed.
        return await self._change(seen, expires_at=expires_at)

    async def _change(self, seen: Seen, **changes: Any) -> bool:
        after = replace(seen.thread, touched=seen.thread.touched + 1, **changes)
        return bool(await self.wire.put(Act("index", seen.found.id, after.dump(), seen.found)))

    async def several(self, thread: Thread) -> list[Source]:
        """The documents of all scopes."""
        if not thread.scopes:
            return []
        await self.wire.refresh()
        filters = [{"term": {"kind": "records"}}, {"term": {"life": thread.life}}, {"term": {"scopes": thread.scopes}}]
        sort: list[Source] = [{"name": "asc"}]
        found: list[Source] = []
        async for page in self.wire.scan({"bool": {"filter": filters}}, sort, True):
            found += [hit["_source"] for hit in page]
        return found

    async def read(self, key: Key, scope: str | None, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        seen = await read(self.wire, key)
        if seen is None or seen.thread.expired(now):
            return []
        if scope is None:
            sources = await self.several(seen.thread)
        else:
            there = await self.wire.get(records_name(seen.thread.life, seen.thread.scopes, scope))
            sources = [] if there is None else [there.source]
        by_scope = {source["data"]["scope"]: source["body"]["items"] for source in sources}
        return [(s, name, unpack(payload)) for s in sorted(by_scope) for name, payload in by_scope[s]]

    async def drop(self, key: Key, scope: str | None, now: int) -> int:
        """See `Driver.drop_records`."""
        self.saver.recent.take(key)
        while True:
            seen = await self.saver.settled(key)
            if seen is None or seen.thread.expired(now):
                return 0
            thread = seen.thread
            if scope is None:
                count = sum(len(source["body"]["items"]) for source in await self.several(thread))
                if not count:
                    return 0
                if await self._drop_all(seen):
                    return count
                continue
            there = await self.wire.get(records_name(thread.life, thread.scopes, scope))
            if there is None:
                return 0
            if not await self.wire.put(Act("delete", there.id, seen=there)):
                continue
            if not thread.live.count() and not await self.several(thread):
                # If it fails, somebody has put something there.
                await self.saver.remover.end(seen)
            return len(there.source["body"]["items"])

    async def _drop_all(self, seen: Seen) -> bool:
        thread = seen.thread
        if not thread.live.count():
            return await self.saver.remover.end(seen)
        if not await self._change(seen, scopes=""):
            return False
        await self.wire.delete_found(
            {"bool": {"filter": [{"term": {"kind": "records"}}, {"term": {"scopes": thread.scopes}}]}}
        )
        return True


def _merged(there: Items, items: Sequence[tuple[str, bytes]], *, keep: bool) -> Items:
    for name, payload in items:
        if not (keep and name in there):
            there[name] = pack(payload)
    return there


def _source(thread: Thread, scope: str, items: Items) -> Source:
    return {
        "kind": "records",
        "tenant": thread.key.tenant,
        "thread_id": thread.key.thread_id,
        "life": thread.life,
        "scopes": thread.scopes,
        "name": records_name(thread.life, thread.scopes, scope),
        "data": {"scope": scope},
        # Pairs, since the order counts.
        "body": {"items": [[name, payload] for name, payload in items.items()]},
    }
