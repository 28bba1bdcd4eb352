"""Checkpointers over storage of somebody else's: anything that keeps dicts under keys.

`locus_store.backends.keyed_rows` says how they are kept, and what that cannot do.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Self, TypedDict, TypeVar, overload

from pydantic import BaseModel, ValidationError

from locus_store.backends.adapting import check_backend, check_new_id, check_state_type, document_of, notes_of
from locus_store.backends.keyed_rows import (
    ID,
    INDEX,
    LATEST,
    NOTES,
    TIME,
    Entry,
    KeyedRows,
    key_of,
    time_after,
    time_of,
    without,
)
from locus_store.core import ids, patterns
from locus_store.core.backend import Backend
from locus_store.core.capabilities import Capabilities
from locus_store.core.errors import CheckpointError, ThreadExistsError
from locus_store.core.metadata import matches
from locus_store.core.options import check_count, check_limit
from locus_store.core.protocols import BaseCheckpointer
from locus_store.core.state import AgentState

State = TypeVar("State", bound=BaseModel)


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
        check_backend(backend)
        check_state_type(state_type)
        self.backend = backend
        self._state_type: type[State] = state_type
        self._rows = KeyedRows(backend)

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
        document = document_of(state)
        notes = notes_of(metadata)
        ids.check_thread_id(thread_id)
        new_id = ids.new_checkpoint_id() if checkpoint_id is None else check_new_id(checkpoint_id)
        async with self._rows.alone(thread_id):
            index = await self._rows.index(thread_id)
            time = time_after(index)
            row = {**document, ID: new_id, TIME: time, NOTES: notes}
            await self._rows.save_row(thread_id, new_id, row)
            await self._rows.save_newest(thread_id, dict(row))
            entry: Entry = {"checkpoint_id": new_id, "timestamp": time, "metadata": notes}
            await self._rows.save_index(thread_id, [entry, *without(index, {new_id})])
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
        row = await self._rows.row(thread_id, checkpoint_id)
        if row is None:
            return None
        document = {name: value for name, value in row.items() if name not in (ID, TIME, NOTES)}
        make = getattr(self._state_type, "from_checkpoint", self._state_type.model_validate)
        try:
            found: State = make(document)
        except ValidationError as e:
            raise CheckpointError(thread_id, row[ID], f"what is stored does not fit {self._state_type.__name__}") from e
        return found

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether a thread, or one checkpoint of it, is there."""
        if checkpoint_id is not None:
            return await self._rows.row(thread_id, checkpoint_id) is not None
        return bool(await self.backend.exists(key_of(ids.check_thread_id(thread_id), LATEST)))

    # -------------------------------------------------------------------------------------------------------- listing

    async def list_checkpoints(self, thread_id: str, limit: int | None = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first; a limit of None means all."""
        check_limit(limit)
        return [entry["checkpoint_id"] for entry in await self._rows.index(ids.check_thread_id(thread_id))][:limit]

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
        ending = key_of("", LATEST)
        names = [key.removesuffix(ending) for key in await self._rows.keys() if key.endswith(ending)]
        return [name for name in names if regex.fullmatch(name)][offset:][:limit]

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> AdaptedRow | None:
        """What is known about a checkpoint (None: the newest) without its state, or None if it is not there."""
        if checkpoint_id is not None:
            ids.check_checkpoint_id(checkpoint_id)
        for entry in await self._rows.index(ids.check_thread_id(thread_id)):
            if checkpoint_id in (None, entry["checkpoint_id"]):
                return _shown(thread_id, entry)
        row = await self._rows.row(thread_id, checkpoint_id)
        if row is None:
            return None
        return _shown(thread_id, {"checkpoint_id": row[ID], "timestamp": row[TIME], "metadata": row[NOTES]})

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

    async def search(self, query: str, limit: int = 10, pattern: str = "*") -> list[dict[str, Any]]:
        """What the backend's own search finds, each checkpoint once and under its thread's id.

        Args:
            query: What the backend understands.
            limit: How many at the most.
            pattern: Only of threads whose ids match it, as `list_threads` reads it; looked at afterwards, so with one
                there may be fewer than the limit.
        """
        self._require_capability("search")
        fits = patterns.parse(pattern).regex().fullmatch
        found: dict[tuple[str, str], dict[str, Any]] = {}
        # A checkpoint may be found three times: under its id, as the newest, and in the index.
        for hit in await self.backend.search(query, limit=3 * limit):
            thread_id, _, name = str(hit.get("thread_id", "")).rpartition(":")
            data = hit.get("data")
            if name != INDEX and fits(thread_id):
                one = data.get(ID, name) if isinstance(data, dict) else name
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
            async with self._rows.alone(thread_id):
                return await self._rows.delete_thread(thread_id)
        several = [checkpoint_id] if isinstance(checkpoint_id, str) else list(checkpoint_id)
        wanted = {ids.check_checkpoint_id(one): None for one in several}
        async with self._rows.alone(thread_id):
            return await self._rows.delete_some(thread_id, list(wanted)) > 0

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
        newest = await self._rows.row(source_thread_id, None)
        if newest is None:
            return False
        async with self._rows.alone(dest_thread_id):
            if await self.exists(dest_thread_id):
                if not overwrite:
                    raise ThreadExistsError(dest_thread_id)
                await self._rows.delete_thread(dest_thread_id)
            index = await self._rows.index(source_thread_id)
            if newest[ID] not in {entry["checkpoint_id"] for entry in index}:
                index.insert(0, {"checkpoint_id": newest[ID], "timestamp": newest[TIME], "metadata": newest[NOTES]})
            copied: list[Entry] = []
            for entry in index:
                row = await self._rows.row(source_thread_id, entry["checkpoint_id"])
                if row is not None:
                    await self._rows.save_row(dest_thread_id, entry["checkpoint_id"], row)
                    copied.append(entry)
            await self._rows.save_newest(dest_thread_id, newest)
            await self._rows.save_index(dest_thread_id, copied)
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
            async with self._rows.alone(name):
                index = await self._rows.index(name)
                old = [
                    entry["checkpoint_id"]
                    for entry in index[keep_last:]
                    if (time := time_of(entry["timestamp"])) is not None and time < before
                ]
                if old:
                    removed += await self._rows.delete_some(name, old)
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


def _shown(thread_id: str, entry: Entry) -> AdaptedRow:
    return {
        "thread_id": thread_id,
        "checkpoint_id": entry["checkpoint_id"],
        "created_at": time_of(entry.get("timestamp")),
        "metadata": entry.get("metadata") or {},
    }
