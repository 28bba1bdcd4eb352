"""The names of folders and files: ids made safe for every file system, numbers that sort as text.

    t-<id>             a folder: a tenant, and in it a thread
    thread.json        what belongs to the thread as a whole
    c<version>-<id>    a checkpoint
    b<number>          a block; b<first>-<last> several that were joined
    r-<scope>          the records of one scope

An id stands in a name with every byte outside ``[a-z0-9_-]`` as ``%`` and two hexadecimal digits: upper case too, so
that ``Thread`` and ``thread`` are two names on a disk that folds case. An id that would be too long is cut and
followed by ``~`` and its SHA-256; the id itself stands inside the file.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

THREAD_FILE = "thread.json"
TEMPORARY = ".tmp"
LOCKS = ".locks"

_LONGEST = 180
_BEGINNING = 110
_BYTES = [chr(b) if chr(b) in "abcdefghijklmnopqrstuvwxyz0123456789_-" else f"%{b:02x}" for b in range(256)]
_plain = re.compile(r"[a-z0-9_-]*", re.ASCII).fullmatch


@lru_cache(maxsize=4096)
def encode(text: str) -> str:
    """An id, as it stands in a name. Different ids give names that differ by more than case."""
    if len(text) <= _LONGEST and _plain(text):
        return text
    data = text.encode()
    name = "".join([_BYTES[b] for b in data])
    if len(name) <= _LONGEST:
        return name
    return f"{re.sub('%.?$', '', name[:_BEGINNING])}~{sha256(data).hexdigest()}"


def decode(name: str) -> str | None:
    """The id that `encode` was given, or None if it had to be cut."""
    if "~" in name:
        return None
    if "%" not in name:
        return name
    try:
        return unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        return None


def folder(name: str) -> str:
    """The folder of a tenant or a thread."""
    return f"t-{encode(name)}"


def checkpoint(version: int, checkpoint_id: str) -> str:
    """The file of a checkpoint; these names sort by version."""
    return f"c{version:012d}-{encode(checkpoint_id)}"


def records(scope: str) -> str:
    """The file of a scope's records."""
    return f"r-{encode(scope)}"


def version_of(checkpoint_name: str) -> int:
    """The version in the name of a checkpoint's file."""
    return int(checkpoint_name[1:13])


def id_part(checkpoint_name: str) -> str:
    """The encoded id in the name of a checkpoint's file."""
    return checkpoint_name[14:]


class Block(NamedTuple):
    """The file of one block, or of several that were joined."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"b{self.first:012d}" + ("" if self.first == self.last else f"-{self.last:012d}")

    @classmethod
    def parse(cls, name: str) -> Block:
        """Read the name of a file."""
        first = int(name[1:13])
        return cls(first, int(name[14:26]) if len(name) > 13 else first)


_BLOCK = re.compile(r"b\d{12}(-\d{12})?", re.ASCII).fullmatch


class Listing(NamedTuple):
    """The files of a thread's folder by kind; whatever else lies there is passed over.

    Attributes:
        checkpoints: Oldest version first.
        blocks: In ascending order, disjoint: a single block whose joined file is there too is left out.
        joined: The single blocks that were left out.
        records: In the order of their names.
    """

    checkpoints: list[str]
    blocks: list[Block]
    joined: list[Block]
    records: list[str]


def sort_out(files: list[str]) -> Listing:
    """Tell the files of a thread's folder apart."""
    files = sorted(files)
    checkpoints = [n for n in _between(files, "c0", "c:") if n[13:14] == "-" and n[1:13].isdecimal()]
    found = [Block.parse(name) for name in _between(files, "b0", "b:") if _BLOCK(name)]
    blocks: list[Block] = []
    joined: list[Block] = []
    for block in sorted(found, key=lambda b: (b.first, -b.last)):
        (joined if blocks and block.last <= blocks[-1].last else blocks).append(block)
    return Listing(checkpoints, blocks, joined, _between(files, "r-", "r."))


def _between(names: list[str], low: str, high: str) -> list[str]:
    return names[bisect_left(names, low) : bisect_left(names, high)]
