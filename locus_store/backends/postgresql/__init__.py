"""Threads in PostgreSQL 13 or newer, over asyncpg."""

from __future__ import annotations

from locus_store.backends.postgresql.backend import PostgreSQLBackend, PostgreSQLCheckpointer
from locus_store.backends.postgresql.driver import PostgreSQLDriver

__all__ = ["PostgreSQLBackend", "PostgreSQLCheckpointer", "PostgreSQLDriver"]
