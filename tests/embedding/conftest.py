"""Hosts on every relational database, and what they bind a store to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import servers
from backends import MariaDBPlace, PostgreSQLPlace, SQLitePlace
from embedding.hosts import TARGETS, Begin, Host, opener
from session_places import empty_sqlite_file, over
from store_fixtures import clock, mariadb_database, postgresql_database

from locus_store.core.backend import Backend

__all__ = ["clock", "mariadb_database", "postgresql_database"]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    if request.param == "sqlite":
        servers.note_ran("sqlite")
        place = SQLitePlace(folder=tmp_path)
        place.path.write_bytes(empty_sqlite_file(tmp_path))
        clients = f"sqlite+aiosqlite:///{place.path}", f"sqlite:///{place.path}"
        made = Host(place, clients, {"connect_args": {"timeout": 30}})
    elif request.param == "mariadb":
        server = request.getfixturevalue("mariadb_server")
        server.ensure_running()
        servers.note_ran("mariadb", server.version)
        url = request.getfixturevalue("mariadb_database")
        clients = over("mysql+asyncmy", url), over("mysql+pymysql", url)
        made = Host(MariaDBPlace(server=server, url=url), clients, {})
    else:
        server = request.getfixturevalue("postgresql_server")
        server.ensure_running()
        servers.note_ran("postgresql", f"PostgreSQL {server.version}")
        url = request.getfixturevalue("postgresql_database")
        clients = over("postgresql+asyncpg", url), over("postgresql+psycopg", url)
        made = Host(PostgreSQLPlace(server=server, url=url), clients, {})
    yield made
    await made.close()


@pytest.fixture
def store(host: Host) -> Backend:
    """The backend that is bound; it connects by itself only where a test calls it."""
    return host.own()


@pytest.fixture(params=TARGETS)
def begin(request: pytest.FixtureRequest, host: Host) -> Begin:
    return opener(host, request.param)
