"""What stands in the files: a JSON object with a checksum, on one line or indented, and then bytes as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from locus_store.core.driver import Plan
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.references import References

FORMAT = 1
_FIRST_READ = 4096
_NEXT_READ = 1 << 18


def dump(fields: dict[str, Any], *, pretty: bool) -> bytes:
    """A JSON object, and the end of line (or, if it is indented, the empty line) that ends it."""
    fields = {"format": FORMAT, **fields, "checksum": "        "}
    layout: dict[str, Any] = {"indent": 1} if pretty else {"separators": (",", ":")}
    try:
        text = json.dumps(fields, ensure_ascii=False, **layout).encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8 are lone surrogates here
        text = json.dumps(fields, ensure_ascii=True, **layout).encode()
    at = text.rindex(b'"checksum"')
    checksum = b"%08x" % crc32(text[:at])
    return text[:at] + text[at:].replace(b" " * 8, checksum) + (b"\n\n" if pretty else b"\n")


def _end(data: bytes) -> int:
    """Where the bytes after the object begin; -1 if its end is not there."""
    if data.startswith(b"{\n"):
        return data.find(b"\n}\n\n") + 4 if b"\n}\n\n" in data else -1
    return data.find(b"\n") + 1 or -1


def load(data: bytes) -> tuple[dict[str, Any], int]:
    """Read an object.

    Returns:
        Its fields, and where the bytes after it begin.

    Raises:
        DamagedError: It is not what `dump` wrote.
        UnknownFormatError: A newer release wrote it.
    """
    end = _end(data)
    if end < 0:
        raise DamagedError("a file's header has no end")
    try:
        text = data[:end]
        fields = json.loads(text)
        if int(fields["format"]) != FORMAT:
            raise UnknownFormatError(f"format {int(fields['format'])}, this release reads {FORMAT}")
        if crc32(text[: text.rindex(b'"checksum"')]) != int(fields["checksum"], 16):
            raise DamagedError("the checksum of a file's header differs")
    except (DamagedError, UnknownFormatError):
        raise
    except (ValueError, TypeError, LookupError, RecursionError) as e:
        raise DamagedError("a file's header does not parse") from e
    return fields, end


def read(path: str) -> bytes:
    """All bytes of a file."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def read_header(path: str) -> dict[str, Any]:
    """The fields of the object that a file begins with, without reading what follows."""
    with open(path, "rb", buffering=0) as file:
        data = file.read(_FIRST_READ)
        while _end(data) < 0 and (more := file.read(_NEXT_READ)):
            data += more
    return load(data)[0]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The header of a checkpoint's file.

    Attributes:
        updated_at: When the save was made; later than ``created_at`` if it replaced the checkpoint in place.
        expires_at: What the save set for the thread.
    """

    checkpoint_id: str
    version: int
    parent: int | None
    stamp: bytes
    created_at: int
    updated_at: int
    expires_at: int | None
    own_block: int
    first_block: int
    last_block: int
    ranges: bytes
    metadata: bytes | None
    terms: frozenset[bytes]
    size: int

    @classmethod
    def of(
        cls, plan: Plan, *, version: int, parent: int | None, created_at: int, updated_at: int, own_block: int
    ) -> Checkpoint:
        """The checkpoint that a plan makes."""
        return cls(
            plan.checkpoint_id,
            version,
            parent,
            plan.stamp,
            created_at,
            updated_at,
            plan.expires_at,
            own_block,
            plan.low or own_block,
            max(plan.high or 0, own_block),
            plan.ranges,
            plan.metadata,
            frozenset(plan.terms),
            plan.size,
        )

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Checkpoint:
        """Read a header's fields."""
        metadata = fields["metadata"]
        return cls(
            fields["checkpoint_id"],
            fields["version"],
            fields["parent"],
            bytes.fromhex(fields["stamp"]),
            fields["created_at"],
            fields["updated_at"],
            fields["expires_at"],
            fields["own_block"],
            fields["blocks"][0],
            fields["blocks"][1],
            _bytes(fields["ranges"]),
            None if metadata is None else _bytes(metadata),
            frozenset(map(bytes.fromhex, fields["terms"])),
            fields["size"],
        )

    @classmethod
    def read_header(cls, path: str) -> Checkpoint:
        """Read a checkpoint without its payload."""
        fields = read_header(path)
        try:
            return cls.parse(fields)
        except (ValueError, TypeError, LookupError) as e:
            raise DamagedError("a checkpoint's header lacks something") from e

    @classmethod
    def read(cls, path: str) -> tuple[Checkpoint, bytes]:
        """Read a checkpoint and its payload."""
        data = read(path)
        fields, end = load(data)
        try:
            checkpoint, size = cls.parse(fields), int(fields["payload"])
        except (ValueError, TypeError, LookupError) as e:
            raise DamagedError("a checkpoint's header lacks something") from e
        payload = data[end:]
        if len(payload) != size:
            raise DamagedError(f"{len(payload)} bytes where {size} were written")
        return checkpoint, payload

    def dump(self, payload_size: int, *, pretty: bool) -> bytes:
        """The header as bytes."""
        fields = {
            "checkpoint_id": self.checkpoint_id,
            "version": self.version,
            "parent": self.parent,
            "stamp": self.stamp.hex(),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "expires_at": self.expires_at,
            "metadata": None if self.metadata is None else _text(self.metadata),
            "terms": sorted(t.hex() for t in self.terms),
            "size": self.size,
            "own_block": self.own_block,
            "blocks": [self.first_block, self.last_block],
            "ranges": _text(self.ranges),
            "payload": payload_size,
        }
        return dump(fields, pretty=pretty)

    def references(self) -> References:
        """What the checkpoint refers to."""
        try:
            return References.parse(self.own_block, self.ranges)
        except ValueError as e:
            raise DamagedError("a checkpoint's ranges do not parse") from e


