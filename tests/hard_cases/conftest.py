"""The hard cases, each named after its number, on the backends that it concerns.

Where a case names no backend it runs on all of them. Cases 51, 53 and 58, and what several processes do besides, are in
tests/processes; cases 67, 70, 72, 74 and 76 are in tests/migrations; ``test_index.py`` knows where each one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import backends
import pytest
import servers
from oracle.oracle_standin import install
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
from store_fixtures import place_or_async_session as place

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


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "oracle-standin"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[backends.Place]:
    """A place of a relational backend that has no tables yet."""
    if request.param == "sqlite":
        servers.note_ran("sqlite")
        yield backends.SQLitePlace(folder=tmp_path)
        return
    if request.param == "mariadb":
        url = request.getfixturevalue("mariadb_url")
        yield backends.MariaDBPlace(server=request.getfixturevalue("mariadb_server"), url=url, empty=True)
        return
    url = request.getfixturevalue("postgresql_url")
    server = request.getfixturevalue("postgresql_server")
    if request.param == "oracle-standin":
        servers.note_ran("oracle-standin")
        servers.run_apart(install(url))
        yield backends.OracleStandInPlace(server=server, url=url, empty=True)
        return
    yield backends.PostgreSQLPlace(server=server, url=url, empty=True)
