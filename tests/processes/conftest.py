"""Several processes on one storage, some of which are killed or believe what is no longer so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import backends
import pytest
from processes.nursery import Nursery
from store_fixtures import (
    checkpointer,
    clock,
    mariadb_database,
    open_store,
    oracle_standin_database,
    other,
    place,
    postgresql_database,
    store,
)

__all__ = [
    "checkpointer",
    "clock",
    "mariadb_database",
    "open_store",
    "oracle_standin_database",
    "other",
    "place",
    "postgresql_database",
    "store",
]


@pytest.fixture
def nursery(place: backends.Place, tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(tmp_path, place.address) as made:
        yield made
