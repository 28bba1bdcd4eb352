"""Threads in this process's memory: for tests, and for programs that need no more."""

from __future__ import annotations

from locus_store.backends.memory.backend import MemoryBackend, MemoryCheckpointer
from locus_store.backends.memory.driver import MemoryDriver

__all__ = ["MemoryBackend", "MemoryCheckpointer", "MemoryDriver"]
