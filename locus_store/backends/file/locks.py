"""One writer a thread at a time, between processes and between tasks.

A lock is `fcntl.flock` on one of 256 files, chosen by a hash of the thread's key. The files stay, so that nobody ever
locks one that has just been removed; a process that dies lets go of its locks.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from zlib import crc32

from locus_store.backends.file.disk import Disk
from locus_store.backends.file.names import LOCKS
from locus_store.core.driver import Key
from locus_store.core.errors import StoreBusyError, UnsupportedOperationError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_COUNT = 256


class Locks:
    """The locks of one store.

    Args:
        disk: The store's folder.
        timeout: Seconds to wait at most.
    """

    def __init__(self, disk: Disk, timeout: float) -> None:
        self._folder = os.path.join(disk.base, LOCKS)
        self._prepare = disk.prepare
        self._timeout = timeout
        # Tasks of this process queue here, where they are woken at once; only one of them polls the file.
        self._mine = [threading.Lock() for _ in range(_COUNT)]
        # Each file names who held it last.
        self._token = os.urandom(16)
        self._generations = [0] * _COUNT

    def generation(self, key: Key) -> int:
        """A number that changes when anybody else has held the thread's lock; to be asked while it is held."""
        return self._generations[_slot(key)]

    @contextlib.contextmanager
    def hold(self, *keys: Key) -> Iterator[None]:
        """Hold the locks of some threads.

        Raises:
            StoreBusyError: They were not free in time.
            UnsupportedOperationError: The platform has no such locks.
        """
        if fcntl is None:
            raise UnsupportedOperationError(
                "the file backend", "writing on this platform", "it needs fcntl.flock; use the SQLite backend instead"
            )
        deadline = time.monotonic() + self._timeout
        with contextlib.ExitStack() as held:
            # Whoever needs two takes them in the same order, so that no two wait for each other.
            for slot in sorted({_slot(key) for key in keys}):
                held.enter_context(self._hold(slot, deadline))
            yield

    @contextlib.contextmanager
    def _hold(self, slot: int, deadline: float) -> Iterator[None]:
        if not self._mine[slot].acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._busy()
        try:
            fd = self._open(slot)
            try:
                pause = 0.0003
                while not _try(fd):
                    if time.monotonic() >= deadline:
                        raise self._busy()
                    time.sleep(pause)
                    pause = min(pause * 1.5, 0.01)
                try:
                    if os.pread(fd, 16, 0) != self._token:
                        self._generations[slot] += 1
                        os.pwrite(fd, self._token, 0)
                    yield
                finally:
                    # Closing is not enough: a process that was forked meanwhile has the descriptor, too.
                    fcntl.flock(fd, fcntl.LOCK_UN)
            finally:
                os.close(fd)
        finally:
            self._mine[slot].release()

    def _open(self, slot: int) -> int:
        path = os.path.join(self._folder, f"{slot:02x}")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            self._prepare()
            return os.open(path, flags, 0o666)

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(f"another writer held the thread's lock in {self._folder} for {self._timeout} s")


def _slot(key: Key) -> int:
    return crc32("\0".join(key).encode()) % _COUNT


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
