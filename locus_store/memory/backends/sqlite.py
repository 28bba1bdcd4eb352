"""The SDK's import path of what is in `locus_store.backends.sqlite`."""

from locus_store.backends.sqlite import SQLiteBackend, SQLiteCheckpointer

__all__ = ["SQLiteBackend", "SQLiteCheckpointer"]
