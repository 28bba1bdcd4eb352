"""The primitives over any relational database; subclasses say how a function of a connection is run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

from sqlalchemy import Connection

from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import Dropped, Info, Key, Plan, PutResult, Saved, Stored, Trimmed
from locus_store.core.errors import LocusStoreError, PayloadTooLargeError, ReferencedError
from locus_store.sql import copying, reading, records, removal, sealing, sweeping
from locus_store.sql.searching import SearchingDriver

if TYPE_CHECKING:
    from locus_store.sql.binding import BoundSQLDriver

_log = logging.getLogger(__name__)
_NUMBER = 20
"""Bytes that a block's number and a space take at most."""

P = ParamSpec("P")
R = TypeVar("R")


class SQLDriver(SearchingDriver):
    """All primitives as functions of a synchronous `sqlalchemy.Connection`, each run in one transaction.

    Attributes:
        dialect: What this database does differently.
        codec: What frames go through; needed where blocks are rewritten.
        modules: The packages whose errors are those of the database.
        tables_seen: In a transaction of a caller's the tables were found to be there.
        creates_schema: Whether the tables may be made.
        seals: Join small blocks now and then, in a transaction of its own after a save. Never in a caller's.
    """

    modules: frozenset[str] = frozenset({"sqlalchemy"})
    seals: bool = False
    capabilities = replace(EVERYTHING_SHARED, transactions=True)
    tables_seen = False
    creates_schema = False

    def bound(self, target: object) -> BoundSQLDriver:
        """See `Driver.bound`."""
        from locus_store.sql.binding import BoundSQLDriver

        return BoundSQLDriver(self, target)

    def _is_of_database(self, error: Exception) -> bool:
        """Whether an error came from the database or the way to it, and not from a mistake in a program."""
        # What a pool meets while it replaces a connection comes as the driver's error, or an adapter's of SQLAlchemy.
        return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in self.modules

    async def _change(
        self, key: Key, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """`_write`; where a foreign key of the host's forbids a removal, the error names the thread."""
        try:
            return await self._write(function, *args, **kwargs)
        except ReferencedError as error:
            raise ReferencedError(key.thread_id, error.said) from error.__cause__

    # -------------------------------------------------------------------------------------------------------- saving

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        self._check_size(plan.payload)
        if plan.block is not None:
            self._check_size(plan.block)
        result = await self._change(key, self.dialect.put, key, plan, self.codec)
        if isinstance(result, Saved):
            await self._seal_after(key, result)
        return result

    async def _seal_after(self, key: Key, saved: Saved) -> None:
        """Join the small blocks before a save, now and then."""
        if self.seals and saved.block and saved.version % sealing.EVERY == 0:
            try:
                await self._write(sealing.seal, self.dialect, key)
            except LocusStoreError:
                # The save stands; the next one that seals may do better.
                _log.info("the blocks before version %d were not joined", saved.version, exc_info=True)

    def _check_size(self, piece: bytes) -> None:
        limit = self.dialect.max_piece
        if limit is not None and len(piece) + _NUMBER > limit:
            raise PayloadTooLargeError(len(piece), limit - _NUMBER)

    # ------------------------------------------------------------------------------------------------------- reading

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """See `Driver.get`."""
        return await self._read(self.dialect.get, key, checkpoint_id, now)

    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        """See `Driver.info`."""
        return await self._read(reading.info, key, checkpoint_id, now)

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""
        return await self._read(reading.infos, key, before, limit, now)

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        return await self._read(reading.threads, self.dialect, tenant, pattern, limit, offset, now)

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
        return await self._read(reading.find, tenant, terms, thread_id, newest_only, limit, offset, now)

    # ------------------------------------------------------------------------------------------ removing and copying

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """See `Driver.drop`."""
        return await self._change(key, removal.drop, self.dialect, key, checkpoint_ids, now, self.codec)

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        return await self._change(dest, copying.clone, self.dialect, source, dest, upto, overwrite, now, self.codec)

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`."""
        checkpoints = blocks = 0
        skipped: list[str] = []
        after: str | None = ""
        while after is not None:
            names, after = await self._read(sweeping.candidates, tenant, older_than, keep_last, now, after)
            for name in names:
                key = Key(tenant, name)
                try:
                    done = await self._change(
                        key, sweeping.trim_thread, self.dialect, key, older_than, keep_last, now, self.codec
                    )
                except ReferencedError:
                    if not self.capabilities.own_connections:
                        raise  # the caller's transaction may be of no use any more
                    skipped.append(name)
                else:
                    checkpoints += done.checkpoints
                    blocks += done.blocks
        await self._fill_index_if_there()
        return Trimmed(checkpoints, blocks, tuple(skipped))

    # ------------------------------------------------------------------------------------------------------- records

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        for _, payload in items:
            self._check_size(payload)
        await self._change(key, records.put_records, self.dialect, key, scope, items, keep, now, expires_at)

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        return await self._read(records.records, key, scope, now)

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """See `Driver.drop_records`."""
        return await self._change(key, records.drop_records, self.dialect, key, scope, now)
