"""The driver over a bucket of objects: whole documents, one object each, in a log for each thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal
from weakref import WeakValueDictionary

from locus_store.backends.objects import copying, names, reading, removing, saving, threads, trimming, values
from locus_store.backends.objects.hints import Hints
from locus_store.backends.objects.port import ObjectPort
from locus_store.backends.objects.probing import SingleWriter, has_conditional_writes, refused
from locus_store.backends.objects.thread import Thread
from locus_store.backends.objects.view import Shelf
from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import Driver, Dropped, Info, Key, Plan, PutResult, Stored, Trimmed
from locus_store.core.frames import Codec


class ObjectDriver(Driver):
    """Threads in a bucket.

    Args:
        port: The bucket.
        prefix: What the keys of all objects begin with.
        codec: What the frames went through; it is needed where a copy goes to another thread.
        single_writer: This object is the only one that writes, so the service need not be able to create objects
            conditionally. Whether another one writes all the same is not noticed, and either may lose what it saved.
    """

    def __init__(
        self, port: ObjectPort, *, prefix: str = "", codec: Codec | None = None, single_writer: bool = False
    ) -> None:
        self._port = port
        self._single_writer = single_writer
        self.capabilities = replace(EVERYTHING_SHARED, incremental=False, shared=not single_writer)
        self._shelf = Shelf(SingleWriter(port) if single_writer else port, names.check_prefix(prefix), codec, Hints())
        self._probed = single_writer
        self._turns: WeakValueDictionary[tuple[int, Key], asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._port!r}, prefix={self.prefix!r})"

    @property
    def prefix(self) -> str:
        """What the keys of all objects begin with."""
        return self._shelf.prefix

    @asynccontextmanager
    async def _changing(self, key: Key) -> AsyncIterator[Thread]:
        """A thread for a change; the tasks of one event loop take turns, since only one can be the first."""
        await self._probe()
        turn = (id(asyncio.get_running_loop()), key)
        lock = self._turns.get(turn)
        if lock is None:
            lock = self._turns[turn] = asyncio.Lock()
        async with lock:
            yield Thread(self._shelf, key)

    async def _probe(self) -> None:
        if not self._probed:
            if not await has_conditional_writes(self._port, self.prefix, time.time_ns() // 1000):
                raise refused()
            self._probed = True

    # -------------------------------------------------------------------------------------------------------- saving

    async def put(self, key: Key, plan: Plan) -> PutResult:
        async with self._changing(key) as thread:
            return await saving.save(thread, plan)

    # ------------------------------------------------------------------------------------------------------- reading

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        return await reading.get(Thread(self._shelf, key), checkpoint_id, now)

    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        return await reading.info(Thread(self._shelf, key), checkpoint_id, now)

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        return await reading.infos(Thread(self._shelf, key), before, limit, now)

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        return await threads.threads(self._shelf, tenant, pattern, limit=limit, offset=offset, now=now)

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
        return await threads.find(
            self._shelf,
            tenant,
            terms,
            thread_id=thread_id,
            newest_only=newest_only,
            limit=limit,
            offset=offset,
            now=now,
        )

    # ------------------------------------------------------------------------------------------------------ removing

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        async with self._changing(key) as thread:
            return await removing.drop(thread, checkpoint_ids, now)

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        await self._probe()
        return await trimming.trim(self._shelf, tenant, older_than=older_than, keep_last=keep_last, now=now)

    async def reclaim(self) -> int:
        return 0  # what is deleted is paid for no more

    # ------------------------------------------------------------------------------------------------------- copying

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        async with self._changing(dest) as thread:
            return await copying.clone(Thread(self._shelf, source), thread, upto=upto, overwrite=overwrite, now=now)

    # ------------------------------------------------------------------------------------------------------- records

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        async with self._changing(key) as thread:
            await values.put_values(thread, scope, items, keep=keep, now=now, expires_at=expires_at)

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        return await values.values(Thread(self._shelf, key), scope, now)

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        async with self._changing(key) as thread:
            return await values.drop_values(thread, scope, now)

    # ---------------------------------------------------------------------------------------------------- life cycle

    async def prepare(self) -> None:
        """Find out whether the bucket is there and does what a store needs.

        Raises:
            UnsupportedOperationError: It cannot create objects conditionally.
        """
        if self._single_writer:
            await self._port.list(self.prefix, limit=1)
        else:
            await self._probe()

    async def aclose(self) -> None:
        await self._port.aclose()
