"""A thread's checkpoints as dicts under keys, in storage of somebody else's.

The keys are those of the locus SDK's adapter, so that each reads what the other wrote:

    {thread}:{checkpoint id}   the state, with ``_checkpoint_id``, ``_checkpoint_timestamp`` and ``_metadata``
    {thread}:latest            the same dict, of the newest checkpoint
    {thread}:_checkpoints      the index: a list of ``checkpoint_id``, ``timestamp`` and ``metadata``, newest first

A save is three writes, without a transaction. So a crash between them can leave a checkpoint that is not listed, and of
two processes that save to one thread at the same moment, one can lose the other's entry of the index. The backends of
this package have neither problem.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict
from weakref import WeakValueDictionary

from locus_store.core import ids
from locus_store.core.clock import process_clock, to_datetime
from locus_store.core.errors import CorruptCheckpointError

LATEST, INDEX = "latest", "_checkpoints"
ID, TIME, NOTES = "_checkpoint_id", "_checkpoint_timestamp", "_metadata"
_PAGE = 1000

_guard = threading.Lock()
_locks: WeakValueDictionary[tuple[int, str], threading.Lock] = WeakValueDictionary()
"""By the backend's identity and thread; a lock is there while somebody holds it, and so is the backend."""


class Entry(TypedDict):
    """One line of an index."""

    checkpoint_id: str
    timestamp: str
    metadata: dict[str, Any] | None


class KeyedRows:
    """The rows of threads in one backend.

    Args:
        backend: Anything with ``save``, ``load``, ``delete`` and ``exists``.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self._takes_metadata = "metadata" in parameters(backend.save)

    @asynccontextmanager
    async def alone(self, thread_id: str) -> AsyncIterator[None]:
        """No other adapter of this process over the same backend changes the thread meanwhile, on any event loop."""
        with _guard:
            lock = _locks.setdefault((id(self.backend), thread_id), threading.Lock())
        wait = 0.0
        while not lock.acquire(blocking=False):
            await asyncio.sleep(wait)
            wait = min(wait + 0.001, 0.01)
        try:
            yield
        finally:
            lock.release()

    async def row(self, thread_id: str, checkpoint_id: str | None) -> dict[str, Any] | None:
        """What is stored for a checkpoint (None: the newest), as a dict of the caller's own, or None."""
        ids.check_thread_id(thread_id)
        if checkpoint_id is not None and ids.check_checkpoint_id(checkpoint_id) in (LATEST, INDEX):
            return None
        row = await self.backend.load(key_of(thread_id, checkpoint_id or LATEST))
        if row is None:
            return None
        if not isinstance(row, dict):
            raise CorruptCheckpointError(thread_id, checkpoint_id, f"what is stored is a {type(row).__name__}, no dict")
        # "t:a:b" may be checkpoint "b" of thread "t:a", or something else that the backend is used for.
        if ID not in row or (checkpoint_id is not None and row[ID] != checkpoint_id):
            return None
        return {TIME: "", NOTES: {}, **row}

    async def save_row(self, thread_id: str, checkpoint_id: str, row: dict[str, Any]) -> None:
        """Store a checkpoint; the index and the newest one are not touched."""
        more = {"metadata": row[NOTES] or {}} if self._takes_metadata else {}
        await self.backend.save(key_of(thread_id, checkpoint_id), row, **more)

    async def save_newest(self, thread_id: str, row: dict[str, Any]) -> None:
        """Store which checkpoint is the newest."""
        await self.backend.save(key_of(thread_id, LATEST), row)

    async def index(self, thread_id: str) -> list[Entry]:
        """The thread's index, newest first."""
        found = await self.backend.load(key_of(thread_id, INDEX))
        if found is None:
            return []
        try:
            entries: list[Entry] = list(found["checkpoints"])
            _ = [entry["checkpoint_id"] for entry in entries]
        except (KeyError, TypeError) as e:
            raise CorruptCheckpointError(thread_id, None, "the list of its checkpoints is damaged") from e
        return entries

    async def save_index(self, thread_id: str, entries: list[Entry]) -> None:
        """Store the thread's index."""
        await self.backend.save(key_of(thread_id, INDEX), {"checkpoints": entries})

    async def delete_some(self, thread_id: str, checkpoint_ids: list[str]) -> int:
        """Delete checkpoints, the thread with the last of them; returns how many there were."""
        index = await self.index(thread_id)
        listed = {entry["checkpoint_id"] for entry in index}
        gone = {one for one in checkpoint_ids if one in listed or await self.row(thread_id, one) is not None}
        if not gone:
            return 0
        left = without(index, gone)
        newest = await self.row(thread_id, None)
        if newest is not None and newest[ID] in gone:
            newest = None
            for entry in left:
                newest = await self.row(thread_id, entry["checkpoint_id"])
                if newest is not None:
                    break
            if newest is None:
                await self.delete_thread(thread_id, gone)
                return len(gone)
            await self.save_newest(thread_id, newest)
        await self.save_index(thread_id, left)
        for one in gone:
            await self.backend.delete(key_of(thread_id, one))
        return len(gone)

    async def delete_thread(self, thread_id: str, also: Iterable[str] = ()) -> bool:
        """Delete all of a thread, and checkpoints that may be neither listed nor found."""
        names = list(dict.fromkeys([*also, *(entry["checkpoint_id"] for entry in await self.index(thread_id))]))
        if callable(getattr(self.backend, "list_threads", None)):
            # Those that the index has lost.
            start = key_of(thread_id, "")
            found = [key.removeprefix(start) for key in await self.keys() if key.startswith(start)]
            names += [one for one in found if one not in names and one and await self.row(thread_id, one) is not None]
        deleted = [await self.backend.delete(key_of(thread_id, name)) for name in (*names, LATEST, INDEX)]
        return any(deleted)

    async def keys(self) -> list[str]:
        """All keys of the backend, in its order."""
        listing = self.backend.list_threads
        known = parameters(listing)
        if "limit" not in known:
            return list(await listing())
        keys: dict[str, None] = {}
        size = _PAGE
        while True:
            page = await listing(limit=size, **({"offset": len(keys)} if "offset" in known else {}))
            before = len(keys)
            keys.update(dict.fromkeys(page))
            # A page may be shorter than it was asked for, though there is more.
            if len(keys) == before or ("offset" not in known and len(page) < size):
                return list(keys)
            if "offset" not in known:
                size *= 2


def parameters(function: Any) -> list[str]:
    """The names of a function's parameters; none if they cannot be told."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def key_of(thread_id: str, name: str) -> str:
    """The key under which a part of a thread is stored."""
    return f"{thread_id}:{name}"


def without(index: list[Entry], gone: set[str]) -> list[Entry]:
    """An index without some checkpoints."""
    return [entry for entry in index if entry["checkpoint_id"] not in gone]


def time_of(text: Any) -> datetime | None:
    """The moment that a row or an index names, or None."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def time_after(index: list[Entry]) -> str:
    """The present, or a moment after the newest entry's where another clock is ahead: the SDK sorts by it."""
    now = to_datetime(process_clock())
    newest = time_of(index[0].get("timestamp")) if index else None
    return (now if newest is None else max(now, newest + timedelta(microseconds=1))).isoformat()
