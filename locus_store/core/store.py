"""What both faces of a store share: everything but ``save`` and ``load``.

A store checks arguments, encodes, plans the entry log, and calls the driver's primitives. It awaits primitives and
nothing else, so that over a synchronous driver the same coroutines run to their end without an event loop.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self, TypedDict

from locus_store.core import ids
from locus_store.core.capabilities import Capabilities
from locus_store.core.clock import DAY, Clock, to_datetime
from locus_store.core.codec import decode, encode
from locus_store.core.driver import Conflict, Driver, Exists, IfExists, Info, Key, NoParent, Plan, Saved, Stale
from locus_store.core.entries import Planned, plan
from locus_store.core.errors import (
    CheckpointExistsError,
    CheckpointNotFoundError,
    ConflictError,
    CorruptCheckpointError,
    ThreadExistsError,
    UnsupportedFormatError,
    UnsupportedOperationError,
)
from locus_store.core.frames import Codec, DamagedError, Entry, ThreadName, UnknownFormatError, build, read_one
from locus_store.core.known import Known, Ledger, from_loaded
from locus_store.core.loading import Loaded
from locus_store.core.metadata import Metadata, decode_metadata, encode_metadata, matches, terms

READ_FIRST = 64 * 1024
"""A save of an unknown thread that would store more bytes than this first reads what is stored."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint without its document.

    Attributes:
        thread_id: Its thread.
        checkpoint_id: Its id.
        version: Its version, the only order of checkpoints.
        parent: The id of the checkpoint it was made from, or None if there is none or it is gone.
        created_at: When it was saved, in UTC.
        updated_at: When its thread was last written, in UTC.
        metadata: What the save was given, or None.
        size: Bytes that its save stored.
    """

    thread_id: str
    checkpoint_id: str
    version: int
    parent: str | None
    created_at: datetime
    updated_at: datetime
    metadata: dict[Any, Any] | None
    size: int


class CheckpointRow(TypedDict):
    """The same as a dict, as the metadata methods return it."""

    thread_id: str
    checkpoint_id: str
    version: int
    parent: str | None
    created_at: datetime
    updated_at: datetime
    metadata: dict[Any, Any] | None
    size: int


class Vacuumed(int):
    """How many checkpoints a vacuum removed; an ``int``.

    Attributes:
        blocks: Blocks removed that nothing referred to any more, beyond those of the checkpoints.
        bytes_freed: Bytes given back to the operating system; 0 unless that was asked for.
    """

    blocks: int
    bytes_freed: int

    def __new__(cls, checkpoints: int, blocks: int, bytes_freed: int) -> Self:
        made = super().__new__(cls, checkpoints)
        made.blocks = blocks
        made.bytes_freed = bytes_freed
        return made


@dataclass(frozen=True, slots=True)
class Options:
    """What a store was set up with.

    Attributes:
        clock: Gives the time.
        tenant: The owner of all threads that the store sees.
        ttl_seconds: How long a thread lives after its last save, or None for ever. Reading does not extend it.
        keep_checkpoints: How many of the newest checkpoints of a thread stay after a save, or None for all.
        codec: What stored bytes go through, or None.
    """

    clock: Clock
    tenant: str = ids.DEFAULT_TENANT
    ttl_seconds: float | None = None
    keep_checkpoints: int | None = None
    codec: Codec | None = None

    def __post_init__(self) -> None:
        ids.check_tenant(self.tenant)
        if self.ttl_seconds is not None and not self.ttl_seconds > 0:
            raise ValueError(f"ttl_seconds must be above 0, got {self.ttl_seconds}")
        if self.keep_checkpoints is not None:
            _check_count(self.keep_checkpoints, "keep_checkpoints", 1)


class Store:
    """Threads and their checkpoints; see `Backend` and `Checkpointer` for the two faces.

    A missing thread or checkpoint is None, ``[]`` or False, never an error; an outage is an error, never "missing".
    """

    def __init__(self, driver: Driver, options: Options, ledger: Ledger) -> None:
        self._driver = driver
        self._options = options
        self._ledger = ledger

    def tenant(self, name: str) -> Self:
        """The same store inside another tenant; it shares connections and needs no `close` of its own."""
        other = copy.copy(self)
        other._options = replace(self._options, tenant=ids.check_tenant(name))
        return other

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return self._driver.capabilities

    # ------------------------------------------------------------------------------------------------------- listing

    async def list_checkpoints(self, thread_id: str, limit: int | None = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first.

        Args:
            thread_id: The thread.
            limit: How many at the most; None for all.
        """
        return [info.checkpoint_id for info in await self._infos(thread_id, None, limit)]

    async def history(
        self, thread_id: str, limit: int | None = 10, *, before: str | int | None = None
    ) -> list[CheckpointInfo]:
        """A thread's checkpoints without their documents, newest first.

        Args:
            thread_id: The thread.
            limit: How many at the most; None for all.
            before: Only those older than this checkpoint, given by id or version; for the next page the last one seen.
                An id that is not there gives ``[]``.
        """
        if isinstance(before, str):
            known = await self._info(thread_id, ids.check_checkpoint_id(before))
            if known is None:
                return []
            before = known.version
        elif before is not None:
            _check_count(before, "before", 0)
        return [self._shown(info) for info in await self._infos(thread_id, before, limit)]

    async def list_threads(self, limit: int | None = 100, offset: int = 0, pattern: str = "*") -> list[str]:
        """The ids of threads, last written first.

        Args:
            limit: How many at the most; None for all.
            offset: How many to pass over.
            pattern: ``*`` or ``%`` is any run of characters, ``?`` any one, everything else literal; a backslash
                before one of them takes it literally.
        """
        _check_limit(limit)
        _check_count(offset, "offset", 0)
        if not isinstance(pattern, str):
            raise TypeError(f"pattern must be a str, got {type(pattern).__name__}")
        rows = await self._driver.threads(
            self._options.tenant, pattern, limit=limit, offset=offset, now=self._options.clock()
        )
        return [thread_id for thread_id, _ in rows]

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether a thread, or one checkpoint of it, is there."""
        return await self._info(thread_id, _check_optional_id(checkpoint_id)) is not None

    async def _infos(self, thread_id: str, before: int | None, limit: int | None) -> list[Info]:
        _check_limit(limit)
        return await self._driver.infos(self._key(thread_id), before=before, limit=limit, now=self._options.clock())

    async def _info(self, thread_id: str, checkpoint_id: str | None) -> Info | None:
        return await self._driver.info(self._key(thread_id), checkpoint_id, now=self._options.clock())

    # ------------------------------------------------------------------------------------------------------ metadata

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> CheckpointRow | None:
        """A checkpoint's metadata with all else that is known without its document.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; None for the newest.
        """
        info = await self._info(thread_id, _check_optional_id(checkpoint_id))
        return None if info is None else self._row(info)

    async def list_with_metadata(self, limit: int | None = 100, offset: int = 0) -> list[CheckpointRow]:
        """The newest checkpoint of each thread with its metadata, last written thread first."""
        return await self.query_by_metadata({}, limit=limit, offset=offset)

    async def query_by_metadata(
        self,
        key: str | Metadata,
        value: Any = None,
        limit: int | None = 100,
        *,
        offset: int = 0,
        versions: str = "newest",
        thread_id: str | None = None,
    ) -> list[CheckpointRow]:
        """Checkpoints whose metadata has a value under a key, or all of several.

        Types count: True is not 1 and ``"5"`` is not 5, but 1 is 1.0; None is an explicit null. Dicts and lists match
        by containment. Keys are literal. ``{}`` matches all.

        Args:
            key: One key, or a dict of keys and values which must all match.
            value: What the one key has; not to be given with a dict.
            limit: How many at the most; None for all.
            offset: How many to pass over.
            versions: ``"newest"`` looks at each thread's newest checkpoint, ``"all"`` at every one.
            thread_id: Only this thread.
        """
        _check_limit(limit)
        _check_count(offset, "offset", 0)
        if versions not in ("newest", "all"):
            raise ValueError(f"versions must be 'newest' or 'all', got {versions!r}")
        if isinstance(key, Mapping):
            if value is not None:
                raise TypeError("give either a dict, or one key and its value")
            query = dict(key)
        elif isinstance(key, str):
            query = {key: value}
        else:
            raise TypeError(f"key must be a str or a dict, got {type(key).__name__}")
        if thread_id is not None:
            ids.check_thread_id(thread_id)
        encode_metadata(query)
        wanted = terms(self._options.tenant, query)
        rows: list[CheckpointRow] = []
        start, now = 0, self._options.clock()
        while limit is None or len(rows) < offset + limit:
            page = None if limit is None else offset + limit - len(rows)
            found = await self._driver.find(
                self._options.tenant,
                wanted,
                thread_id=thread_id,
                newest_only=versions == "newest",
                limit=page,
                offset=start,
                now=now,
            )
            rows += [row for info in found if matches(query, (row := self._row(info))["metadata"] or {})]
            start += len(found)
            if page is None or len(found) < page:
                break
        return rows[offset:]

    def _shown(self, info: Info) -> CheckpointInfo:
        return CheckpointInfo(**self._row(info))

    def _row(self, info: Info) -> CheckpointRow:
        try:
            metadata = decode_metadata(info.metadata)
        except DamagedError as e:
            raise CorruptCheckpointError(info.thread_id, info.checkpoint_id, "its metadata is damaged") from e
        return {
            "thread_id": info.thread_id,
            "checkpoint_id": info.checkpoint_id,
            "version": info.version,
            "parent": info.parent,
            "created_at": to_datetime(info.created_at),
            "updated_at": to_datetime(info.updated_at),
            "metadata": metadata,
            "size": info.size,
        }

    # ------------------------------------------------------------------------------------------- deleting and copying

    async def delete(self, thread_id: str, checkpoint_id: str | Iterable[str] | None = None) -> bool:
        """Delete a thread, one of its checkpoints, or several in one step.

        Deleting the newest checkpoint makes the one before it the newest; deleting the last one deletes the thread.

        Args:
            thread_id: The thread.
            checkpoint_id: None for the whole thread, or an id, or several.

        Returns:
            Whether there was anything to delete.
        """
        key = self._key(thread_id)
        wanted: list[str] | None = None
        if isinstance(checkpoint_id, str):
            wanted = [ids.check_checkpoint_id(checkpoint_id)]
        elif checkpoint_id is not None:
            wanted = [ids.check_checkpoint_id(one) for one in checkpoint_id]
        dropped = await self._driver.drop(key, wanted, now=self._options.clock())
        if dropped.epoch is None:
            self._ledger.forget(key)
        elif dropped.epoch_before is not None and dropped.epoch != dropped.epoch_before:
            self._ledger.new_epoch(key, dropped.epoch_before, dropped.epoch)
        return dropped.count > 0

    async def copy_thread(
        self, source_thread_id: str, dest_thread_id: str, *, upto: str | None = None, overwrite: bool = False
    ) -> bool:
        """Copy a thread with its checkpoints, their ids, order, metadata and times, and its records.

        Args:
            source_thread_id: The thread to copy.
            dest_thread_id: The new thread.
            upto: The id of the last checkpoint to copy; None copies all.
            overwrite: Replace a destination that is there.

        Returns:
            False if the source is not there.

        Raises:
            ThreadExistsError: The destination is there and ``overwrite`` is False.
            CheckpointNotFoundError: ``upto`` is not in the source.
            ValueError: Source and destination are the same.
        """
        source, dest = self._key(source_thread_id), self._key(dest_thread_id)
        if source == dest:
            raise ValueError(f"a thread cannot be copied onto itself: {source_thread_id!r}")
        version = None
        if upto is not None:
            info = await self._info(source_thread_id, ids.check_checkpoint_id(upto))
            if info is None:
                if await self._info(source_thread_id, None) is None:
                    return False
                raise CheckpointNotFoundError(source_thread_id, upto, "it is not there, so nothing was copied")
            version = info.version
        done = await self._driver.clone(source, dest, upto=version, overwrite=overwrite, now=self._options.clock())
        if done == "exists":
            raise ThreadExistsError(dest_thread_id)
        if done == "copied":
            self._ledger.forget(dest)
        return done == "copied"

    async def vacuum(self, older_than_days: float = 30, keep_last: int = 1, *, reclaim: bool = False) -> Vacuumed:
        """Remove this tenant's old checkpoints, expired threads, and what nothing refers to.

        Args:
            older_than_days: Checkpoints older than so many days go.
            keep_last: But never the newest so many of a thread; 0 lets whole threads go.
            reclaim: Also give free space back to the operating system (on SQLite this rewrites the file).

        Returns:
            How many checkpoints went, an ``int`` with the attributes ``blocks`` and ``bytes_freed``.
        """
        if not isinstance(older_than_days, (int, float)) or not older_than_days >= 0:
            raise ValueError(f"older_than_days must be a number of at least 0, got {older_than_days!r}")
        _check_count(keep_last, "keep_last", 0)
        if reclaim and not self.capabilities.reclaim:
            raise UnsupportedOperationError(type(self).__name__, "vacuum(reclaim=True)")
        now = self._options.clock()
        done = await self._driver.trim(
            self._options.tenant, older_than=int(now - older_than_days * DAY), keep_last=keep_last, now=now
        )
        freed = await self._driver.reclaim() if reclaim else 0
        return Vacuumed(done.checkpoints, done.blocks, freed)

    async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Find words in stored text, where ``capabilities.search`` says so."""
        raise UnsupportedOperationError(type(self).__name__, "search")

    # ------------------------------------------------------------------------------------------------------- records

    async def put_records(self, thread_id: str, scope: str, values: Mapping[str, Any], *, keep: bool = False) -> None:
        """Store small keyed values beside a thread's checkpoints, in one step.

        They are deleted, copied and expired with the thread, and need no checkpoint to be there yet.

        Args:
            thread_id: The thread.
            scope: Groups the keys, for instance the id of a checkpoint that is still to come.
            values: Any values that a document may hold, by key.
            keep: Leave values that are there as they are, instead of replacing them.
        """
        ids.check_id(scope, "scope")
        key, codec = self._key(thread_id), self._options.codec
        items = [
            (ids.check_id(k, "key"), build((), [encode(v, (k,))], codec, ThreadName(*key))) for k, v in values.items()
        ]
        now = self._options.clock()
        await self._driver.put_records(key, scope, items, keep=keep, now=now, expires_at=self._expires_at(now))

    async def records(self, thread_id: str, scope: str) -> dict[str, Any]:
        """The values of one scope by key, in the order in which the keys came."""
        ids.check_id(scope, "scope")
        key = self._key(thread_id)
        rows = await self._driver.records(key, scope, now=self._options.clock())
        try:
            return {name: decode(self._read_one(key, frame)) for _, name, frame in rows}
        except DamagedError as e:
            raise CorruptCheckpointError(thread_id, None, f"a record of scope {scope!r} is damaged: {e}") from e
        except UnknownFormatError as e:
            raise UnsupportedFormatError(thread_id, None, f"a record of scope {scope!r}: {e}") from e

    def _read_one(self, key: Key, frame: bytes) -> Entry:
        return read_one(frame, self._options.codec, ThreadName(*key)).entries()[0]

    async def delete_records(self, thread_id: str, scope: str | None = None) -> int:
        """Delete the values of one scope, or of all; returns how many there were."""
        if scope is not None:
            ids.check_id(scope, "scope")
        return await self._driver.drop_records(self._key(thread_id), scope, now=self._options.clock())

    # ---------------------------------------------------------------------------------------------------- life cycle

    async def setup(self) -> None:
        """Make what is missing (tables, folders) where that is allowed, and check it; first use does the same."""
        await self._driver.prepare()

    async def close(self) -> None:
        """Release every connection, file and thread; may be called at any time, the next call opens again."""
        await self._driver.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------------------------------ what the faces call

    async def _save_document(
        self,
        thread_id: str,
        document: dict[Any, Any],
        checkpoint_id: str | None,
        metadata: Metadata | None,
        expected_version: int | None,
        if_exists: IfExists,
        parent: str | None,
    ) -> str:
        key = self._key(thread_id)
        if expected_version is not None:
            _check_count(expected_version, "expected_version", 0)
        if if_exists not in ("newest", "in_place", "error"):
            raise ValueError(f"if_exists must be 'newest', 'in_place' or 'error', got {if_exists!r}")
        new_id = ids.new_checkpoint_id() if checkpoint_id is None else ids.check_checkpoint_id(checkpoint_id)
        text = encode_metadata(metadata)
        found = terms(key.tenant, metadata) if metadata else ()
        known = self._remembered(key)
        planned = self._plan(key, document, known)
        if known is None and planned.block is not None and len(planned.block) > READ_FIRST:
            known = await self._read_head(key)
            planned = planned if known is None else self._plan(key, document, known)
        stamp = ids.new_stamp()
        while True:
            now = self._options.clock()
            result = await self._driver.put(
                key,
                Plan(
                    checkpoint_id=new_id,
                    fresh_id=checkpoint_id is None,
                    stamp=stamp,
                    parent=_check_optional_id(parent),
                    base=planned.base,
                    expected_version=expected_version,
                    if_exists=if_exists,
                    block=planned.block,
                    low=planned.low,
                    high=planned.high,
                    ranges=planned.ranges,
                    payload=planned.payload,
                    metadata=text,
                    terms=found,
                    size=len(planned.block or b"") + len(planned.payload) + len(planned.ranges) + len(text or b""),
                    now=now,
                    expires_at=self._expires_at(now),
                    keep=self._options.keep_checkpoints,
                ),
            )
            match result:
                case Saved(version, epoch, block):
                    self._ledger.put(key, planned.learn(version, stamp, epoch, block))
                    return new_id
                case Stale():
                    self._ledger.forget(key)
                    # What was believed is wrong: plan on what is stored; if that changes too, reuse nothing.
                    known = await self._read_head(key) if known is not None else None
                    planned = self._plan(key, document, known)
                    known = None
                case Conflict(actual):
                    raise ConflictError(thread_id, expected_version or 0, actual)
                case Exists():
                    raise CheckpointExistsError(thread_id, new_id, "the id is in use; if_exists='newest' replaces it")
                case NoParent():
                    raise CheckpointNotFoundError(thread_id, parent, "it was named as the parent and is not there")

    def _plan(self, key: Key, document: dict[Any, Any], known: Known | None) -> Planned:
        return plan(document, known, self._options.codec, ThreadName(*key))

    def _remembered(self, key: Key) -> Known | None:
        try:
            return self._ledger.get(key)
        except DamagedError:
            self._ledger.forget(key)
            return None

    async def _read_head(self, key: Key) -> Known | None:
        """What the newest checkpoint is made of, to plan on; None if there is none or it is damaged."""
        try:
            stored = await self._driver.get(key, None, now=self._options.clock())
            return None if stored is None else from_loaded(Loaded(stored, self._options.codec, ThreadName(*key)))
        except (DamagedError, UnknownFormatError):
            return None

    async def _load_document(self, thread_id: str, checkpoint_id: str | None) -> tuple[str, dict[Any, Any]] | None:
        key = self._key(thread_id)
        wanted = _check_optional_id(checkpoint_id)
        try:
            stored = await self._driver.get(key, wanted, now=self._options.clock())
            if stored is None:
                return None
            wanted = stored.checkpoint_id
            loaded = Loaded(stored, self._options.codec, ThreadName(*key))
            document = loaded.document()
        except DamagedError as e:
            raise CorruptCheckpointError(thread_id, wanted, f"what is stored is damaged: {e}") from e
        except UnknownFormatError as e:
            raise UnsupportedFormatError(thread_id, wanted, str(e)) from e
        self._ledger.put(key, loaded)
        return wanted, document

    def _key(self, thread_id: str) -> Key:
        return Key(self._options.tenant, ids.check_thread_id(thread_id))

    def _expires_at(self, now: int) -> int | None:
        ttl = self._options.ttl_seconds
        return None if ttl is None else now + int(ttl * 1_000_000)


def _check_optional_id(checkpoint_id: str | None) -> str | None:
    return None if checkpoint_id is None else ids.check_checkpoint_id(checkpoint_id)


def _check_limit(limit: int | None) -> None:
    if limit is not None:
        _check_count(limit, "limit", 0)


def _check_count(value: Any, what: str, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{what} must be at least {least}, got {value}")
