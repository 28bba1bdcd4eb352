"""What both faces of a store share: everything but ``save`` and ``load``.

A store checks arguments, encodes, plans the entry log, and calls the driver's primitives. It awaits primitives and
nothing else, so that over a synchronous driver the same coroutines run to their end without an event loop.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from locus_store.core import ids
from locus_store.core.capabilities import Capabilities
from locus_store.core.clock import DAY
from locus_store.core.codec import decode, encode
from locus_store.core.driver import Driver, Key
from locus_store.core.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    ThreadExistsError,
    TransactionNotAllowedError,
    UnsupportedFormatError,
    UnsupportedOperationError,
)
from locus_store.core.frames import DamagedError, Entry, ThreadName, UnknownFormatError, build, read_one
from locus_store.core.infos import Vacuumed
from locus_store.core.options import check_count, check_span
from locus_store.core.searching import Searching


class Store(Searching):
    """Threads and their checkpoints; see `Backend` and `Checkpointer` for the two faces.

    A missing thread or checkpoint is None, ``[]`` or False, never an error; an outage is an error, never "missing".
    """

    def tenant(self, name: str) -> Self:
        """The same store inside another tenant; it shares connections and needs no `close` of its own."""
        other = copy.copy(self)
        other._options = replace(self._options, tenant=ids.check_tenant(name))
        return other

    def _bound_driver(self, target: object) -> Driver:
        if not self.capabilities.transactions:
            raise UnsupportedOperationError(
                type(self).__name__,
                "bind (transactions)",
                "what it stores is in no database of SQLAlchemy's; bind a backend over SQLite, PostgreSQL, …",
            )
        return self._driver.bound(target)

    def _over(self, driver: Driver) -> Self:
        """The same store over another driver of the same storage."""
        other = copy.copy(self)
        other._driver = driver
        return other

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return self._driver.capabilities

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
            if not isinstance(checkpoint_id, Iterable):
                raise TypeError(f"checkpoint_id must be a str or several, got {type(checkpoint_id).__name__}")
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
            info = await self._info(source_thread_id, ids.check_id(upto, "upto"))
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
            How many checkpoints went, an ``int`` with the attributes ``blocks``, ``bytes_freed`` and ``skipped``.
        """
        check_span(older_than_days, "older_than_days", math.inf)
        check_count(keep_last, "keep_last", 0)
        if reclaim and not self.capabilities.own_connections:
            raise TransactionNotAllowedError(
                type(self).__name__,
                "vacuum(reclaim=True) inside a transaction of yours",
                "call it on the backend that was bound, or leave reclaim out here",
            )
        if reclaim and not self.capabilities.reclaim:
            raise UnsupportedOperationError(type(self).__name__, "vacuum(reclaim=True)")
        now = self._options.clock()
        done = await self._driver.trim(
            self._options.tenant, older_than=int(max(0, now - older_than_days * DAY)), keep_last=keep_last, now=now
        )
        freed = await self._driver.reclaim() if reclaim else 0
        return Vacuumed(done.checkpoints, done.blocks, freed, done.skipped)

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
        if not isinstance(values, Mapping):
            raise TypeError(f"values must be a dict, got {type(values).__name__}")
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
        """Make what is missing (tables, folders), bring what an older release made up to date, and check it.

        With ``create_schema=False`` it only checks. It may be called at any time, and in several processes at once.
        First use does the same, but on a server it leaves the tables of an older release alone.

        Raises:
            SchemaNotReadyError: The tables are missing or old, and are not to be made here, or by this user.
            SchemaAheadError: They are of a newer release.
            SchemaIncompleteError: Some of them are missing.
        """
        await self._driver.prepare()

    async def close(self) -> None:
        """Release every connection, file and thread; may be called at any time, the next call opens again."""
        await self._driver.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
