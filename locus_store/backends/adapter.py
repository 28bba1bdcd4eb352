"""Checkpointers over storage of somebody else's: anything that keeps dicts under keys.

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
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Self, TypedDict, TypeVar, overload
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from locus_store.core import ids, patterns
from locus_store.core.backend import Backend
from locus_store.core.capabilities import Capabilities
from locus_store.core.clock import process_clock, to_datetime
from locus_store.core.errors import CheckpointError, CorruptCheckpointError, SerializationError, ThreadExistsError
from locus_store.core.metadata import matches
from locus_store.core.options import check_count, check_limit
from locus_store.core.protocols import BaseCheckpointer
from locus_store.core.state import AgentState
from locus_store.core.store import Store

State = TypeVar("State", bound=BaseModel)

_LATEST, _INDEX = "latest", "_checkpoints"
_ID, _TIME, _NOTES = "_checkpoint_id", "_checkpoint_timestamp", "_metadata"
_METHODS = ("save", "load", "delete", "exists")
_PAGE = 1000


class _Entry(TypedDict):
    """One line of an index."""

    checkpoint_id: str
    timestamp: str
    metadata: dict[str, Any] | None


class AdaptedRow(TypedDict):
    """A checkpoint without its state, as the metadata methods of `StorageBackendAdapter` return it."""

    thread_id: str
    checkpoint_id: str
    created_at: datetime | None
    metadata: dict[str, Any]


class StorageBackendAdapter(BaseCheckpointer, Generic[State]):
    """A checkpointer over a backend that keeps dicts under keys.

    Over a backend of this package it is what the backend's own ``checkpointer()`` gives. Over any other object it needs
    the methods ``save(key, dict)``, ``load(key)``, ``delete(key)`` and ``exists(key)``; with ``list_threads`` it can do
    more, as its `capabilities` say. States are stored as JSON types, so what JSON lacks does not come back as it was.

    Args:
        backend: Where to store.
        state_type: The pydantic model that `load` returns.
    """

    def __new__(cls, backend: Any, state_type: type[BaseModel] = AgentState) -> Any:
        """Adapt a foreign backend, or ask one of this package for its checkpointer."""
        if isinstance(backend, Backend):
            return backend.checkpointer(state_type)
        return super().__new__(cls)

    @overload
    def __init__(self: StorageBackendAdapter[AgentState], backend: Any) -> None: ...
    @overload
    def __init__(self, backend: Any, state_type: type[State]) -> None: ...
    def __init__(self, backend: Any, state_type: Any = AgentState) -> None:
        _check_backend(backend)
        _check_state_type(state_type)
        self.backend = backend
        self._state_type: type[State] = state_type
        self._takes_metadata = "metadata" in _parameters(backend.save)

    @property
    def state_type(self) -> type[State]:
        """The pydantic model that `load` returns."""
        return self._state_type

    @property
    def capabilities(self) -> Capabilities:
        """What can be done over this backend; most of it needs its ``list_threads``."""
        listing = callable(getattr(self.backend, "list_threads", None))
        config = getattr(self.backend, "config", None)
        return Capabilities(
            search=callable(getattr(self.backend, "search", None)),
            metadata_query=listing,
            vacuum=listing,
            branching=True,
            ttl=getattr(config, "ttl_seconds", None) is not None,
            list_threads=listing,
            list_with_metadata=listing,
            persistent_checkpoint_ids=True,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.backend).__name__}, {self._state_type.__name__})"

    # ------------------------------------------------------------------------------------------------ saving, loading

    async def save(
        self,
        state: Any,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Save a state as the newest checkpoint of a thread.

        Args:
            state: A pydantic model, or anything with ``to_checkpoint()``.
            thread_id: The thread.
            checkpoint_id: The checkpoint's id, without a colon; None makes a new one. One that is there is replaced.
            metadata: A dict by which the checkpoint can be found.

        Returns:
            The checkpoint's id.
        """
        document = _document(state)
        notes = _notes(metadata)
        ids.check_thread_id(thread_id)
        new_id = ids.new_checkpoint_id() if checkpoint_id is None else _check_new_id(checkpoint_id)
        async with self._alone(thread_id):
            index = await self._index(thread_id)
            time = _time_after(index)
            row = {**document, _ID: new_id, _TIME: time, _NOTES: notes}
            await self._save_row(thread_id, new_id, row)
            await self.backend.save(_key(thread_id, _LATEST), dict(row))
            entry: _Entry = {"checkpoint_id": new_id, "timestamp": time, "metadata": notes}
            await self._save_index(thread_id, [entry, *_without(index, {new_id})])
        return new_id

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> State | None:
        """Load a state.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; None for the newest.

        Returns:
            The state, or None if it is not there.

        Raises:
            CheckpointError: What is stored does not fit ``state_type``.
        """
        row = await self._row(thread_id, checkpoint_id)
        if row is None:
            return None
        document = {name: value for name, value in row.items() if name not in (_ID, _TIME, _NOTES)}
        make = getattr(self._state_type, "from_checkpoint", self._state_type.model_validate)
        try:
            found: State = make(document)
        except ValidationError as e:
            raise CheckpointError(
                thread_id, row[_ID], f"what is stored does not fit {self._state_type.__name__}"
            ) from e
        return found

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether a thread, or one checkpoint of it, is there."""
        if checkpoint_id is not None:
            return await self._row(thread_id, checkpoint_id) is not None
        return bool(await self.backend.exists(_key(ids.check_thread_id(thread_id), _LATEST)))

    # -------------------------------------------------------------------------------------------------------- listing

    async def list_checkpoints(self, thread_id: str, limit: int | None = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first; a limit of None means all."""
        check_limit(limit)
        return [entry["checkpoint_id"] for entry in await self._index(ids.check_thread_id(thread_id))][:limit]

    async def list_threads(self, limit: int | None = 100, offset: int = 0, pattern: str = "*") -> list[str]:
        """The ids of threads, in the order in which the backend lists its keys.

        Args:
            limit: How many at the most; None for all.
            offset: How many to pass over.
            pattern: ``*`` or ``%`` is any run of characters, ``?`` any one, everything else literal.
        """
        check_limit(limit)
        check_count(offset, "offset", 0)
        self._require_capability("list_threads")
        regex = patterns.parse(pattern).regex()
        ending = _key("", _LATEST)
        names = [key.removesuffix(ending) for key in await self._keys() if key.endswith(ending)]
        return [name for name in names if regex.fullmatch(name)][offset:][:limit]

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> AdaptedRow | None:
        """What is known about a checkpoint (None: the newest) without its state, or None if it is not there."""
        if checkpoint_id is not None:
            ids.check_checkpoint_id(checkpoint_id)
        for entry in await self._index(ids.check_thread_id(thread_id)):
            if checkpoint_id in (None, entry["checkpoint_id"]):
                return _shown(thread_id, entry)
        row = await self._row(thread_id, checkpoint_id)
        if row is None:
            return None
        return _shown(thread_id, {"checkpoint_id": row[_ID], "timestamp": row[_TIME], "metadata": row[_NOTES]})

    async def list_with_metadata(self, limit: int | None = 100, offset: int = 0) -> list[AdaptedRow]:
        """The newest checkpoint of each thread with its metadata; reads the index of each of these threads."""
        found = [await self.get_metadata(name) for name in await self.list_threads(limit, offset)]
        return [row for row in found if row is not None]

    async def query_by_metadata(
        self, key: str | Mapping[str, Any], value: Any = None, limit: int | None = 100
    ) -> list[AdaptedRow]:
        """Threads whose newest checkpoint's metadata has a value under a key, or all of several.

        Values are compared as `Backend.query_by_metadata` does. This reads the index of one thread after the other.

        Args:
            key: One key, or a dict of keys and values which must all match.
            value: What the one key has; not to be given with a dict.
            limit: How many at the most; None for all.
        """
        check_limit(limit)
        self._require_capability("metadata_query")
        if isinstance(key, Mapping) and value is not None:
            raise TypeError("give either a dict, or one key and its value")
        query = dict(key) if isinstance(key, Mapping) else {key: value}
        rows: list[AdaptedRow] = []
        for name in await self.list_threads(limit=None):
            if limit is not None and len(rows) >= limit:
                break
            row = await self.get_metadata(name)
            if row is not None and matches(query, row["metadata"]):
                rows.append(row)
        return rows

    async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """What the backend's own search finds, each checkpoint once and under its thread's id."""
        self._require_capability("search")
        found: dict[tuple[str, str], dict[str, Any]] = {}
        # A checkpoint may be found three times: under its id, as the newest, and in the index.
        for hit in await self.backend.search(query, limit=3 * limit):
            thread_id, _, name = str(hit.get("thread_id", "")).rpartition(":")
            data = hit.get("data")
            if name != _INDEX:
                one = data.get(_ID, name) if isinstance(data, dict) else name
                found.setdefault((thread_id, one), {**hit, "thread_id": thread_id, "checkpoint_id": one})
        return list(found.values())[:limit]

    # ------------------------------------------------------------------------------------------- deleting and copying

    async def delete(self, thread_id: str, checkpoint_id: str | Iterable[str] | None = None) -> bool:
        """Delete a thread, one of its checkpoints, or several; the newest that is left becomes the newest.

        Args:
            thread_id: The thread.
            checkpoint_id: None for the whole thread, or an id, or several.

        Returns:
            Whether there was anything to delete.
        """
        ids.check_thread_id(thread_id)
        if checkpoint_id is None:
            async with self._alone(thread_id):
                return await self._delete_thread(thread_id)
        several = [checkpoint_id] if isinstance(checkpoint_id, str) else list(checkpoint_id)
        wanted = {ids.check_checkpoint_id(one): None for one in several}
        async with self._alone(thread_id):
            return await self._delete_some(thread_id, list(wanted)) > 0

    async def copy_thread(self, source_thread_id: str, dest_thread_id: str, *, overwrite: bool = False) -> bool:
        """Copy a thread with its checkpoints, their ids, order, metadata and times, one checkpoint after the other.

        Args:
            source_thread_id: The thread to copy.
            dest_thread_id: The new thread.
            overwrite: Replace a destination that is there.

        Returns:
            False if the source is not there.

        Raises:
            ThreadExistsError: The destination is there and ``overwrite`` is False.
            ValueError: Source and destination are the same.
        """
        ids.check_thread_id(source_thread_id)
        ids.check_thread_id(dest_thread_id)
        if source_thread_id == dest_thread_id:
            raise ValueError(f"a thread cannot be copied onto itself: {source_thread_id!r}")
        newest = await self._row(source_thread_id, None)
        if newest is None:
            return False
        async with self._alone(dest_thread_id):
            if await self.exists(dest_thread_id):
                if not overwrite:
                    raise ThreadExistsError(dest_thread_id)
                await self._delete_thread(dest_thread_id)
            index = await self._index(source_thread_id)
            if newest[_ID] not in {entry["checkpoint_id"] for entry in index}:
                index.insert(0, {"checkpoint_id": newest[_ID], "timestamp": newest[_TIME], "metadata": newest[_NOTES]})
            copied: list[_Entry] = []
            for entry in index:
                row = await self._row(source_thread_id, entry["checkpoint_id"])
                if row is not None:
                    await self._save_row(dest_thread_id, entry["checkpoint_id"], row)
                    copied.append(entry)
            await self.backend.save(_key(dest_thread_id, _LATEST), newest)
            await self._save_index(dest_thread_id, copied)
        return True

    async def vacuum(self, older_than_days: float = 30, keep_last: int = 1) -> int:
        """Remove old checkpoints of all threads.

        Args:
            older_than_days: Checkpoints older than so many days go.
            keep_last: But never the newest so many of a thread.

        Returns:
            How many went.
        """
        check_count(keep_last, "keep_last", 0)
        self._require_capability("vacuum")
        before = datetime.now(UTC) - timedelta(days=older_than_days)
        removed = 0
        for name in await self.list_threads(limit=None):
            async with self._alone(name):
                index = await self._index(name)
                old = [
                    entry["checkpoint_id"]
                    for entry in index[keep_last:]
                    if (time := _time(entry["timestamp"])) is not None and time < before
                ]
                if old:
                    removed += await self._delete_some(name, old)
        return removed

    async def close(self) -> None:
        """Close the backend, if it can be closed."""
        close = getattr(self.backend, "close", None)
        if close is not None:
            result = close()
            if inspect.isawaitable(result):
                await result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------------------------------------- keys and rows

    @asynccontextmanager
    async def _alone(self, thread_id: str) -> AsyncIterator[None]:
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

    async def _row(self, thread_id: str, checkpoint_id: str | None) -> dict[str, Any] | None:
        """What is stored for a checkpoint (None: the newest), as a dict of the caller's own."""
        ids.check_thread_id(thread_id)
        if checkpoint_id is not None and ids.check_checkpoint_id(checkpoint_id) in (_LATEST, _INDEX):
            return None
        row = await self.backend.load(_key(thread_id, checkpoint_id or _LATEST))
        if row is None:
            return None
        if not isinstance(row, dict):
            raise CorruptCheckpointError(thread_id, checkpoint_id, f"what is stored is a {type(row).__name__}, no dict")
        # "t:a:b" may be checkpoint "b" of thread "t:a", or something else that the backend is used for.
        if _ID not in row or (checkpoint_id is not None and row[_ID] != checkpoint_id):
            return None
        return {_TIME: "", _NOTES: {}, **row}

    async def _save_row(self, thread_id: str, checkpoint_id: str, row: dict[str, Any]) -> None:
        more = {"metadata": row[_NOTES] or {}} if self._takes_metadata else {}
        await self.backend.save(_key(thread_id, checkpoint_id), row, **more)

    async def _index(self, thread_id: str) -> list[_Entry]:
        found = await self.backend.load(_key(thread_id, _INDEX))
        if found is None:
            return []
        try:
            entries: list[_Entry] = list(found["checkpoints"])
            _ = [entry["checkpoint_id"] for entry in entries]
        except (KeyError, TypeError) as e:
            raise CorruptCheckpointError(thread_id, None, "the list of its checkpoints is damaged") from e
        return entries

    async def _save_index(self, thread_id: str, entries: list[_Entry]) -> None:
        await self.backend.save(_key(thread_id, _INDEX), {"checkpoints": entries})

    async def _delete_some(self, thread_id: str, checkpoint_ids: list[str]) -> int:
        index = await self._index(thread_id)
        listed = {entry["checkpoint_id"] for entry in index}
        gone = {one for one in checkpoint_ids if one in listed or await self._row(thread_id, one) is not None}
        if not gone:
            return 0
        left = _without(index, gone)
        newest = await self._row(thread_id, None)
        if newest is not None and newest[_ID] in gone:
            newest = None
            for entry in left:
                newest = await self._row(thread_id, entry["checkpoint_id"])
                if newest is not None:
                    break
            if newest is None:
                await self._delete_thread(thread_id, gone)
                return len(gone)
            await self.backend.save(_key(thread_id, _LATEST), newest)
        await self._save_index(thread_id, left)
        for one in gone:
            await self.backend.delete(_key(thread_id, one))
        return len(gone)

    async def _delete_thread(self, thread_id: str, also: Iterable[str] = ()) -> bool:
        names = list(dict.fromkeys([*also, *(entry["checkpoint_id"] for entry in await self._index(thread_id))]))
        if self.capabilities.list_threads:
            # Those that the index has lost.
            start = _key(thread_id, "")
            found = [key.removeprefix(start) for key in await self._keys() if key.startswith(start)]
            names += [one for one in found if one not in names and one and await self._row(thread_id, one) is not None]
        deleted = [await self.backend.delete(_key(thread_id, name)) for name in (*names, _LATEST, _INDEX)]
        return any(deleted)

    async def _keys(self) -> list[str]:
        """All keys of the backend, in its order."""
        listing = self.backend.list_threads
        known = _parameters(listing)
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


