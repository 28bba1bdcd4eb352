"""Copying a thread: read piece by piece, written where nobody looks, then put in place in one step.

On a cluster source and destination may lie on different servers, so all bytes go through here. What a copier that dies
leaves behind expires within the hour.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from locus_store.backends.redis import joining, layout
from locus_store.backends.redis.index import Index
from locus_store.backends.redis.keys import Keys
from locus_store.backends.redis.planning import ChangedError, blocks
from locus_store.core import frames, payloads
from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError, TransactionConflictError, UnsupportedFormatError
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, Range, References

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Argument, Server

_ATTEMPTS = 5
_AT_A_TIME = 500
_PIECE = 4 * 1024 * 1024
"""About how many bytes one request carries."""


class _Checkpoint(NamedTuple):
    """A checkpoint of the source: as it is stored, and taken apart."""

    checkpoint_id: str
    version: int
    data: bytes
    record: layout.Record


class _Source(NamedTuple):
    """What is copied, without its blocks.

    Attributes:
        epoch: The thread's epoch.
        removals: How often checkpoints went.
        expires_at: When it expires, as it is stored; empty for never.
        record_count: The number of the last record.
        checkpoints: Its checkpoints.
        records: Name and value of its records.
    """

    epoch: int
    removals: bytes
    expires_at: bytes
    record_count: bytes
    checkpoints: list[_Checkpoint]
    records: list[tuple[bytes, bytes]]

    def terms(self) -> set[bytes]:
        """All terms by which a checkpoint is found."""
        return {term for one in self.checkpoints for term in layout.digests(one.record.terms)}


class Copier:
    """Copies threads of one store.

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

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        for _ in range(_ATTEMPTS):
            found = await self._read(source, upto, now)
            if found is None:
                return "missing"
            (there,) = (await self._server.each("look", [self._keys.thread(dest)[:2]], now, 0))[0]
            if not overwrite and there not in (b"", b"expired"):
                return "exists"
            copy = _Copy(self._server, self._keys.copy(dest, secrets.token_hex(8)), self._codec, source, dest)
            try:
                await copy.write(found, self._keys.thread(source), whole=upto is None)
            except ChangedError:
                continue
            done = await self._install(copy, found, overwrite, now)
            if done is not None:
                return "copied" if done else "exists"
        raise TransactionConflictError(
            f"thread {source.thread_id!r} was changed by others {_ATTEMPTS} times while it was copied; try again"
        )

    async def _install(self, copy: _Copy, found: _Source, overwrite: bool, now: int) -> bool | None:
        """Put a copy in its place. False if somebody is there; None if the copy is gone, for it took too long."""
        dest, cluster = copy.dest, self._server.cluster
        terms = b"".join(found.terms())
        score = await self._index.announce(dest, now, terms) if cluster else b""
        arguments: list[Argument] = [dest.thread_id, now, int(overwrite), found.expires_at]
        for one in found.checkpoints:
            arguments += [one.checkpoint_id, one.version, one.record.terms]
        reply = await self._server.run("install", [*self._keys.of(dest), *copy.keys], *arguments, again=False)
        copied = bool(reply[0] == b"S")
        if cluster:
            updated = int(reply[1]) if len(reply) > 1 else None
            lost = b"".join(set(layout.digests(reply[2])) - found.terms()) if copied else b""
            await self._index.settle(dest, score, updated, terms if copied else b"", lost)
        return None if reply[0] == b"M" else copied

    async def _read(self, source: Key, upto: int | None, now: int) -> _Source | None:
        """Look at the source; None if there is nothing to copy."""
        reply = await self._server.run("snapshot", self._keys.thread(source), now, "" if upto is None else upto)
        if not reply or reply[5] == b"0":
            return None
        stop = 6 + 3 * int(reply[5])
        checkpoints = []
        for at in range(6, stop, 3):
            name, data = reply[at].decode(), reply[at + 2]
            try:
                checkpoints.append(_Checkpoint(name, int(reply[at + 1]), data, layout.read(data)))
            except DamagedError as e:
                raise CorruptCheckpointError(source.thread_id, name, f"it cannot be copied: {e}") from e
            except UnknownFormatError as e:
                raise UnsupportedFormatError(source.thread_id, name, f"it cannot be copied: {e}") from e
        records = [(reply[at], reply[at + 1]) for at in range(stop, len(reply), 2)]
        return _Source(int(reply[0]), reply[2], reply[3], reply[4], checkpoints, records)