@dataclass(frozen=True, slots=True)
class Thread:
    """The contents of ``thread.json``.

    It is written when a thread is made and when something is removed or replaced, not at every save: the newest
    checkpoint's own header says more if its version is above ``version``.

    Attributes:
        version: The highest version given out when this was written.
        block_count: The highest block's number given out when this was written.
        updated_at: The thread's last write when this was written.
        expires_at: The thread's expiry when this was written.
        hidden: Files that are being removed: nobody sees them any more.
        when: The file whose appearance hides them, or None if they are hidden already.
        loose: What a checkpoint that is being replaced in place referred to: own block and ranges.
    """

    tenant: str
    thread_id: str
    epoch: int
    version: int = 0
    block_count: int = 0
    updated_at: int = 0
    expires_at: int | None = None
    hidden: tuple[str, ...] = ()
    when: str | None = None
    loose: tuple[int, bytes] | None = None

    @classmethod
    def load(cls, data: bytes) -> Thread:
        """Read the file's bytes."""
        fields, _ = load(data)
        try:
            return cls(
                fields["tenant"],
                fields["thread_id"],
                fields["epoch"],
                fields["version"],
                fields["block_count"],
                fields["updated_at"],
                fields["expires_at"],
                tuple(fields["hidden"]),
                fields["when"],
                (fields["loose"][0], _bytes(fields["loose"][1])) if fields["loose"] else None,
            )
        except (ValueError, TypeError, LookupError) as e:
            raise DamagedError("thread.json lacks something") from e

    def dump(self, *, pretty: bool) -> bytes:
        """The file's bytes."""
        fields = {
            "tenant": self.tenant,
            "thread_id": self.thread_id,
            "epoch": self.epoch,
            "version": self.version,
            "block_count": self.block_count,
            "updated_at": self.updated_at,
            "expires_at": self.expires_at,
            "hidden": list(self.hidden),
            "when": self.when,
            "loose": [self.loose[0], _text(self.loose[1])] if self.loose else None,
        }
        return dump(fields, pretty=pretty)


def dump_records(scope: str, items: dict[str, bytes], *, pretty: bool) -> bytes:
    """The file of one scope's records."""
    body = b"".join(items.values())
    fields = {"scope": scope, "keys": [[k, len(p)] for k, p in items.items()], "body": crc32(body)}
    return dump(fields, pretty=pretty) + body


def read_records(path: str) -> tuple[str, dict[str, bytes]]:
    """The scope in a file of records, and the records in the order of first insertion."""
    data = read(path)
    fields, at = load(data)
    try:
        if crc32(data[at:]) != fields["body"]:
            raise DamagedError("the checksum of a file of records differs")
        items: dict[str, bytes] = {}
        for key, size in fields["keys"]:
            items[key] = data[at : at + size]
            at += size
        return str(fields["scope"]), items
    except (ValueError, TypeError, LookupError) as e:
        raise e if isinstance(e, DamagedError) else DamagedError("a file of records does not parse") from e
