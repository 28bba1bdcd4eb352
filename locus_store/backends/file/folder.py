"""A thread's folder as it is at one moment: what is in it, and what of that counts."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from contextlib import suppress
from typing import NamedTuple

from locus_store.backends.file import formats, names
from locus_store.backends.file.formats import Checkpoint, Thread
from locus_store.backends.file.names import THREAD_FILE, Block
from locus_store.core.driver import Info, Key
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.references import References

_TICK = 20_000_000
_ID = len(names.checkpoint(0, ""))
# Linux lists as many bytes of names and entries in one step.
_ONE_STEP = 30_000
_ENTRY = 28


SETTLED = 2_500_000_000
"""Nanoseconds after which a folder's time of change would differ if it changed again, on any file system."""


class Times(NamedTuple):
    """When a thread was written last, and when it expires."""

    updated_at: int
    expires_at: int | None


class View:
    """What a thread's folder holds.

    It may be made without a lock; `unchanged` tells afterwards whether all that was read through it belongs together.

    Args:
        path: The folder.
        key: Whose folder it is.
        locked: Whether the thread's lock is held, so that nothing can change.

    Raises:
        FileNotFoundError: There is no such folder.
    """

    def __init__(self, path: str, key: Key, *, locked: bool = False) -> None:
        self.path = path
        self.key = key
        self.thread: Thread | None = None
        self._thread_file = self._read_thread_file()
        if self._thread_file is not None:
            with suppress(DamagedError):  # all but the epoch can be told from the other files
                self.thread = Thread.load(self._thread_file)
        self.listing = names.sort_out(os.listdir(path) if locked else _list(path))
        self.checkpoints = self.listing.checkpoints
        self.hidden: list[str] = []
        self.pending: str | None = None
        self._hide()
        self._headers: dict[str, Checkpoint] = {}
        self._times: Times | None = None
        self._by_id: dict[str, str] | None = None

    def _read_thread_file(self) -> bytes | None:
        try:
            return formats.read(os.path.join(self.path, THREAD_FILE))
        except FileNotFoundError:
            return None

    def _hide(self) -> None:
        thread = self.thread
        if thread is None or not thread.hidden:
            return
        listing = self.listing
        if thread.when is not None and thread.when not in listing.checkpoints:
            self.pending = thread.when
            return
        gone = set(thread.hidden)
        self.hidden = [n for n in (*listing.checkpoints, *listing.records) if n in gone]
        if self.hidden:
            self.checkpoints = [n for n in listing.checkpoints if n not in gone]

    def add(self, name: str, checkpoint: Checkpoint) -> None:
        """Take note of a checkpoint that was added, and of its block."""
        if self.checkpoints is not self.listing.checkpoints:
            self.checkpoints.append(name)
        self.listing.checkpoints.append(name)
        if checkpoint.own_block:
            self.listing.blocks.append(Block(checkpoint.own_block, checkpoint.own_block))
        self._headers = {name: checkpoint}
        self._times = Times(checkpoint.updated_at, checkpoint.expires_at)
        if self._by_id is not None:
            self._by_id[names.id_part(name)] = name

    def unchanged(self) -> bool:
        """Whether what was read since this view was made is of one moment.

        Blocks are rewritten, and checkpoints replaced in place or removed, only after ``thread.json`` was changed to
        something that it never was before. All else is only ever added, so it is enough to look at that file again.
        """
        if self._read_thread_file() != self._thread_file:
            return False
        return self.pending is None or not os.path.exists(os.path.join(self.path, self.pending))

    # ----------------------------------------------------------------------------------------------------- the thread

    @property
    def found(self) -> bool:
        """Whether there is anything at all; a folder that is just being made is empty."""
        return self._thread_file is not None or bool(self.listing.checkpoints or self.listing.records)

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint, expired or not."""
        return bool(self.checkpoints)

    @property
    def records(self) -> list[str]:
        """The files of records."""
        return [n for n in self.listing.records if n not in self.hidden]

    @property
    def epoch(self) -> int:
        """The thread's epoch; 0, which no thread has, if it cannot be told."""
        return self.thread.epoch if self.thread else 0

    @property
    def version(self) -> int:
        """The highest version that was ever given out."""
        listed = names.version_of(self.listing.checkpoints[-1]) if self.listing.checkpoints else 0
        return max(listed, self.thread.version if self.thread else 0)

    @property
    def block_count(self) -> int:
        """The highest number of a block that was ever given out."""
        listed = self.listing.blocks[-1].last if self.listing.blocks else 0
        return max(listed, self.thread.block_count if self.thread else 0)

    @property
    def times(self) -> Times:
        """When the thread was written last, and when it expires."""
        if self._times is None:
            self._times = self._find_times()
        return self._times

    def _find_times(self) -> Times:
        thread, head = self.thread, self.head
        if head is None or (thread and names.version_of(head) <= thread.version):
            return Times(thread.updated_at, thread.expires_at) if thread else Times(0, None)
        try:
            header = self.header(head)
        except (DamagedError, UnknownFormatError):
            written = os.stat(os.path.join(self.path, head)).st_mtime_ns // 1000
            return Times(max(written, thread.updated_at), thread.expires_at) if thread else Times(written, None)
        return Times(header.updated_at, header.expires_at)

    def expired(self, now: int) -> bool:
        """Whether the thread's time is over."""
        expires_at = self.times.expires_at
        return expires_at is not None and expires_at <= now

    # ------------------------------------------------------------------------------------------------ its checkpoints

    @property
    def head(self) -> str | None:
        """The file of the newest checkpoint."""
        return self.checkpoints[-1] if self.checkpoints else None

    def find(self, checkpoint_id: str | None) -> str | None:
        """The file of a checkpoint (None: the newest), if it is there."""
        if checkpoint_id is None:
            return self.head
        if self._by_id is None:
            self._by_id = {n[_ID:]: n for n in self.checkpoints}
        return self._by_id.get(names.encode(checkpoint_id))

    def at(self, version: int) -> str | None:
        """The file of the checkpoint with a version, if it is there."""
        prefix = names.checkpoint(version, "")
        i = bisect_left(self.checkpoints, prefix)
        return self.checkpoints[i] if i < len(self.checkpoints) and self.checkpoints[i].startswith(prefix) else None

    def below(self, version: int | None) -> list[str]:
        """The files of the checkpoints with versions below one, newest first."""
        checkpoints = self.checkpoints
        if version is not None:
            checkpoints = checkpoints[: bisect_left(checkpoints, names.checkpoint(version, ""))]
        return checkpoints[::-1]

    def header(self, name: str) -> Checkpoint:
        """The header of a checkpoint's file.

        Raises:
            DamagedError: It cannot be read.
        """
        found = self._headers.get(name)
        if found is None:
            found = self._headers[name] = Checkpoint.read_header(os.path.join(self.path, name))
        return found

    def references(self, name: str) -> References | None:
        """What a checkpoint refers to, or None if it is damaged."""
        try:
            return self.header(name).references()
        except DamagedError:
            return None

    def info(self, name: str) -> Info:
        """A checkpoint for a listing; of a damaged one, what its name tells."""
        updated_at = self.times.updated_at
        try:
            header = self.header(name)
        except (DamagedError, UnknownFormatError):
            status = os.stat(os.path.join(self.path, name))
            created_at = min(status.st_mtime_ns // 1000, updated_at)
            version = names.version_of(name)
            return Info(
                self.key.thread_id, self.id_of(name), version, None, created_at, None, status.st_size, updated_at
            )
        parent = None if header.parent is None else self.at(header.parent)
        return Info(
            self.key.thread_id,
            header.checkpoint_id,
            header.version,
            None if parent is None else self.id_of(parent),
            header.created_at,
            header.metadata,
            header.size,
            updated_at,
        )

    def id_of(self, name: str) -> str:
        """The id of a checkpoint by its file's name, for which the file is opened only if the name was cut."""
        part = names.id_part(name)
        known = names.decode(part)
        if known is not None:
            return known
        try:
            return self.header(name).checkpoint_id
        except (DamagedError, UnknownFormatError):
            return part

    # ------------------------------------------------------------------------------------------------------ its blocks

    def blocks(self, first: int, last: int) -> list[Block]:
        """The files of the blocks from one number to another."""
        return [b for b in self.listing.blocks if b.first <= last and first <= b.last] if last else []

    def read_blocks(self, first: int, last: int) -> list[bytes]:
        """The payloads of the blocks from one number to another."""
        return [formats.read(os.path.join(self.path, b.name)) for b in self.blocks(first, last)]


def _list(path: str) -> list[str]:
    """The names in a folder, none missed because of another that came or went meanwhile."""
    before = os.stat(path).st_mtime_ns
    # Most systems tell times of change to some milliseconds; where only round figures are told, it may be seconds.
    settled = time.time_ns() - before > (_TICK if before % 1000 else SETTLED)
    found = os.listdir(path)
    while sum(map(len, found)) + _ENTRY * len(found) > _ONE_STEP:
        if settled and os.stat(path).st_mtime_ns == before:
            break
        again = os.listdir(path)
        if again == found:
            break
        found = again
    return found
