"""Fixtures of the Oracle tests.

`standin_url`   a database of PostgreSQL's that the stand-in can work in, the same for all tests of the session
`connect`       opens the stand-in's connections to it
`empty_url`     a database that the stand-in can work in, for one test
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import servers
from oracle.oracle_standin import StandInConnection, creator, install


@pytest.fixture(scope="session")
def standin_database(postgresql_server: servers.PostgreSQLServer) -> Iterator[str]:
    url = postgresql_server.create_database()
    servers.run_apart(install(url))
    yield url
    postgresql_server.ensure_running()
    postgresql_server.drop_database(url)


@pytest.fixture
def standin_url(postgresql_server: servers.PostgreSQLServer, standin_database: str) -> str:
    servers.note_ran("oracle-standin", f"over PostgreSQL {postgresql_server.version}; no Oracle")
    postgresql_server.ensure_running()
    return standin_database


@pytest.fixture
def empty_url(postgresql_server: servers.PostgreSQLServer) -> Iterator[str]:
    postgresql_server.ensure_running()
    url = postgresql_server.create_database()
    servers.run_apart(install(url))
    servers.note_ran("oracle-standin", f"over PostgreSQL {postgresql_server.version}; no Oracle")
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture
async def connect(standin_url: str) -> AsyncIterator[Callable[[], Awaitable[StandInConnection]]]:
    opened: list[StandInConnection] = []

    async def one() -> StandInConnection:
        opened.append(await creator(standin_url)())
        return opened[-1]

    yield one
    for connection in opened:
        if connection.is_healthy():
            await connection.close()
