"""Threads in a SQLite file, or in memory."""

from __future__ import annotations

from locus_store.backends.sqlite.backend import SQLiteBackend, SQLiteCheckpointer
from locus_store.backends.sqlite.driver import SQLiteDriver

__all__ = ["SQLiteBackend", "SQLiteCheckpointer", "SQLiteDriver"]
