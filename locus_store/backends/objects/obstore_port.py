"""A bucket by way of obstore: Amazon S3 and everything that speaks its protocol, Google's and Azure's services.

obstore's calls are coroutines that any event loop can await; its connections belong to threads of its own. It sends
plain bodies with their length and a SHA-256 in the signed header (no chunked uploads, no trailers), and multi-deletes
with an MD5, which is what S3 look-alikes take.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from locus_store.backends.objects.obstore_errors import Refusal, refusal
from locus_store.backends.objects.parallel import in_parallel
from locus_store.backends.objects.port import (
    PAGE,
    Listed,
    Object,
    ObjectConflictError,
    ObjectExistsError,
    ObjectPort,
    Page,
)
from locus_store.core.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import AzureStore, GCSStore, S3Store

    ObstoreStore = S3Store | GCSStore | AzureStore

T = TypeVar("T")

_threads_in = 0  # the process in which obstore's threads were started, 0 while they were not


def _count_on_threads(where: str) -> None:
    """Take note that obstore's threads run in this process from now on.

    Raises:
        BackendError: They run in the process that this one was forked from.
    """
    global _threads_in
    if _threads_in not in (0, os.getpid()):
        raise BackendError(
            f"{where}: this process was forked from one that had used obstore, whose threads are not in it, so that "
            "every call would wait for ever: start it by 'spawn' or 'forkserver', or fork before the first call"
        )
    if not _threads_in:
        atexit.register(_await_threads)
    _threads_in = os.getpid()


def _await_threads() -> None:
    """At the end of the process, let obstore's threads let go of what they still hold of a call.

    One that asks for the interpreter when that has ended takes the process down with it (SIGABRT).
    """
    if _threads_in == os.getpid():
        time.sleep(5 * _MOMENT)


_MOMENT = 0.01
"""Seconds that obstore's threads take at the most to let go of a call; there is no signal of it."""

RETRIES = 2
"""How often a write is sent again when its connection was lost; obstore repeats only what it takes for harmless."""


