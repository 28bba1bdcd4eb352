"""Writing such that a file is there whole or not at all, and stays there; the only module that changes the disk."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator

from locus_store.backends.file.names import LOCKS, TEMPORARY

_ABANDONED = 3600.0
"""Seconds after which a temporary file is nobody's any more."""


class Disk:
    """Changes below one folder.

    Args:
        base: The folder of the store, as an absolute path.
        fsync: Whether to wait until what was written is on the disk.
    """

    def __init__(self, base: str, *, fsync: bool) -> None:
        self.base = base
        self.fsync = fsync
        self.temporary = os.path.join(base, TEMPORARY)

    def prepare(self) -> None:
        """Make the store's own folders."""
        for name in (TEMPORARY, LOCKS):
            self.make_folder(os.path.join(self.base, name))

    def has_folder(self, path: str) -> bool:
        """Whether there is a folder; a disk that does not answer is an error, not a no."""
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            return False

    def make_folder(self, path: str) -> None:
        """Make a folder that is to last, and those above it."""
        if self.has_folder(path):
            return
        above = os.path.dirname(path)
        self.make_folder(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        self.sync(above)

    def unused(self, what: str) -> str:
        """A path for something temporary that no other call of any process uses."""
        return os.path.join(self.temporary, f"{what}-{os.getpid()}-{secrets.token_hex(8)}")

    def write(self, path: str, *parts: bytes) -> None:
        """Put a file in place whole. That its name lasts is up to a `sync` afterwards."""
        temporary = self.unused("write")
        try:
            self._write_new(temporary, parts)
        except FileNotFoundError:
            self.prepare()
            self._write_new(temporary, parts)
        try:
            os.replace(temporary, path)
        except BaseException:
            self.unlink(temporary)
            raise

    def write_into(self, path: str, *parts: bytes) -> None:
        """Write a file into a folder out of sight; `install` waits until it is on the disk."""
        self._write_new(path, parts, wait=False)

    def _write_new(self, path: str, parts: tuple[bytes, ...], *, wait: bool = True) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            try:
                left = memoryview(b"".join(parts))
                while left:
                    left = left[os.write(fd, left) :]
                if self.fsync and wait:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except BaseException:
            self.unlink(path)
            raise

    def sync(self, path: str) -> None:
        """Wait until the names in a folder (or the bytes of a file) are on the disk."""
        if not self.fsync:
            return
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(fd)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems do this by themselves
                raise
        finally:
            os.close(fd)

    def unlink(self, path: str) -> None:
        """Remove a file that may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def discard(self, path: str) -> None:
        """Remove a folder in one step: it is renamed out of sight first."""
        trash = self.unused("trash")
        try:
            os.rename(path, trash)
        except FileNotFoundError:
            self.prepare()
            if not self.has_folder(path):
                return
            os.rename(path, trash)
        self.sync(os.path.dirname(path))
        self._remove_tree(trash)

    def install(self, built: str, path: str) -> None:
        """Put a folder that was built out of sight in the place of another one, or of none."""
        for name in os.listdir(built):
            self.sync(os.path.join(built, name))
        self.sync(built)
        if not self.has_folder(path):
            os.rename(built, path)
        elif not _exchange(built, path):
            self.discard(path)  # a crash between these two leaves neither
            os.rename(built, path)
        self.sync(os.path.dirname(path))
        if self.has_folder(built):
            self._remove_tree(built)

    def remove_empty(self, path: str) -> None:
        """Remove a folder in which, for long, there is nothing."""
        with contextlib.suppress(OSError):
            if time.time() - os.stat(path).st_mtime > _ABANDONED:
                os.rmdir(path)

    def sweep(self) -> None:
        """Remove what calls that died have left."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.temporary) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if not entry.name.startswith("trash-") and time.time() - entry.stat().st_mtime < _ABANDONED:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        self._remove_tree(entry.path)
                    else:
                        os.unlink(entry.path)

    @contextlib.contextmanager
    def folder_out_of_sight(self) -> Iterator[str]:
        """A new folder to build something in; what is left in it afterwards is removed."""
        path = self.unused("copy")
        try:
            os.mkdir(path)
        except FileNotFoundError:
            self.prepare()
            os.mkdir(path)
        try:
            yield path
        finally:
            if self.has_folder(path):
                self._remove_tree(path)

    def _remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:  # somebody else sweeps, too
            shutil.rmtree(path, ignore_errors=True)


def _exchange(a: str, b: str) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    name, arguments = {
        "linux": ("renameat2", (-100, os.fsencode(a), -100, os.fsencode(b), 2)),
        "darwin": ("renamex_np", (os.fsencode(a), os.fsencode(b), 2)),
    }.get(sys.platform, ("", ()))
    function = getattr(ctypes.CDLL(None), name, None) if name else None
    return function is not None and function(*arguments) == 0
