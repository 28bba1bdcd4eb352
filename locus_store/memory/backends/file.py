"""The SDK's import path of what is in `locus_store.backends.file`."""

from locus_store.backends.file import FileBackend, FileCheckpointer

__all__ = ["FileBackend", "FileCheckpointer"]
