"""Copying a thread: read piece by piece, written where nobody looks, then put in place in one step.

On a cluster source and destination may lie on different servers, so all bytes go through here. What a copier that dies
leaves behind expires within the hour.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from locus_store.backends.redis import layout
from locus_store.backends.redis.keys import Keys
from locus_store.backends.redis.removing import ChangedError
from locus_store.core import frames, payloads
from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError, UnsupportedFormatError
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, Range, References

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Server

_AT_A_TIME = 500
_PIECE = 4 * 1024 * 1024
"""About how many bytes one request carries."""


@dataclass
class Source:
    """What is copied, without its blocks.

    Attributes:
        epoch: The thread's epoch.
        removals: How often checkpoints went.
        expires_at: When it expires, as it is stored.
        records: Name and value of its records.
        record_count: The number of the last one.
        checkpoints: Id, version and record.
    """

    epoch: int
    removals: bytes
    expires_at: bytes
    record_count: bytes
    checkpoints: list[tuple[str, int, bytes]]
    records: list[tuple[bytes, bytes]]


@dataclass
class Copy:
    """One copy of a thread.

    Args:
        server: The server.
        keys: The names of keys.
        codec: What frames went through.
        source: What is copied.
        dest: Where to.
    """

    server: Server
    keys: Keys
    codec: Codec | None
    source: Key
    dest: Key
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    async def read(self, upto: int | None, now: int) -> Source | None:
        """Look at the source; None if there is nothing to copy."""
        reply = await self.server.run("snapshot", self.keys.thread(self.source), now, "" if upto is None else upto)
        if not reply or reply[5] == b"0":
            return None
        stop = 6 + 3 * int(reply[5])
        return Source(
            int(reply[0]),
            reply[2],
            reply[3],
            reply[4],
            [(reply[i].decode(), int(reply[i + 1]), reply[i + 2]) for i in range(6, stop, 3)],
            [(reply[i], reply[i + 1]) for i in range(stop, len(reply), 2)],
        )

    async def write(self, found: Source, *, whole: bool) -> None:
        """Write the copy where nobody looks.

        Args:
            found: The source.
            whole: Whether all of its checkpoints are copied, so that its blocks are copied as they are.

        Raises:
            ChangedError: Blocks went from the source meanwhile; begin again.
        """
        records = {name: layout.read(data) for name, _, data in found.checkpoints}
        references = {name: self._references(name, record) for name, record in records.items()}
        used = EntrySet.of(references.values())
        highest = await self._write_blocks(found, used, whole=whole)
        fields: list[bytes | int | str] = []
        for name, version, data in found.checkpoints:
            if self._bound is not None:
                data = layout.with_payload(data, self._rebound(records[name].payload))
            fields += [f"c{version}", data]
        for record_name, value in found.records:
            if self._bound is not None:
                number, _, payload = value.partition(b" ")
                value = number + b" " + self._rebound(payload)
            fields += [b"r" + record_name, value]
        fields += ["n", max(version for _, version, _ in found.checkpoints), "k", highest, "q", found.record_count]
        if found.expires_at:
            fields += ["x", found.expires_at]
        # Last, for without an epoch there is no thread.
        await self._stage([*fields, "e", new_epoch()])

    async def install(self, found: Source, *, overwrite: bool, now: int, keys: Sequence[bytes]) -> list[bytes]:
        """Put the copy in its place; the answer is that of ``install.lua``."""
        arguments: list[Any] = [self.dest.thread_id, now, int(overwrite), found.expires_at]
        for name, version, data in found.checkpoints:
            arguments += [name, version, layout.read(data).terms]
        reply: list[bytes] = await self.server.run(
            "install", [*keys, *self.keys.copy(self.dest, self.token)], *arguments, again=False
        )
        return reply

    @property
    def _bound(self) -> Codec | None:
        """The codec, if what it made for one thread cannot be read for another."""
        return self.codec if self.codec is not None and self.codec.bound else None

    def _references(self, checkpoint_id: str, record: layout.Record) -> References:
        try:
            return record.references()
        except DamagedError as e:
            raise CorruptCheckpointError(self.source.thread_id, checkpoint_id, str(e)) from e

    async def _write_blocks(self, found: Source, used: EntrySet, *, whole: bool) -> int:
        numbers = [n for first, last in used.blocks() for n in range(first, last + 1)]
        highest = 0
        for start in range(0, len(numbers), _AT_A_TIME):
            some = numbers[start : start + _AT_A_TIME]
            keys = self.keys.thread(self.source)
            # What a request carries is kept small by asking for the sizes first.
            sizes = await self.server.run("blocks", keys, *[f"l{n}" for n in some])
            for part in _parts(some, sizes[3:]):
                reply = await self.server.run("blocks", keys, *[f"p{n}" for n in part])
                if reply[1] != found.removals or int(reply[2] or 0) != found.epoch:
                    raise ChangedError
                fields: list[bytes | int | str] = []
                for number, payload in zip(part, reply[3:], strict=True):
                    kept = self._part(payload, used, whole=whole) if payload else None
                    if kept:
                        fields += [f"b{number}", kept]
                        highest = number
                if fields:
                    await self._stage(fields)
        return highest

    def _part(self, payload: bytes, used: EntrySet, *, whole: bool) -> bytes | None:
        """What the copy has of a block."""
        names = ThreadName(*self.source), ThreadName(*self.dest)
        try:
            if not whole:
                unused = _everything(payload, self.codec, names[0]).minus(used)
                left = payloads.strip(payload, unused, self.codec, names[0])
                if left is None:
                    return None
                payload = left
            return payload if self._bound is None else payloads.rebind(payload, self._bound, *names)
        except DamagedError as e:
            raise CorruptCheckpointError(self.source.thread_id, None, f"a block cannot be copied: {e}") from e
        except UnknownFormatError as e:
            raise UnsupportedFormatError(self.source.thread_id, None, f"a block cannot be copied: {e}") from e

    def _rebound(self, payload: bytes) -> bytes:
        assert self._bound is not None
        return frames.rebind_one(payload, self._bound, ThreadName(*self.source), ThreadName(*self.dest))

    async def _stage(self, fields: Sequence[bytes | int | str]) -> None:
        keys = self.keys.copy(self.dest, self.token)
        some: list[bytes | int | str] = []
        size = 0
        for at in range(0, len(fields), 2):
            some += fields[at : at + 2]
            size += len(fields[at + 1]) if isinstance(fields[at + 1], (bytes, str)) else 8  # type: ignore[arg-type]
            if size > _PIECE or len(some) > 2 * _AT_A_TIME:
                await self.server.run("stage", keys, *some)
                some, size = [], 0
        if some:
            await self.server.run("stage", keys, *some)


def _parts(numbers: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Blocks in groups that are of about the same number of bytes."""
    parts: list[list[int]] = []
    total = _PIECE
    for number, size in zip(numbers, sizes, strict=True):
        if total >= _PIECE:
            parts.append([])
            total = 0
        parts[-1].append(number)
        total += size
    return parts


def _everything(payload: bytes, codec: Codec | None, name: ThreadName) -> EntrySet:
    """All entries of a block."""
    return EntrySet.of(
        [
            References({number: [Range(f.number, f.number)] for number, _ in f.counts})
            for f in payloads.read(payload, codec, name)
        ]
    )
