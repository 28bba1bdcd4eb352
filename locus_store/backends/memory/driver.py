"""Threads in this process's memory: for tests, for programs that need no more, and as the model of every other driver.

`put`, `clone` and `put_records` set a thread's ``expires_at``; only `put` and `clone` move its ``updated_at``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from locus_store.backends.memory.thread import Thread, put, rebind
from locus_store.core import patterns
from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import (
    Contents,
    ContentsRow,
    Driver,
    Dropped,
    Info,
    Key,
    Plan,
    PutResult,
    Saved,
    Stored,
    Trimmed,
)
from locus_store.core.frames import Codec, ThreadName
from locus_store.core.ids import new_epoch


class MemoryDriver(Driver):
    """Threads in dicts. Safe between tasks and between threads: each primitive holds one lock and awaits nothing.

    Args:
        codec: What the frames went through; it is needed where a removal rewrites a block.
    """

    capabilities = replace(EVERYTHING_SHARED, persistent=False, shared=False, search=True)

    def __init__(self, codec: Codec | None = None) -> None:
        self.codec = codec
        self._lock = threading.Lock()
        self._tenants: dict[str, dict[str, Thread]] = {}

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._tenants.clear()

    def thread_ids(self, tenant: str) -> list[str]:
        """The ids of a tenant's threads that have checkpoints, in the order in which they were made."""
        with self._lock:
            return [name for name, t in self._tenants.get(tenant, {}).items() if t.checkpoints]

    def checkpoint_count(self, tenant: str, thread_id: str | None) -> int:
        """How many checkpoints one thread has, or all threads of a tenant."""
        with self._lock:
            return sum(
                len(t.checkpoints)
                for name, t in self._tenants.get(tenant, {}).items()
                if thread_id is None or name == thread_id
            )

    # -------------------------------------------------------------------------------------------------------- saving

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        with self._lock:
            live = self._live(key, plan.now)
            # Removing may fail on a damaged block, and then nothing may have been written.
            thread = live.copy() if live and (plan.keep is not None or plan.checkpoint_id in live.versions) else live
            thread = thread or Thread()
            result = put(thread, plan, self.codec, ThreadName(*key))
            if isinstance(result, Saved):
                self._tenants.setdefault(key.tenant, {})[key.thread_id] = thread
            return result

    # ------------------------------------------------------------------------------------------------------- reading

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """See `Driver.get`."""
        with self._lock:
            thread = self._live(key, now)
            found = thread.find(checkpoint_id) if thread else None
            if thread is None or found is None:
                return None
            numbers = range(found.first_block, found.last_block + 1) if found.last_block else ()
            return Stored(
                found.checkpoint_id,
                found.version,
                found.stamp,
                thread.epoch,
                found.own_block,
                found.ranges,
                found.payload,
                [thread.blocks[n] for n in numbers if n in thread.blocks],
            )

    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        """See `Driver.info`."""
        with self._lock:
            thread = self._live(key, now)
            found = thread.find(checkpoint_id) if thread else None
            return thread.info(key.thread_id, found) if thread and found else None

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""
        with self._lock:
            thread = self._live(key, now)
            if thread is None:
                return []
            found = [c for c in thread.newest_first() if before is None or c.version < before]
            return [thread.info(key.thread_id, c) for c in found[:limit]]

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        matches: Callable[[str], object] = patterns.parse(pattern).regex().fullmatch
        with self._lock:
            found = [(name, thread.updated_at) for name, thread in self._listed(tenant, now) if matches(name)]
        return found[offset:][:limit]

    async def find(
        self,
        tenant: str,
        terms: Sequence[bytes],
        *,
        thread_id: str | None,
        newest_only: bool,
        limit: int | None,
        offset: int,
        now: int,
    ) -> list[Info]:
        """See `Driver.find`."""
        with self._lock:
            found = []
            for name, thread in self._listed(tenant, now):
                if thread_id is None or name == thread_id:
                    looked_at = [thread.head] if newest_only and thread.head else thread.newest_first()
                    found += [thread.info(name, c) for c in looked_at if c.terms.issuperset(terms)]
        return found[offset:][:limit]

    async def contents(self, key: Key, *, now: int) -> Contents | None:
        """See `Driver.contents`."""
        with self._lock:
            thread = self._live(key, now)
            if thread is None or not thread.checkpoints:
                return None
            rows = [
                ContentsRow(c.checkpoint_id, c.version, c.own_block, c.ranges, c.payload)
                for c in thread.checkpoints.values()
            ]
            return Contents(thread.updated_at, rows, list(thread.blocks.values()))

    # ------------------------------------------------------------------------------------------------------ removing

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """See `Driver.drop`."""
        with self._lock:
            live = self._live(key, now)
            if live is None or not live.checkpoints:
                if checkpoint_ids is None:
                    self._forget(key)
                return Dropped(0, None, None)
            versions = (
                set(live.checkpoints)
                if checkpoint_ids is None
                else {live.versions[i] for i in checkpoint_ids if i in live.versions}
            )
            thread = live.copy()
            self._remove(key, thread, versions)
            return Dropped(len(versions), live.epoch, thread.epoch if thread.checkpoints else None)

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`."""
        checkpoints = blocks = 0
        with self._lock:
            for thread_id, found in list(self._tenants.get(tenant, {}).items()):
                key = Key(tenant, thread_id)
                if self._live(key, now) is None:
                    checkpoints += len(found.checkpoints)
                    blocks += len(found.blocks)
                    self._forget(key)
                    continue
                newest_first = list(found.newest_first())
                versions = {c.version for c in newest_first[keep_last:] if c.created_at < older_than}
                checkpoints += len(versions)
                blocks += self._remove(key, found.copy(), versions) if versions else 0
        return Trimmed(checkpoints, blocks)

    async def reclaim(self) -> int:
        """Nothing to do: Python gives memory back by itself."""
        return 0

    # ------------------------------------------------------------------------------------------------------- copying

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        with self._lock:
            live = self._live(source, now)
            versions = [v for v in live.checkpoints if upto is None or v <= upto] if live else []
            if live is None or not versions:
                return "missing"
            there = self._live(dest, now)
            if there and there.checkpoints and not overwrite:
                return "exists"
            copy = live.copy()
            copy.release(copy.remove(set(copy.checkpoints) - set(versions)), self.codec, ThreadName(*source))
            copy.epoch = new_epoch()
            copy.version = max(versions)
            copy.block_count = max(copy.blocks, default=0)
            copy.updated_at = max(now, there.updated_at + 1) if there else now
            if self.codec and self.codec.bound:
                rebind(copy, self.codec, ThreadName(*source), ThreadName(*dest))
            self._tenants.setdefault(dest.tenant, {})[dest.thread_id] = copy
            return "copied"

    # ------------------------------------------------------------------------------------------------------- records

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        with self._lock:
            thread = self._live(key, now) or Thread()
            for name, payload in items:
                if not (keep and (scope, name) in thread.records):
                    thread.records[scope, name] = payload
            thread.expires_at = expires_at
            if thread.records or thread.checkpoints:
                self._tenants.setdefault(key.tenant, {})[key.thread_id] = thread

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        with self._lock:
            thread = self._live(key, now)
            found = [(s, k, p) for (s, k), p in thread.records.items()] if thread else []
        return sorted([r for r in found if scope is None or r[0] == scope], key=lambda r: r[0])

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """See `Driver.drop_records`."""
        with self._lock:
            thread = self._live(key, now)
            if thread is None:
                return 0
            gone = [r for r in thread.records if scope is None or r[0] == scope]
            for record in gone:
                del thread.records[record]
            if not thread.records and not thread.checkpoints:
                self._forget(key)
            return len(gone)

    # ---------------------------------------------------------------------------------------------------- life cycle

    async def prepare(self) -> None:
        """Nothing to do."""

    async def aclose(self) -> None:
        """Nothing to do; what was saved stays."""

    # --------------------------------------------------------------------------------------------------------- parts

    def _live(self, key: Key, now: int) -> Thread | None:
        """The thread, if there is one that has not expired; it may have records only."""
        thread = self._tenants.get(key.tenant, {}).get(key.thread_id)
        return None if thread is None or (thread.expires_at is not None and thread.expires_at <= now) else thread

    def _listed(self, tenant: str, now: int) -> list[tuple[str, Thread]]:
        """Threads with checkpoints, last write first, then by id."""
        found = [
            (name, thread)
            for name, thread in self._tenants.get(tenant, {}).items()
            if thread.checkpoints and self._live(Key(tenant, name), now)
        ]
        return sorted(found, key=lambda item: (-item[1].updated_at, item[0]))

    def _remove(self, key: Key, thread: Thread, versions: Iterable[int]) -> int:
        """Take checkpoints out of a thread's copy and put that in place; returns how many blocks went."""
        dropped = thread.remove(versions)
        if not thread.checkpoints:
            self._forget(key)
            return len(thread.blocks)
        blocks = thread.release(dropped, self.codec, ThreadName(*key))
        self._tenants[key.tenant][key.thread_id] = thread
        return blocks

    def _forget(self, key: Key) -> None:
        threads = self._tenants.get(key.tenant, {})
        threads.pop(key.thread_id, None)
        if not threads:
            self._tenants.pop(key.tenant, None)
