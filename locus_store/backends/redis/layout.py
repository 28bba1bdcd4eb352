"""From the replies of the scripts to what `locus_store.core.driver` speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from locus_store.backends.redis.shorthand import pack, unpack
from locus_store.core.driver import Info
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.references import References

_HEAD = re.compile(rb"1 (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (-?\d+) (\d+) ([0-9a-f]{32})\n")
_FORMAT = re.compile(rb"(\d{1,9}) ")


class Record(NamedTuple):
    """A checkpoint as it is stored; `payload` and `terms` are empty where the script left them out."""

    parent: int
    own_block: int
    first_block: int
    last_block: int
    created_at: int
    size: int
    stamp: bytes
    ranges: bytes
    metadata: bytes | None
    terms: bytes
    payload: bytes

    def references(self) -> References:
        """What it refers to."""
        try:
            return References.parse(self.own_block, self.ranges)
        except ValueError as e:
            raise DamagedError(str(e)) from e


def read(data: bytes) -> Record:
    """Read a record.

    Raises:
        DamagedError: It is none.
        UnknownFormatError: A newer release wrote it.
    """
    head = _HEAD.match(data)
    if head is None:
        form = _FORMAT.match(data)
        if form and int(form[1]) > 1:
            raise UnknownFormatError(f"format {int(form[1])}, this release reads 1")
        raise DamagedError("a checkpoint's first line does not parse")
    parent, own, first, last, created, size, ranges, metadata, terms = map(int, head.groups()[:-1])
    at = head.end()
    stop = at + ranges
    end = stop + max(metadata, 0)
    return Record(
        parent,
        own,
        first,
        last,
        created,
        size,
        bytes.fromhex(head[10].decode()),
        data[at:stop],
        None if metadata < 0 else data[stop:end],
        data[end : end + 16 * terms],
        unpack(data[end + 16 * terms :]),
    )


def with_payload(data: bytes, payload: bytes) -> bytes:
    """A record with another payload."""
    head = _HEAD.match(data)
    assert head is not None, "a record that was read before"
    ranges, metadata, terms = map(int, head.groups()[6:9])
    return data[: head.end() + ranges + max(metadata, 0) + 16 * terms] + pack(payload)


def infos(thread_id: str, updated_at: int, rows: Sequence[Any]) -> Iterator[Info]:
    """What a script says of checkpoints: id, version, parent and record of each.

    Of a damaged one it tells what is known without the record.
    """
    for at in range(0, len(rows), 4):
        checkpoint_id, version, parent, data = rows[at : at + 4]
        try:
            record = read(data)
        except (DamagedError, UnknownFormatError):
            yield Info(thread_id, checkpoint_id.decode(), int(version), None, updated_at, None, 0, updated_at)
            continue
        yield Info(
            thread_id,
            checkpoint_id.decode(),
            int(version),
            parent.decode() or None,
            record.created_at,
            record.metadata,
            record.size,
            updated_at,
        )


def digests(data: bytes) -> list[bytes]:
    """Term digests that lie one after the other."""
    return [data[at : at + 16] for at in range(0, len(data), 16)]