class _Copy:
    """One copy, of which nothing is seen until it is installed."""

    def __init__(self, server: Server, keys: Sequence[bytes], codec: Codec | None, source: Key, dest: Key) -> None:
        self.keys = keys
        self.dest = dest
        self._server = server
        self._codec = codec
        # The codec, if what it made for one thread cannot be read for another.
        self._bound = codec if codec is not None and codec.bound else None
        self._names = ThreadName(*source), ThreadName(*dest)
        self._waiting: list[Argument] = []
        self._waiting_bytes = 0

    async def write(self, found: _Source, keys: Sequence[bytes], *, whole: bool) -> None:
        """Write it.

        Args:
            found: The source.
            keys: The source's keys.
            whole: Whether all of its checkpoints are copied, so that its blocks are copied as they are.

        Raises:
            ChangedError: Blocks went from the source meanwhile; begin again.
        """
        used = EntrySet.of([self._references(one) for one in found.checkpoints])
        numbers = [n for first, last in used.blocks() for n in range(first, last + 1)]
        highest = 0
        fields = joining.fields(numbers)
        async for field, payload in blocks(self._server, keys, fields, found.removals, found.epoch):
            kept = self._part(payload, used, whole=whole)
            if kept:
                await self._stage(field, kept)
                highest = max(highest, joining.last(field))
        for one in found.checkpoints:
            rebound = self._rebound(one.record.payload)
            data = one.data if rebound is one.record.payload else layout.with_payload(one.data, rebound)
            await self._stage(f"c{one.version}", data)
        for name, value in found.records:
            count, _, payload = value.partition(b" ")
            await self._stage(b"r" + name, count + b" " + self._rebound(payload))
        await self._stage("n", max([one.version for one in found.checkpoints]))
        await self._stage("k", highest)
        await self._stage("q", found.record_count)
        if found.expires_at:
            await self._stage("x", found.expires_at)
        await self._stage("e", new_epoch())  # last, for without an epoch there is no thread
        await self._flush()

    def _references(self, one: _Checkpoint) -> References:
        try:
            return one.record.references()
        except DamagedError as e:
            raise CorruptCheckpointError(self._names[0].thread_id, one.checkpoint_id, str(e)) from e

    def _part(self, payload: bytes, used: EntrySet, *, whole: bool) -> bytes | None:
        """What the copy has of a block."""
        try:
            if not whole:
                unused = _everything(payload, self._codec, self._names[0]).minus(used)
                left = payloads.strip(payload, unused, self._codec, self._names[0])
                if left is None:
                    return None
                payload = left
            return payload if self._bound is None else payloads.rebind(payload, self._bound, *self._names)
        except DamagedError as e:
            raise CorruptCheckpointError(self._names[0].thread_id, None, f"a block cannot be copied: {e}") from e
        except UnknownFormatError as e:
            raise UnsupportedFormatError(self._names[0].thread_id, None, f"a block cannot be copied: {e}") from e

    def _rebound(self, payload: bytes) -> bytes:
        return payload if self._bound is None else frames.rebind_one(payload, self._bound, *self._names)

    async def _stage(self, name: str | bytes, value: Argument) -> None:
        """Write a field, together with others."""
        self._waiting += [name, value]
        self._waiting_bytes += 8 if isinstance(value, int) else len(value)
        if self._waiting_bytes > _PIECE or len(self._waiting) > 2 * _AT_A_TIME:
            await self._flush()

    async def _flush(self) -> None:
        await self._server.run("stage", self.keys, *self._waiting)
        self._waiting, self._waiting_bytes = [], 0


def _everything(payload: bytes, codec: Codec | None, name: ThreadName) -> EntrySet:
    """All entries of a block."""
    return EntrySet.of(
        [
            References({number: [Range(f.number, f.number)] for number, _ in f.counts})
            for f in payloads.read(payload, codec, name)
        ]
    )
