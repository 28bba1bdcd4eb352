"""The SDK's import path of what is in `locus_store.backends.memory`."""

from locus_store.backends.memory import MemoryBackend, MemoryCheckpointer

__all__ = ["MemoryBackend", "MemoryCheckpointer"]