_guard = threading.Lock()
_locks: WeakValueDictionary[tuple[int, str], threading.Lock] = WeakValueDictionary()
"""By the backend's identity and thread; a lock is there while somebody holds it, and so is the backend."""


def _check_backend(backend: Any) -> None:
    kind = type(backend).__name__
    if isinstance(backend, Store) or next(iter(_parameters(getattr(backend, "save", None))), "") == "state":
        raise TypeError(
            f"{kind} is a checkpointer already: use it as it is, or adapt the backend under it (checkpointer.backend)"
        )
    missing = [name for name in _METHODS if not callable(getattr(backend, name, None))]
    if missing:
        raise TypeError(f"{kind} is no backend that can be adapted, for it lacks {', '.join(missing)}")


def _check_state_type(state_type: Any) -> None:
    if not (isinstance(state_type, type) and issubclass(state_type, BaseModel)):
        raise TypeError(f"a state type must be a pydantic model, got {state_type!r}")


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _key(thread_id: str, name: str) -> str:
    return f"{thread_id}:{name}"


def _check_new_id(checkpoint_id: str) -> str:
    if ":" in ids.check_checkpoint_id(checkpoint_id) or checkpoint_id in (_LATEST, _INDEX):
        raise ValueError(
            f"over a foreign backend a checkpoint_id may have no colon and be neither {_LATEST!r} nor {_INDEX!r}: "
            f"{checkpoint_id!r}"
        )
    return checkpoint_id


