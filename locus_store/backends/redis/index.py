"""The index of a tenant's threads: reading it, and keeping it right.

On a single server the scripts that change a thread change the index in the same step. On a cluster it lies elsewhere.
There a save announces its thread before it writes, so that what was acknowledged is never missing, and settles the
entry afterwards. Whoever takes an entry out first reads its score, then looks at the thread, then takes it out only if
the score is still that one, for every announcement changes it, and if nobody is about to write: an announcement that is
not settled is left alone for five minutes.

Whoever reads looks at the threads themselves, and takes out the entries of those that are gone.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from locus_store.backends.redis import layout
from locus_store.backends.redis.keys import Keys, thread_ids
from locus_store.core import patterns
from locus_store.core.driver import Info, Key
from locus_store.core.errors import BackendError

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Server

_log = logging.getLogger(__name__)

_PAGE = 5000
_THREADS = 500
"""How many threads one script looks at."""
_FEW = 50


_UNDERWAY = 300_000_000
"""So many microseconds a save is waited for that was announced, and whose thread is not there."""


def underway(score: bytes, now: int) -> bool:
    """Whether the score is that of an announcement by a writer that may still be about to write."""
    return b"." in score and -float(score) > now - _UNDERWAY


class Listed(NamedTuple):
    """An entry of the index."""

    thread_id: str
    score: bytes


class Found(NamedTuple):
    """A thread that was looked at: when it was written last, and the digests of all of its terms."""

    thread_id: str
    updated_at: int
    terms: bytes


class Index:
    """The index of one store.

    Args:
        server: The server.
        keys: The names of keys.
    """

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    # --------------------------------------------------------------------------------------------------------- reading

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        parsed = patterns.parse(pattern)
        if not parsed.possible or limit == 0:
            return []
        if parsed.literal is not None:
            entries = [Listed(parsed.literal, b"")]
            return (await self._alive(tenant, entries, now))[offset:][:limit]
        matches = re.compile("", re.S).match if parsed.everything else parsed.regex().fullmatch
        wanted = None if limit is None else offset + limit
        found: dict[str, int] = {}
        first: bytes | None = None
        start = count = 0
        while wanted is None or len(found) < wanted:
            count = _PAGE if wanted is None or not parsed.everything else min(_PAGE, wanted - len(found) + _FEW)
            looked, entries = await self._page(tenant, start, count, b"", parsed.prefix, now)
            if first is None and entries:
                first = entries[0].score
            found.update(await self._alive(tenant, [e for e in entries if matches(e.thread_id)], now))
            start += count
            if looked < count:
                break
        # What was written while several pages were read has moved to the front.
        while start > count and first is not None:
            _, entries = await self._page(tenant, 0, 0, first, parsed.prefix, now)
            if not entries:
                break
            first = entries[0].score
            found.update(await self._alive(tenant, [e for e in entries if matches(e.thread_id)], now))
        ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
        return ordered[offset:][:limit]

    async def find(
        self, tenant: str, terms: Sequence[bytes], *, newest_only: bool, wanted: int | None, now: int
    ) -> list[Info]:
        """Checkpoints that have all the terms, the first ``wanted`` of them."""
        if terms:
            names = await self._candidates(tenant, b"".join(terms), now)
        else:
            names = [name for name, _ in await self.threads(tenant, "*", limit=None, offset=0, now=now)]
        found: list[Info] = []
        size = _THREADS if wanted is None else _FEW
        for start in range(0, len(names), size):
            some = names[start : start + size]
            left = None if wanted is None else wanted - len(found)
            if left == 0:
                break
            found += await self.find_in(tenant, some, terms, newest_only=newest_only, wanted=left, now=now)
        # A save may have changed the order of threads meanwhile.
        return sorted(found, key=lambda info: (-info.updated_at, info.thread_id))[:wanted]

    async def find_in(
        self,
        tenant: str,
        names: Sequence[str],
        terms: Sequence[bytes],
        *,
        newest_only: bool,
        wanted: int | None,
        now: int,
    ) -> list[Info]:
        """What `find` finds in some threads; entries of threads that are gone are taken out of the index."""
        keys = [self._keys.thread(Key(tenant, name))[:2] for name in names]
        limit = -1 if wanted is None else wanted
        digests = b"".join(terms)
        found: list[Info] = []
        gone: list[str] = []
        at = 0
        for reply in await self._server.each("find", keys, now, int(newest_only), limit, digests):
            place = 0
            while place < len(reply):
                count = int(reply[place])
                if count < 0:
                    gone.append(names[at])
                    place += 1
                else:
                    stop = place + 2 + 4 * count
                    found += layout.infos(names[at], int(reply[place + 1]), reply[place + 2 : stop])
                    place = stop
                at += 1
        if gone and not self._server.cluster:
            await self._clean(tenant, gone, digests)
        return found

    async def _page(
        self, tenant: str, start: int, count: int, newer: bytes, prefix: str, now: int
    ) -> tuple[int, list[Listed]]:
        reply = await self._server.run("page", self._keys.tenant(tenant), start, count, newer, prefix)
        if reply[0] == b"lost":
            rows = await self.rebuild(tenant, now)
            some = [row for row in rows if -row.updated_at < float(newer)] if newer else rows[start : start + count]
            return len(some), [
                Listed(r.thread_id, b"-%d" % r.updated_at) for r in some if r.thread_id.startswith(prefix)
            ]
        return int(reply[1]), [Listed(reply[i].decode(), reply[i + 1]) for i in range(2, len(reply), 2)]

    async def _candidates(self, tenant: str, terms: bytes, now: int) -> list[str]:
        reply = await self._server.run("candidates", self._keys.tenant(tenant), terms)
        if reply[0] == b"lost":
            wanted = set(layout.digests(terms))
            return [r.thread_id for r in await self.rebuild(tenant, now) if wanted <= set(layout.digests(r.terms))]
        entries = [(float(reply[i + 1] or 0), reply[i].decode()) for i in range(1, len(reply), 2)]
        return [name for _, name in sorted(entries)]

    async def _alive(self, tenant: str, entries: Sequence[Listed], now: int) -> list[tuple[str, int]]:
        """Which of the entries are right; those of threads that are gone are taken out."""
        found: list[tuple[str, int]] = []
        gone: list[Listed] = []
        for start in range(0, len(entries), _THREADS):
            some = entries[start : start + _THREADS]
            keys = [self._keys.thread(Key(tenant, e.thread_id))[:2] for e in some]
            replies = await self._server.each("look", keys, now, 0)
            for entry, said in zip(some, [said for reply in replies for said in reply], strict=True):
                if said == b"":
                    gone.append(entry)
                elif said == b"torn":
                    found.append((entry.thread_id, int(-float(entry.score or 0))))
                elif said != b"expired":
                    found.append((entry.thread_id, int(said)))
                    if b"." in entry.score:
                        await self.settle(Key(tenant, entry.thread_id), entry.score, int(said))
        listed = [e for e in gone if e.score]
        if self._server.cluster:
            for entry in listed:
                if not underway(entry.score, now):
                    await self.settle(Key(tenant, entry.thread_id), entry.score, None)
        else:
            for start in range(0, len(listed), _THREADS):
                await self._clean(tenant, [e.thread_id for e in listed[start : start + _THREADS]], b"")
        return found

    async def _clean(self, tenant: str, names: Sequence[str], terms: bytes) -> None:
        keys = [self._keys.thread(Key(tenant, name))[0] for name in names]
        await self._server.run("clean", [*self._keys.tenant(tenant), *keys], terms, *names)

    # -------------------------------------------------------------------------------------------------------- keeping

    async def announce(self, key: Key, now: int, terms: bytes) -> bytes:
        """On a cluster, before a save; returns the score by which `settle` knows its own entry."""
        reply: bytes = await self._server.run("announce", self._keys.tenant(key.tenant), key.thread_id, now, terms)
        return reply

    async def seen(self, key: Key) -> bytes:
        """On a cluster, before a removal: the score of the thread's entry, empty if there is none."""
        reply = await self._server.run("score", self._keys.tenant(key.tenant), key.thread_id)
        return reply or b""

    async def settle(
        self, key: Key, seen: bytes, updated_at: int | None, add: bytes = b"", remove: bytes = b""
    ) -> None:
        """Say when a thread was written last, None if it is gone, and which terms it has and has not.

        Nothing fails if that cannot be said: what was announced is there, and whoever reads finds out the rest.

        Args:
            key: The thread.
            seen: The score before the thread was looked at or changed.
            updated_at: When it was written last.
            add: Terms that it has.
            remove: Terms that it has no more, taken out only if the score is still that one.
        """
        updated = "" if updated_at is None else updated_at
        try:
            await self._server.run("settle", self._keys.tenant(key.tenant), key.thread_id, seen, updated, add, remove)
        except BackendError:
            _log.info("the index was not told of a change of a thread", exc_info=True)

    async def names(self, tenant: str) -> list[str]:
        """The ids of all threads of a tenant, found by looking at all keys; some may have records only."""
        return sorted(set(thread_ids(await self._server.scan(self._keys.threads_of(tenant)))))

    async def rebuild(self, tenant: str, now: int) -> list[Found]:
        """Make the index anew from the threads themselves; returns these, newest first."""
        found = await self._look_at(tenant, await self.names(tenant), now)
        # A replica, or a server without memory, can only be read: there it is found out again the next time.
        with contextlib.suppress(BackendError):
            await self._restore(tenant, found)
            await self._server.run("complete", self._keys.tenant(tenant))
        return sorted(found, key=lambda one: (-one.updated_at, one.thread_id))

    async def _look_at(self, tenant: str, names: Sequence[str], now: int) -> list[Found]:
        found: list[Found] = []
        for start in range(0, len(names), _THREADS):
            some = names[start : start + _THREADS]
            keys = [self._keys.thread(Key(tenant, name))[:2] for name in some]
            replies = [part for reply in await self._server.each("look", keys, now, 1) for part in reply]
            for name, updated, terms in zip(some, replies[::2], replies[1::2], strict=True):
                if updated not in (b"", b"expired", b"torn"):
                    found.append(Found(name, int(updated), terms))
        return found

    async def _restore(self, tenant: str, found: Sequence[Found]) -> None:
        """Put into the index what it does not have of some threads."""
        for start in range(0, len(found), _THREADS):
            rows = [part for one in found[start : start + _THREADS] for part in one]
            await self._server.run("restore", self._keys.tenant(tenant), *rows)

    async def audit(self, tenant: str, names: Sequence[str], now: int) -> None:
        """Make the index agree with the threads: what a crash or a failover has left is put right.

        Args:
            tenant: The tenant.
            names: The ids of its threads.
            now: The time of the call.
        """
        listed: dict[str, bytes] = {}
        start = 0
        while True:
            looked, entries = await self._page(tenant, start, _PAGE, b"", "", now)
            listed.update({e.thread_id: e.score for e in entries})
            start += _PAGE
            if looked < _PAGE:
                break
        there = dict(await self._alive(tenant, [Listed(*one) for one in listed.items()], now))
        await self._restore(tenant, await self._look_at(tenant, names, now))
        # Announcements of metadata that no checkpoint has any more.
        after = b""
        while members := await self._server.run("terms", self._keys.tenant(tenant), after, _PAGE):
            after = members[-1]
            by_thread: dict[str, bytes] = {}
            for member in members:
                name = member[16:].decode()
                by_thread[name] = by_thread.get(name, b"") + member[:16]
            await self._withdraw(tenant, by_thread, listed, there, now)

    async def _withdraw(
        self, tenant: str, announced: dict[str, bytes], listed: dict[str, bytes], there: dict[str, int], now: int
    ) -> None:
        has = {
            one.thread_id: set(layout.digests(one.terms)) for one in await self._look_at(tenant, list(announced), now)
        }
        for name, terms in announced.items():
            stale = b"".join([term for term in layout.digests(terms) if term not in has.get(name, ())])
            if stale and not underway(listed.get(name, b""), now):
                await self.settle(Key(tenant, name), listed.get(name, b""), there.get(name), b"", stale)
