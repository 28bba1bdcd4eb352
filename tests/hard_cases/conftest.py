"""The hard cases, each named after its number, on the backends that it concerns."""

from store_fixtures import checkpointer, clock, open_store, other, place, postgresql_database, store

__all__ = ["checkpointer", "clock", "open_store", "other", "place", "postgresql_database", "store"]
