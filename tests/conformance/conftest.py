"""The shared suite: one file per operation, run over every backend of `backends.TABLE`; no backend is named here."""

from store_fixtures import (
    checkpointer,
    clock,
    mariadb_database,
    open_store,
    oracle_standin_database,
    other,
    own_connections,
    postgresql_database,
    store,
)
from store_fixtures import place_or_session as place

__all__ = [
    "checkpointer",
    "clock",
    "mariadb_database",
    "open_store",
    "oracle_standin_database",
    "other",
    "own_connections",
    "place",
    "postgresql_database",
    "store",
]
