"""The shared suite: one file per operation, run over every backend of `backends.TABLE`; no backend is named here."""

from store_fixtures import checkpointer, clock, mariadb_database, open_store, other, place, postgresql_database, store

__all__ = ["checkpointer", "clock", "open_store", "other", "mariadb_database", "place", "postgresql_database", "store"]
