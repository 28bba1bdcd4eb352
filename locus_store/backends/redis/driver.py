"""The driver: primitives of `locus_store.core.driver` as one script call each, on Redis or Valkey.

A save that removes nothing is one round trip on a single server; on a cluster its entry in the index is written before
and settled after. A load is one round trip. A removal is planned from what is read and done in one step if that still
holds, else planned again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from locus_store.backends.redis import layout
from locus_store.backends.redis.address import parse
from locus_store.backends.redis.copying import Copy
from locus_store.backends.redis.index import Index
from locus_store.backends.redis.keys import DEFAULT_PREFIX, Keys
from locus_store.backends.redis.removing import ChangedError, Planner, Removal
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
from locus_store.core.frames import Codec, DamagedError
from locus_store.core.ids import DEFAULT_TENANT, new_epoch
from locus_store.core.references import References

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

T = TypeVar("T")

MAX_PIECE = 256 * 1024 * 1024
"""How many bytes one value may have by default; the server's own limit is 512 MB."""

_PAGE = 1000
_THREADS = 200
_ATTEMPTS = 300
_COPIES = 5
_OWN_BLOCK = 2**53
"""Stands for the number of a block that is not there yet."""


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
        from locus_store.backends.redis.server import Server

        if (url is None) == (client is None):
            raise ValueError("where the server is: pass a url, or a client of yours, and not both")
        if db and client is not None:
            raise ValueError("the client that is passed has a database of its own: db has no meaning beside it")
        self._keys = Keys(prefix)
        self._server = Server(
            None if url is None else parse(url, db),
            client,
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
            last = reply

            async def attempt(planner: Planner) -> Any:
                nonlocal last
                last = await self._send(key, plan, await _removal_for(planner, plan, last))
                return None if last[0] == b"N" else last

            reply = await self._planned(key, plan.now, attempt)
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

    def _check_size(self, piece: bytes | None) -> None:
        if piece is not None and self.max_piece is not None and len(piece) > self.max_piece:
            raise PayloadTooLargeError(len(piece), self.max_piece)

    async def _planned(self, key: Key, now: int, attempt: Callable[[Planner], Awaitable[T | None]]) -> T:
        """Plan a removal and try it, again and again until it is done; others of this process wait meanwhile."""
        planner = Planner(self._server, key, self._keys.thread(key), self.codec, now)
        async with await self._server.lock(key):
            for tried in range(_ATTEMPTS):
                if tried:
                    await asyncio.sleep(random.uniform(0, min(0.02, 0.001 * tried)))  # noqa: S311 - no secret
                with contextlib.suppress(ChangedError):
                    done = await attempt(planner)
                    if done is not None:
                        return done
        raise TransactionConflictError(
            f"thread {key.thread_id!r} was changed by others {_ATTEMPTS} times while a removal was planned; try again"
        )

    # ------------------------------------------------------------------------------------------------------- reading

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """See `Driver.get`.

        Raises:
            DamagedError: What is stored of the checkpoint is damaged.
            UnknownFormatError: A newer release wrote it.
        """
        reply = await self._server.run("get", self._keys.thread(key), now, checkpoint_id or "")
        if reply is None:
            return None
        found, version, epoch, data, *blocks = reply
        try:
            record = layout.read(data)
        except DamagedError as e:
            e.checkpoint_id = found.decode()
            raise
        return Stored(
            found.decode(),
            int(version),
            record.stamp,
            int(epoch),
            record.own_block,
            record.ranges,
            record.payload,
            blocks,
        )

    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        """See `Driver.info`."""
        if checkpoint_id is None:
            return next(iter(await self.infos(key, before=None, limit=1, now=now)), None)
        reply = await self._server.run("infos", self._keys.thread(key), now, checkpoint_id, "", 1)
        return next(layout.infos(key.thread_id, int(reply[0]), reply[1:]), None) if reply else None

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""
        found: list[Info] = []
        while limit is None or len(found) < limit:
            count = _PAGE if limit is None else min(_PAGE, limit - len(found))
            reply = await self._server.run("infos", self._keys.thread(key), now, "", _or_empty(before), count)
            if len(reply) < 2:
                break
            found += layout.infos(key.thread_id, int(reply[0]), reply[1:])
            if len(reply) < 1 + 4 * count:
                break
            before = found[-1].version
        return found

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        return await self._index.threads(tenant, pattern, limit=limit, offset=offset, now=now)

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
        wanted = None if limit is None else offset + limit
        if wanted == 0:
            return []
        if thread_id is None:
            found = await self._index.find(tenant, terms, newest_only=newest_only, wanted=wanted, now=now)
        else:
            found = await self._index.find_in(
                tenant, [thread_id], terms, newest_only=newest_only, wanted=wanted, now=now
            )
        return found[offset:wanted]

    # ------------------------------------------------------------------------------------------------------ removing

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """See `Driver.drop`."""
        # A removal is not sent twice, so a connection that was lost long ago is found out by a read.
        seen = await self._index.seen(key)
        if checkpoint_ids is None:
            return (await self._erase(key, seen, now, only_expired=False))[0]
        ids = list(dict.fromkeys(checkpoint_ids))
        return (await self._drop_some(key, ids, seen, now))[0]

    async def _erase(self, key: Key, seen: bytes, now: int, *, only_expired: bool) -> tuple[Dropped, int, int]:
        """Remove a thread; returns also how many checkpoints and blocks went, of one that had expired too."""
        reply = await self._server.run("erase", self._of(key), key.thread_id, now, int(only_expired), again=False)
        count, blocks, epoch, terms = reply
        if self._server.cluster and not only_expired:
            await self._index.settle(key.tenant, key.thread_id, seen, None, b"", terms)
        done = Dropped(int(count), int(epoch), None) if epoch else Dropped(0, None, None)
        return done, int(count), int(blocks)

    async def _drop_some(self, key: Key, ids: Sequence[str], seen: bytes, now: int) -> tuple[Dropped, int]:
        """Remove checkpoints; returns also how many blocks went whole."""

        async def attempt(planner: Planner) -> tuple[Dropped, int] | None:
            survey = await planner.survey(ids) if ids else await planner.survey()
            if survey is None or survey.expired:
                return Dropped(0, None, None), 0
            there = [name for name in ids if name in survey.rows]
            if not there:
                epoch = survey.epoch if survey.saved else None
                return Dropped(0, epoch, epoch), 0
            removal = planner.near(survey, there, there, None)
            if removal is None:
                survey = await planner.survey()
                if survey is None:
                    return None
                there = [name for name in ids if name in survey.rows]
                removal = await planner.whole(survey, there, there, None)
            after_it = "" if removal.epoch is None else removal.epoch
            reply = await self._server.run(
                "drop",
                self._of(key),
                key.thread_id,
                now,
                removal.guard,
                removal.count,
                after_it,
                removal.joined(),
                *removal.changes(),
                again=False,
            )
            if reply == b"N":
                return None
            count, before, after, blocks, updated, lost = reply
            if self._server.cluster and (lost or not after):
                moment = int(updated) if updated else None
                await self._index.settle(key.tenant, key.thread_id, seen, moment, b"", lost)
            return Dropped(int(count), int(before), int(after) if after else None), int(blocks)

        return await self._planned(key, now, attempt)

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`; it also makes the index agree with the threads."""
        names = await self._index.names(tenant)
        checkpoints = blocks = 0
        for start in range(0, len(names), _THREADS):
            some = names[start : start + _THREADS]
            keys = [self._keys.thread(Key(tenant, name))[:2] for name in some]
            replies = await self._server.each("old", keys, now, older_than, keep_last)
            for name, old in zip(some, [old for reply in replies for old in reply], strict=True):
                if not old:
                    continue
                key = Key(tenant, name)
                if old == b"x":
                    _, count, gone = await self._erase(key, b"", now, only_expired=True)
                else:
                    ids = [one.decode() for one in old.split(b"\0")[:-1]]
                    dropped, gone = await self._drop_some(key, ids, await self._index.seen(key), now)
                    count = dropped.count
                checkpoints += count
                blocks += gone
        await self._index.audit(tenant, names, now)
        return Trimmed(checkpoints, blocks)

    async def reclaim(self) -> int:
        """Nothing to do: the server gives memory back by itself."""
        return 0

    # ------------------------------------------------------------------------------------------------------- copying

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`; the bytes go through this process."""
        for _ in range(_COPIES):
            copy = Copy(self._server, self._keys, self.codec, source, dest)
            found = await copy.read(upto, now)
            if found is None:
                return "missing"
            if not overwrite and await self.infos(dest, before=None, limit=1, now=now):
                return "exists"
            try:
                await copy.write(found, whole=upto is None)
            except ChangedError:
                continue
            terms = b"".join(
                {term for _, _, data in found.checkpoints for term in layout.digests(layout.read(data).terms)}
            )
            score = await self._index.announce(dest, now, terms) if self._server.cluster else b""
            reply = await copy.install(found, overwrite=overwrite, now=now, keys=self._of(dest))
            if self._server.cluster:
                updated = int(reply[1]) if len(reply) > 1 else None
                if reply[0] == b"S":
                    lost = b"".join(set(layout.digests(reply[2])) - set(layout.digests(terms)))
                    await self._index.settle(dest.tenant, dest.thread_id, score, updated, terms, lost)
                else:
                    await self._index.settle(dest.tenant, dest.thread_id, score, updated)
            if reply[0] != b"M":
                return "copied" if reply[0] == b"S" else "exists"
        raise TransactionConflictError(
            f"thread {source.thread_id!r} was changed by others {_COPIES} times while it was copied; try again"
        )

    # ------------------------------------------------------------------------------------------------------- records

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        for _, payload in items:
            self._check_size(payload)
        pairs = [part for name, payload in items for part in (f"{scope}\0{name}", payload)]
        await self._server.run(
            "put_records", self._of(key), key.thread_id, now, _or_empty(expires_at), int(keep), new_epoch(), *pairs
        )

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        reply = await self._server.run("records", self._keys.thread(key), now, scope or "")
        found = []
        for at in range(0, len(reply), 2):
            of, _, name = reply[at].decode().partition("\0")
            number, _, payload = reply[at + 1].partition(b" ")
            found.append((of, int(number), name, payload))
        return [(of, name, payload) for of, _, name, payload in sorted(found)]

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """See `Driver.drop_records`."""
        await self._server.ping(self._keys.thread(key))
        return int(await self._server.run("drop_records", self._of(key), key.thread_id, now, scope or "", again=False))

    # ---------------------------------------------------------------------------------------------------- life cycle

    async def prepare(self) -> None:
        """Find out whether the server answers; there is nothing to be made."""
        await self._server.ping(self._keys.tenant(DEFAULT_TENANT))

    async def aclose(self) -> None:
        """See `Driver.aclose`; a client that was handed in stays open."""
        await self._server.aclose()


async def _removal_for(planner: Planner, plan: Plan, said: Any) -> Removal:
    """What goes when a save replaces a checkpoint, or older ones are more than are kept.

    Args:
        planner: The planner of the thread.
        plan: The save.
        said: The script's answer: which ones go, and whether one is replaced.
    """
    ids = [one.decode() for one in said[1].split(b"\0") if one]
    gone = [*ids, plan.checkpoint_id] if said[5] else ids
    added = References.parse(_OWN_BLOCK, plan.ranges)
    survey = await planner.survey(gone)
    removal = None if survey is None else planner.near(survey, ids, gone, added)
    if removal is None:
        survey = await planner.survey()
        removal = None if survey is None else await planner.whole(survey, ids, gone, added)
    return Removal("g", b"", ids) if removal is None else removal


def _result(reply: Any) -> PutResult:
    match reply[0]:
        case b"S":
            return Saved(int(reply[1]), int(reply[2]), int(reply[3]))
        case b"C":
            return Conflict(int(reply[1]))
        case b"E":
            return Exists()
        case b"P":
            return NoParent()
        case _:
            return Stale()


def _or_empty(value: int | None) -> int | str:
    return "" if value is None else value
