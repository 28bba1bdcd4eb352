"""Removing threads and checkpoints, and sweeping a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from locus_store.backends.redis.index import Index, underway
from locus_store.backends.redis.keys import Keys
from locus_store.backends.redis.planning import Planner
from locus_store.core.driver import Dropped, Key, Trimmed
from locus_store.core.frames import Codec

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Server

_THREADS = 200
"""How many threads one script looks at."""


class Gone(NamedTuple):
    """What a removal did, and how many blocks went whole with it. The checkpoints of an expired thread count here."""

    dropped: Dropped
    checkpoints: int
    blocks: int


class Remover:
    """Removes from the threads of one store.

    Args:
        server: The server.
        keys: The names of keys.
        index: The index.
        codec: What frames go through.
    """

    def __init__(self, server: Server, keys: Keys, index: Index, codec: Codec | None) -> None:
        self._server = server
        self._keys = keys
        self._index = index
        self._codec = codec

    async def thread(self, key: Key, now: int, *, only_expired: bool = False) -> Gone:
        """Remove a thread, or remove it only if it has expired."""
        # A removal is not sent twice, so a connection that was lost long ago is found out by this read.
        seen = await self._index.seen(key)
        reply = await self._server.run(
            "drop", self._keys.of(key), key.thread_id, now, "", int(only_expired), again=False
        )
        return await self._done(key, seen, reply, now)

    async def some(self, key: Key, ids: Sequence[str], now: int) -> Gone:
        """Remove checkpoints of a thread; ids that are not there are passed over."""
        ids = list(dict.fromkeys(ids))
        seen = await self._index.seen(key)
        planner = Planner(self._server, key, self._keys.thread(key), self._codec, now)

        async def attempt() -> Gone | None:
            survey = await planner.survey(ids) if ids else await planner.survey()
            if survey is None or survey.expired:
                return Gone(Dropped(0, None, None), 0, 0)
            there = [name for name in ids if name in survey.rows]
            if not there:
                epoch = survey.epoch if survey.saved else None
                return Gone(Dropped(0, epoch, epoch), 0, 0)
            removal = planner.near(survey, there, there, None)
            if removal is None:
                survey = await planner.survey()
                if survey is None:
                    return None
                there = [name for name in ids if name in survey.rows]
                if not there:
                    return None
                removal = await planner.whole(survey, there, there, None)
            reply = await self._server.run(
                "drop",
                self._keys.of(key),
                key.thread_id,
                now,
                removal.joined(),
                0,
                removal.guard,
                removal.count,
                "" if removal.epoch is None else removal.epoch,
                *removal.changes(),
                again=False,
            )
            return None if reply == b"N" else await self._done(key, seen, reply, now)

        return await planner.until_done(attempt)

    async def sweep(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
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
                if old == b"x":
                    gone = await self.thread(Key(tenant, name), now, only_expired=True)
                else:
                    gone = await self.some(Key(tenant, name), [one.decode() for one in old.split(b"\0")[:-1]], now)
                checkpoints += gone.checkpoints
                blocks += gone.blocks
        await self._index.audit(tenant, names, now)
        return Trimmed(checkpoints, blocks)

    async def _done(self, key: Key, seen: bytes, reply: Sequence[bytes], now: int) -> Gone:
        """What the script says, after the index was told."""
        count, blocks, before, after, updated, lost = reply
        if self._server.cluster and (lost or not after) and not underway(seen, now):
            await self._index.settle(key, seen, int(updated) if updated else None, b"", lost)
        if not before:
            return Gone(Dropped(0, None, None), int(count), int(blocks))
        return Gone(Dropped(int(count), int(before), int(after) if after else None), int(count), int(blocks))
