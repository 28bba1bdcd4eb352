"""What is in the objects: a header that a ranged read gets without the rest, then the document, compressed.

8 bytes   ``locusob`` and the format, a digit
4 bytes   length of the header
4 bytes   CRC-32 of the header
…         the header: a JSON object
…         the payload and the block, compressed together if that makes them smaller
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from locus_store.backends.objects import names
from locus_store.backends.objects.names import COPIED
from locus_store.backends.objects.removed import NOTHING_REMOVED, Removed
from locus_store.core import frames
from locus_store.core.driver import Info, Plan
from locus_store.core.frames import DamagedError, UnknownFormatError

FIRST_READ = 8192
"""Bytes that are read to get a header; more only if it is longer."""
LEVEL = 1
"""Of zlib: 1 takes a quarter of the time of 6, and what comes out is a fifth larger (docs/objects.md)."""
OWN = 1
"""The number of a checkpoint's own block. It has no other."""
RECENT = 8
"""How many records before it each one names."""
_START = struct.Struct(">8sII")
_MAGIC, _FORMAT = b"locusob", b"1"


class Parent(NamedTuple):
    """The checkpoint that another one was made after.

    Attributes:
        position: Where it is, and stays as long as it is there.
    """

    position: int
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint without its document, as `Plan` has it.

    Attributes:
        block: Bytes of its own block, 0 if it has none.
        payload: Bytes of the rest.
        packed: Whether the two are compressed.
    """

    checkpoint_id: str
    version: int
    stamp: bytes
    parent: Parent | None
    created_at: int
    metadata: bytes | None
    terms: tuple[bytes, ...]
    size: int
    ranges: bytes
    payload: int = 0
    block: int = 0
    packed: bool = False

    @classmethod
    def of(cls, plan: Plan, *, version: int, parent: Parent | None, created_at: int) -> Checkpoint:
        """The checkpoint that a plan makes."""
        return cls(
            plan.checkpoint_id,
            version,
            plan.stamp,
            parent,
            created_at,
            plan.metadata,
            tuple(plan.terms),
            plan.size,
            plan.ranges,
        )

    def info(self, thread_id: str, *, parent_is_there: bool, updated_at: int) -> Info:
        """As a listing shows it."""
        parent = self.parent.checkpoint_id if self.parent and parent_is_there else None
        return Info(
            thread_id,
            self.checkpoint_id,
            self.version,
            parent,
            self.created_at,
            self.metadata,
            self.size,
            updated_at,
        )


@dataclass(frozen=True, slots=True)
class State:
    """A thread as it is after a record of its log; only that of the newest record counts.

    Attributes:
        write: A token; tells an own record from that of somebody else who was faster.
        life: A token that was drawn when the thread was made.
        first: The number of the first record of this life; what is before it counts no more.
        last_version: The highest version that was given out.
        updated_at: When the thread was written last, 0 if it never had a checkpoint.
        mark: Random; the thread's marker has it in its key. Empty if there is none.
        hides: Positions of checkpoints that were removed, and perhaps not deleted yet.
        swaps: Tokens of what was replaced in place, by position.
        part: The token of copied checkpoints, or None.
        gone: Whether the thread was deleted, and perhaps not all of it yet.
        removed: Numbers of this life's records that were removed.
        recent: The ends of `write` of the records before, the newest last: which others this one goes on from.
    """

    write: str
    life: str
    first: int
    last_version: int = 0
    updated_at: int = 0
    mark: str = ""
    expires_at: int | None = None
    hides: frozenset[int] = frozenset()
    swaps: Mapping[int, str] = field(default_factory=dict)
    part: str | None = None
    gone: bool = False
    removed: Removed = NOTHING_REMOVED
    recent: tuple[str, ...] = ()

    @classmethod
    def new(cls, now: int, first: int, expires_at: int | None = None) -> State:
        """A thread that is made now, and has nothing yet."""
        return cls(names.token(now), names.token(now), first, expires_at=expires_at)

    def after(self, before: State | None) -> State:
        """This state, as that of the record that follows one with a state."""
        if before is None:
            return self
        recent = (*before.recent, before.short)[-RECENT:]
        removed = before.removed.with_(n for n in self.hides if n > 0) if before.life == self.life else NOTHING_REMOVED
        return replace(self, removed=removed, recent=recent)

    @property
    def short(self) -> str:
        """The end of `write`: enough to tell a record from others that might have been in its place."""
        return self.write[-8:]

    @property
    def epoch(self) -> int:
        """The thread's epoch: it has one for its whole life, since no save builds on what another one stored."""
        return int(self.life[-16:], 16) >> 1 | 1


