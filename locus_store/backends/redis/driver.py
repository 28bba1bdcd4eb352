"""The driver: primitives of `locus_store.core.driver` as one script call each, on Redis or Valkey.

A save that removes nothing is one round trip on a single server; on a cluster its entry in the index is written before
and settled after. A load is one round trip. A removal is planned from what is read and done in one step if that still
holds, else planned again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from locus_store.backends.redis import layout
from locus_store.backends.redis.address import parse
from locus_store.backends.redis.copying import Copier
from locus_store.backends.redis.index import Index
from locus_store.backends.redis.joining import Joiner
from locus_store.backends.redis.keys import DEFAULT_PREFIX, Keys
from locus_store.backends.redis.removing import Remover
from locus_store.backends.redis.saving import Saver
from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import Driver, Dropped, Info, Key, Plan, PutResult, Saved, Stored, Trimmed
from locus_store.core.errors import MissingDependencyError, PayloadTooLargeError
from locus_store.core.frames import Codec, DamagedError
from locus_store.core.ids import DEFAULT_TENANT, new_epoch

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

MAX_PIECE = 256 * 1024 * 1024
"""How many bytes one value may have by default; the server's own limit is 512 MB."""

_PAGE = 1000


class RedisDriver(Driver):
    """Threads in Redis or Valkey.

    Args:
        url: Where the server is; `address` says what is understood. None with a client.
        client: The host's own ``redis.asyncio.Redis`` or ``RedisCluster``; it is used, and never closed.
        prefix: What all keys begin with.
        db: The number of the database, unless the URL has one.
        timeout: Seconds that an answer, or a connection, is waited for; 10 unless a client is handed in.
        max_connections: How many connections there are at most, for each event loop.
        max_piece: How many bytes one value may have.
        codec: What frames go through; it is needed where a removal rewrites a block.
        renew_seconds: Seconds after a load before which a thread does not expire, or None if loads change nothing.
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
        timeout: float | None = None,
        max_connections: int = 50,
        max_piece: int = MAX_PIECE,
        codec: Codec | None = None,
        renew_seconds: float | None = None,
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
        self._server = Server(
            None if url is None else parse(url, db),
            client,
            timeout=timeout,
            max_connections=max_connections,
            options=client_options,
        )
        self._keys = Keys(prefix, cluster=self._server.cluster)
        self._index = Index(self._server, self._keys)
        parts = (self._server, self._keys, self._index, codec)
        self._saver, self._remover, self._copier = Saver(*parts), Remover(*parts), Copier(*parts)
        self._joiner = Joiner(self._server, self._keys, max_piece)
        self._renew = renew_seconds
        self.max_piece = max_piece

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server.shown}, prefix={self._keys.prefix!r})"

    # -------------------------------------------------------------------------------------------------------- saving

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`; a save that removes nothing is one call of one script, and on a cluster three.

        The save of every fiftieth block is followed by two more, which join the blocks.
        """
        for piece in (plan.payload, plan.block, plan.metadata):
            self._check_size(piece)
        result = await self._saver.put(key, plan)
        if isinstance(result, Saved):
            await self._joiner.after(key, result.block)
        return result

    def _check_size(self, piece: bytes | None) -> None:
        if piece is not None and self.max_piece is not None and len(piece) > self.max_piece:
            raise PayloadTooLargeError(len(piece), self.max_piece)

    # ------------------------------------------------------------------------------------------------------- reading

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """See `Driver.get`.

        Raises:
            DamagedError: What is stored of the checkpoint is damaged.
            UnknownFormatError: A newer release wrote it.
        """
        renewed = "" if self._renew is None else now + int(self._renew * 1_000_000)
        keys = self._keys.thread(key) if renewed else self._keys.read(key)
        reply = await self._server.run("get", keys, now, checkpoint_id or "", renewed)
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
        reply = await self._server.run("infos", self._keys.read(key), now, checkpoint_id, "", 1)
        return next(layout.infos(key.thread_id, int(reply[0]), reply[1:]), None) if reply else None

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""
        found: list[Info] = []
        while limit is None or len(found) < limit:
            count = _PAGE if limit is None else min(_PAGE, limit - len(found))
            reply = await self._server.run("infos", self._keys.read(key), now, "", _or_empty(before), count)
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
        if checkpoint_ids is None:
            return (await self._remover.thread(key, now)).dropped
        return (await self._remover.some(key, checkpoint_ids, now)).dropped

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`; it also makes the index agree with the threads."""
        return await self._remover.sweep(tenant, older_than=older_than, keep_last=keep_last, now=now)

    async def reclaim(self) -> int:
        """Nothing to do: the server gives memory back by itself."""
        return 0

    # ------------------------------------------------------------------------------------------------------- copying

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`; the bytes go through this process."""
        return await self._copier.clone(source, dest, upto=upto, overwrite=overwrite, now=now)

    # ------------------------------------------------------------------------------------------------------- records

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        for _, payload in items:
            self._check_size(payload)
        pairs = [part for name, payload in items for part in (f"{scope}\0{name}", payload)]
        await self._server.run(
            "put_records", self._keys.of(key), key.thread_id, now, _or_empty(expires_at), int(keep), new_epoch(), *pairs
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
        await self._index.seen(key)  # a removal is not sent twice: a connection that was lost is found out by a read
        found = await self._server.run("drop_records", self._keys.of(key), key.thread_id, now, scope or "", again=False)
        return int(found)

    # ---------------------------------------------------------------------------------------------------- life cycle

    async def prepare(self) -> None:
        """Find out whether the server answers; there is nothing to be made."""
        await self._index.seen(Key(DEFAULT_TENANT, ""))

    async def aclose(self) -> None:
        """See `Driver.aclose`; a client that was handed in stays open."""
        await self._server.aclose()


def _or_empty(value: int | None) -> int | str:
    return "" if value is None else value
