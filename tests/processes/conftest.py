"""Several processes on one storage, some of which are killed or believe what is no longer so."""

from store_fixtures import checkpointer, clock, open_store, other, place, postgresql_database, store

__all__ = ["checkpointer", "clock", "open_store", "other", "place", "postgresql_database", "store"]
