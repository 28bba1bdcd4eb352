"""Threads as folders of files that a person can read, and that several processes may use at once."""

from __future__ import annotations

from locus_store.backends.file.backend import FileBackend, FileCheckpointer
from locus_store.backends.file.driver import FileDriver

__all__ = ["FileBackend", "FileCheckpointer", "FileDriver"]