def _document(state: Any) -> dict[str, Any]:
    dump = getattr(state, "to_checkpoint", None)
    if not callable(dump) and not isinstance(state, BaseModel):
        raise TypeError(f"save(state, thread_id): the state must be a pydantic model, got {type(state).__name__}")
    try:
        document: dict[str, Any] = dump() if callable(dump) else state.model_dump(mode="json")
    except (PydanticSerializationError, UnicodeDecodeError) as e:
        raise SerializationError("$", f"the state has no JSON form: {e}") from e
    return document


def _notes(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict, got {type(metadata).__name__}")
    try:
        notes: dict[str, Any] = to_jsonable_python(dict(metadata))
    except (PydanticSerializationError, UnicodeDecodeError) as e:
        raise SerializationError("$", f"the metadata has no JSON form: {e}") from e
    return notes


def _without(index: list[_Entry], gone: set[str]) -> list[_Entry]:
    return [entry for entry in index if entry["checkpoint_id"] not in gone]


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _time_after(index: list[_Entry]) -> str:
    """The present, or a moment after the newest entry's where another clock is ahead: the SDK sorts by it."""
    now = to_datetime(process_clock())
    newest = _time(index[0].get("timestamp")) if index else None
    return (now if newest is None else max(now, newest + timedelta(microseconds=1))).isoformat()


def _shown(thread_id: str, entry: _Entry) -> AdaptedRow:
    return {
        "thread_id": thread_id,
        "checkpoint_id": entry["checkpoint_id"],
        "created_at": _time(entry.get("timestamp")),
        "metadata": entry.get("metadata") or {},
    }
