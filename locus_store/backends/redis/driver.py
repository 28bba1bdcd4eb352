"""The driver: primitives of `locus_store.core.driver` as one script call each, on Redis or Valkey.

A save that removes nothing is one round trip on a single server; on a cluster its entry in the index is written before
and settled after. A load is one round trip. A removal is planned from what is read and done in one step if that still
holds, else planned again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from locus_store.backends.redis import layout
from locus_store.backends.redis.address import parse
from locus_store.backends.redis.keys import DEFAULT_PREFIX, Keys
from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import (
    Conflict,
    Driver,
    Dropped,
    Exists,
    Info,
    Key,
    NoParent,
    Plan,
    PutResult,
    Saved,
    Stale,
    Stored,
    Trimmed,
)
from locus_store.core.errors import (
    CorruptCheckpointError,
    MissingDependencyError,
    PayloadTooLargeError,
    TransactionConflictError,
)
from locus_store.core.frames import Codec
from locus_store.core.ids import new_epoch
from locus_store.core.references import OWN, References

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

    from locus_store.backends.redis.removing import Planner, Removal

MAX_PIECE = 256 * 1024 * 1024
"""How many bytes one value may have by default; the server's own limit is 512 MB."""

_PAGE = 1000
_THREADS = 200
_ATTEMPTS = 300


class RedisDriver(Driver):
    """Threads in Redis or Valkey.

    Args:
        url: Where the server is; `address` says what is understood. None with a client.
        client: The host's own ``redis.asyncio.Redis`` or ``RedisCluster``; it is used, and never closed.
        prefix: What all keys begin with.
        db: The number of the database, unless the URL has one.
        timeout: Seconds that an answer, or a connection, is waited for.
        max_connections: How many connections there are at most, for each event loop.
        max_piece: How many bytes one value may have.
        codec: What frames go through; it is needed where a removal rewrites a block.
        client_options: More arguments of redis-py's client.
    """

    capabilities = EVERYTHING_SHARED

    def __init__(
        self,
        url: str | None = None,
        *,
        client: Redis | RedisCluster | None = None,
        prefix: str = DEFAULT_PREFIX,
        db: int = 0,
        timeout: float = 10.0,
        max_connections: int = 50,
        max_piece: int = MAX_PIECE,
        codec: Codec | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import redis  # noqa: F401
        except ImportError as e:
            raise MissingDependencyError("RedisBackend", "redis", "redis") from e
        from locus_store.backends.redis.index import Index
        from locus_store.backends.redis.server import Server

        if (url is None) == (client is None):
            raise ValueError("where the server is: pass a url, or a client of yours, and not both")
        self._keys = Keys(prefix)
        self._server = Server(
            None if url is None else parse(url),
            client,
            db=db,
            timeout=timeout,
            max_connections=max_connections,
            options=client_options,
        )
        self._index = Index(self._server, self._keys)
        self.max_piece = max_piece
        self.codec = codec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server.shown}, prefix={self._keys.prefix!r})"

    def _of(self, key: Key) -> list[bytes]:
        """The keys of a script that changes a thread."""
        keys = self._keys.thread(key)
        return keys if self._server.cluster else keys + self._keys.tenant(key.tenant)

    # -------------------------------------------------------------------------------------------------------- saving

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        for piece in (plan.payload, plan.block, plan.metadata):
            self._check_size(piece)
        if not self._server.cluster:
            return _result(await self._put(key, plan))
        terms = b"".join(plan.terms)
        score = await self._index.announce(key, plan.now, terms)
        reply = await self._put(key, plan)
        saved = reply[0] == b"S"
        updated = int(reply[2 if not saved else 4] or 0) or None
        # What this save announced and did not write is taken back, what it took away is, too.
        remove = reply[5] if saved else b""
        await self._index.settle(key.tenant, key.thread_id, score, updated, terms if saved else b"", remove)
        return _result(reply)

    async def _put(self, key: Key, plan: Plan) -> Any:
        reply = await self._send(key, plan, None)
        if reply[0] == b"N":
            async for planner in self._planning(key, plan.now):
                removal = await self._plan_put(planner, plan, reply)
                reply = await self._send(key, plan, removal)
                if reply[0] != b"N":
                    break
        if reply[0] == b"D":
            raise CorruptCheckpointError(
                key.thread_id, plan.checkpoint_id, "it was to be replaced, and what is stored is damaged"
            )
        return reply

    async def _send(self, key: Key, plan: Plan, removal: Removal | None) -> Any:
        base = ("", "", "") if plan.base is None else (plan.base.version, plan.base.stamp.hex(), plan.base.epoch)
        metadata = (-1, b"") if plan.metadata is None else (len(plan.metadata), plan.metadata)
        planned: list[bytes | str | int] = ["", "", "", ""]
        if removal is not None:
            epoch = "" if removal.epoch is None else removal.epoch
            planned = [removal.guard, removal.count, removal.joined(), epoch, *removal.changes()]
        return await self._server.run(
            "put",
            self._of(key),
            key.thread_id,
            plan.now,
            plan.checkpoint_id,
            plan.stamp.hex(),
            plan.parent or "",
            *base,
            _or_empty(plan.expected_version),
            plan.if_exists,
            _or_empty(plan.low),
            _or_empty(plan.high),
            plan.ranges,
            plan.payload,
            *metadata,
            plan.size,
            _or_empty(plan.expires_at),
            _or_empty(plan.keep),
            new_epoch(),
            b"".join(dict.fromkeys(plan.terms)),
            int(plan.block is not None),
            plan.block or b"",
            *planned,
        )

    async def _plan_put(self, planner: Planner, plan: Plan, reply: Any) -> Removal:
        """What goes when a save replaces a checkpoint, or older ones are beyond those that are kept."""
        ids = [one.decode() for one in reply[1].split(b"\0") if one]
        replaced = [plan.checkpoint_id] if reply[5] else []
        added = References.parse(OWN + 1, plan.ranges) if plan.block is not None else References.parse(0, plan.ranges)
        if plan.block is not None:
            # The own block does not exist yet, so nothing that goes refers to it.
            added = References(
                {n: [r for r in References.parse(_NOWHERE, plan.ranges).lists[n]] for n in added.lists}
            )
        near = await planner.near([*ids, *replaced], added)
        if near is not None:
            return near.only(ids)
        survey = await planner.survey()
        return await planner.whole(survey, ids, [*ids, *replaced], added)

    def _check_size(self, piece: bytes | None) -> None:
        if piece is not None and self.max_piece is not None and len(piece) > self.max_piece:
            raise PayloadTooLargeError(len(piece), self.max_piece)

    async def _planning(self, key: Key, now: int) -> AsyncIterator[Planner]:
        """Gives a planner again and again, until the caller is done; others of this process wait meanwhile."""
        from locus_store.backends.redis.removing import Planner

        planner = Planner(self._server, key, self._of(key), self.codec, now)
        async with await self._server.lock(key):
            for attempt in range(_ATTEMPTS):
                if attempt:
                    await asyncio.sleep(random.uniform(0, min(0.02, 0.001 * attempt)))  # noqa: S311 - no secret
                yield planner
        raise TransactionConflictError(
            f"thread {key.thread_id!r} was changed by others {_ATTEMPTS} times while a removal was planned"
        )