@dataclass(frozen=True, slots=True)
class Record:
    """What is in one object.

    Attributes:
        checkpoint: The newest checkpoint of the thread, if it is the newest record; None if there is none.
        body: The document, as it is stored; None if only the header was read.
    """

    state: State
    checkpoint: Checkpoint | None
    body: bytes | None = None

    def dump(self) -> bytes:
        """The object."""
        state, checkpoint = self.state, self.checkpoint
        fields: dict[str, Any] = {
            "write": state.write,
            "life": state.life,
            "first": state.first,
            "last": state.last_version,
            "updated": state.updated_at,
            "mark": state.mark,
            "expires": state.expires_at,
            "hides": sorted([_near(p, state.first) for p in state.hides]),
            "swaps": sorted([(_near(p, state.first), token) for p, token in state.swaps.items()]),
            "part": state.part,
            "gone": state.gone,
            "removed": [[first - state.first, last - state.first] for first, last in state.removed.ranges],
            "recent": state.recent,
        }
        if checkpoint is not None:
            fields |= {
                "id": checkpoint.checkpoint_id,
                "version": checkpoint.version,
                "stamp": checkpoint.stamp.hex(),
                "parent": checkpoint.parent,
                "created": checkpoint.created_at,
                "metadata": None if checkpoint.metadata is None else _text(checkpoint.metadata),
                "terms": base64.b64encode(b"".join(checkpoint.terms)).decode(),
                "size": checkpoint.size,
                "ranges": _text(checkpoint.ranges),
                "payload": checkpoint.payload,
                "block": checkpoint.block,
                "packed": checkpoint.packed,
            }
        header = json.dumps(fields, separators=(",", ":")).encode()
        start = _START.pack(_MAGIC + _FORMAT, len(header), zlib.crc32(header))
        return b"".join((start, header, self.body or b""))

    @classmethod
    def of(cls, checkpoint: Checkpoint, state: State, payload: bytes, block: bytes | None) -> Record:
        """A record with a new document; the block has no number in front yet."""
        return cls.pack(checkpoint, state, payload, b"" if block is None else frames.numbered(OWN, block))

    @classmethod
    def pack(cls, checkpoint: Checkpoint, state: State, payload: bytes, block: bytes) -> Record:
        """A record with a document; the block is as `Stored` has it, and empty if there is none."""
        body = payload + block
        packed = zlib.compress(body, LEVEL)
        small = len(packed) < len(body)
        checkpoint = replace(checkpoint, payload=len(payload), block=len(block), packed=small)
        return cls(state, checkpoint, packed if small else body)

    def document(self) -> tuple[bytes, list[bytes]]:
        """The payload, and the block in a list or none.

        Raises:
            DamagedError: They cannot be read.
        """
        checkpoint = self.checkpoint
        assert checkpoint is not None
        assert self.body is not None
        body = self.body
        if checkpoint.packed:
            try:
                body = zlib.decompress(body)
            except zlib.error as e:
                raise DamagedError("what is stored does not decompress") from e
        if len(body) != checkpoint.payload + checkpoint.block:
            raise DamagedError("what is stored is shorter or longer than it was")
        return body[: checkpoint.payload], [body[checkpoint.payload :]] if checkpoint.block else []


def header_end(data: bytes) -> int:
    """Where an object's header ends, as its beginning tells; 0 if that is damaged."""
    if len(data) < _START.size or not data.startswith(_MAGIC):
        return 0
    return _START.size + int(_START.unpack_from(data)[1])


def load(data: bytes, *, whole: bool) -> Record:
    """Read an object, or the beginning of one that has all of the header.

    Raises:
        DamagedError: It is not what was written.
        UnknownFormatError: A newer release wrote it.
    """
    end = header_end(data)
    if not end:
        raise DamagedError("an object does not begin as ours do")
    if data[len(_MAGIC) : len(_MAGIC) + 1] != _FORMAT:
        found = data[len(_MAGIC) : len(_MAGIC) + 1].decode("latin-1")
        raise UnknownFormatError(f"objects of format {found}, this release reads {_FORMAT.decode()}")
    header = data[_START.size : end]
    if zlib.crc32(header) != _START.unpack_from(data)[2]:
        raise DamagedError("the checksum of an object's header differs")
    try:
        fields = json.loads(header)
        first = int(fields["first"])
        state = State(
            fields["write"],
            fields["life"],
            first,
            fields["last"],
            fields["updated"],
            fields["mark"],
            fields["expires"],
            frozenset([_far(p, first) for p in fields["hides"]]),
            {_far(p, first): token for p, token in fields["swaps"]},
            fields["part"],
            fields["gone"],
            Removed.load([(first + low, first + high) for low, high in fields["removed"]]),
            tuple(fields["recent"]),
        )
        return Record(state, _checkpoint(fields) if "id" in fields else None, data[end:] if whole else None)
    except (ValueError, TypeError, LookupError, RecursionError) as e:
        raise DamagedError("an object's header does not parse") from e


def _checkpoint(fields: dict[str, Any]) -> Checkpoint:
    terms = base64.b64decode(fields["terms"])
    return Checkpoint(
        fields["id"],
        fields["version"],
        bytes.fromhex(fields["stamp"]),
        None if fields["parent"] is None else Parent(*fields["parent"]),
        fields["created"],
        None if fields["metadata"] is None else _bytes(fields["metadata"]),
        tuple(terms[i : i + 16] for i in range(0, len(terms), 16)),
        fields["size"],
        _bytes(fields["ranges"]),
        fields["payload"],
        fields["block"],
        fields["packed"],
    )


def _near(position: int, first: int) -> int:
    """A position in few digits: that of a record counted from a life's first, that of a copy as minus its version."""
    return position - first if position > 0 else COPIED - position


def _far(near: int, first: int) -> int:
    return first + near if near >= 0 else COPIED - near


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
