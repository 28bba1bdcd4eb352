"""The databases that a host may have its own tables in, beside ours: those of tests/migrations."""

from __future__ import annotations

from migrations.conftest import database, mariadb, postgresql, sqlite

__all__ = ["database", "mariadb", "postgresql", "sqlite"]