class ObstorePort(ObjectPort):
    """A port over a store of obstore's.

    Args:
        make: Makes the store, when it is needed. With True it makes one that deletes objects one by one.
        where: What errors call the bucket.
        max_requests: How many requests may be under way at once in one event loop.
        create: Makes the bucket of a store, when it turns out that there is none; None leaves that to others.
        deletes_singly: Whether the service has no multi-delete. On S3 that is found out.
    """

    def __init__(
        self,
        make: Callable[[bool], ObstoreStore],
        where: str,
        *,
        max_requests: int = 50,
        create: Callable[[Any], Awaitable[None]] | None = None,
        deletes_singly: bool = False,
    ) -> None:
        self.where = where
        self._make = make
        self._create = create
        self._max_requests = max_requests
        self._store: ObstoreStore | None = None
        self._singly: ObstoreStore | None = None
        self._deletes_singly = deletes_singly
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @classmethod
    def over(cls, store: ObstoreStore, *, max_requests: int = 50) -> ObstorePort:
        """A port over a store of the caller's.

        Raises:
            TypeError: It is none of obstore's, or one without conditional writes; or it has a prefix of its own.
        """
        from obstore.store import AzureStore, GCSStore, S3Store

        if not isinstance(store, S3Store | GCSStore | AzureStore):
            raise TypeError(f"store must be an S3Store, GCSStore or AzureStore of obstore, got {type(store).__name__}")
        if store.prefix:
            raise TypeError("store must have no prefix of its own: give it to the backend")
        # Google's and Azure's multi-deletes are either not there or make errors of objects that are gone.
        singly = not isinstance(store, S3Store)
        # Its own repr needs more of its configuration than it may have.
        name = next((value for key, value in store.config.items() if key in ("bucket", "container_name")), None)
        where = type(store).__name__ + (f" of {name!r}" if name else "")
        return cls(lambda _: store, where, max_requests=max_requests, deletes_singly=singly)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where})"

    # ---------------------------------------------------------------------------------------------------------- calls

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        store = await self._opened()

        async def send() -> str:
            done = await store.put_async(key, data, mode="create" if new else "overwrite", use_multipart=False)
            return _bare(done["e_tag"])

        try:
            return await self._again(send)
        except Refusal as e:
            if new and e.status == 412:
                raise ObjectExistsError(key) from e.__cause__
            if new and e.status == 409:
                raise ObjectConflictError(key) from e.__cause__
            raise self._error(e) from e.__cause__

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        store = await self._opened()

        async def fetch() -> Object:
            options: GetOptions | None = None
            if end is not None:
                options = {"range": (start, end)}
            elif start:
                options = {"range": {"offset": start}}
            answer = await store.get_async(key, options=options)
            data = await answer.bytes_async()
            return Object(bytes(data), answer.meta["size"], _bare(answer.meta["e_tag"]))

        async def look() -> Object:
            meta = await store.head_async(key)
            return Object(b"", meta["size"], _bare(meta["e_tag"]))

        try:
            try:
                return await self._turn(fetch)
            except Refusal as e:
                if e.status != 416:  # it has nothing at these places
                    raise
            return await self._turn(look)
        except Refusal as e:
            if e.missing:
                return None
            raise self._error(e) from e.__cause__

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        store = await self._opened()
        # obstore lists folders, and always asks for whole pages of a thousand: one less is taken, to see that more is.
        most = min(PAGE - 1 if limit is None else limit, PAGE - 1)
        folder, _, rest = prefix.rpartition("/")
        start = max(filter(None, (after, _just_before(prefix) if rest else None)), default=None)

        async def fetch() -> Page:
            found: list[Listed] = []
            async for part in store.list(folder or None, offset=start, chunk_size=most + 1):
                for item in part:
                    key = item["path"]
                    if key.startswith(prefix):
                        found.append(Listed(key, item["size"], _bare(item["e_tag"])))
                    elif key > prefix:
                        return Page(found[:most], len(found) > most)
                if len(found) > most:
                    break
            return Page(found[:most], len(found) > most)

        try:
            return await self._turn(fetch)
        except Refusal as e:
            raise self._error(e) from e.__cause__

    async def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        try:
            if not self._deletes_singly:
                store = await self._opened()
                try:
                    await self._again(lambda: store.delete_async([*keys]))
                    return
                except Refusal as e:
                    # No multi-delete here, or another one than obstore's.
                    if e.status not in (400, 405, 411, 501):
                        raise
            singly = await self._one_by_one()

            async def remove(key: str) -> None:
                try:
                    await self._again(lambda: singly.delete_async(key))
                except Refusal as e:
                    if not e.missing:
                        raise

            await in_parallel([remove(key) for key in keys])
            self._deletes_singly = True
        except Refusal as e:
            raise self._error(e) from e.__cause__

    async def aclose(self) -> None:
        if self._store is None:
            return
        from obstore.store import MemoryStore

        self._store = self._singly = None
        # What obstore's threads let go of without holding the interpreter is freed at the next call of obstore's, and
        # with it the connections: here is one, a moment later.
        await asyncio.sleep(_MOMENT)
        MemoryStore()

    # ----------------------------------------------------------------------------------------------------- the store

    async def _opened(self) -> ObstoreStore:
        _count_on_threads(self.where)
        # Making it may read files, and import what is slow to import.
        store = self._store
        if store is None:
            store = self._store = await asyncio.to_thread(self._make, False)
        return store

    async def _one_by_one(self) -> ObstoreStore:
        _count_on_threads(self.where)
        store = self._singly
        if store is None:
            store = self._singly = await asyncio.to_thread(self._make, True)
        return store

    # ------------------------------------------------------------------------------------------------------- requests

    async def _turn(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a request when fewer than the most are under way; what goes wrong is a `Refusal`.

        If the bucket is not there and may be made, it is sent again when it is.
        """
        loop = asyncio.get_running_loop()
        turns = self._turns.get(loop)
        if turns is None:
            turns = self._turns[loop] = asyncio.Semaphore(self._max_requests)
        async with turns:
            try:
                try:
                    return await send()
                except Exception as e:
                    if self._create is None or not refusal(e).no_bucket:
                        raise
                await self._create(await self._opened())
                return await send()
            except BackendError:
                raise
            except Exception as e:
                raise refusal(e) from e

    async def _again(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a write, again if its connection was lost: the driver recognises an attempt that arrived after all."""
        for attempt in range(RETRIES):
            try:
                return await self._turn(send)
            except Refusal as e:
                if not e.lost:
                    raise
            await asyncio.sleep(0.1 * 2**attempt * (1 + random.random()))  # noqa: S311  spreads those who wait
        return await self._turn(send)

    def _error(self, found: Refusal) -> BackendError:
        text = f"{self.where}: {found}"
        return BackendUnavailableError(text) if found.unavailable else BackendError(text)


def _bare(etag: str | None) -> str:
    return (etag or "").strip('"')


def _just_before(prefix: str) -> str:
    """A key that every key with the prefix comes after, and hardly any other."""
    last = ord(prefix[-1]) - 1
    return prefix[:-1] + (chr(last) if last != ord("/") else ".") + "~"
