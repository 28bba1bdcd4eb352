"""The fixtures of the shared suite; each conftest.py that uses them imports them.

`place`        an empty place of one backend (`backends.Place`), once for each backend of the table
`own_connections`  skips the test where a store has none
`open_store`   opens backends on it: ``open_store(clock=clock)``; they are closed at the end, and nothing may be left open
`store`        one of them
`other`        a second one, which knows nothing of what the first one saved: as good as another process
`checkpointer` the second face of `store`, for `AgentState`
`clock`        a clock that stands still unless it is told to go on
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import backends
import pytest
import s3_servers
import servers
from bucket_contents import BucketContents
from oracle.oracle_standin import install
from oracle.oracle_standin.backend import create_schema as create_standin_schema
from session_places import SESSIONS

from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState

__all__ = [
    "briefly",
    "checkpointer",
    "clock",
    "only",
    "open_store",
    "mariadb_database",
    "oracle_standin_database",
    "own_connections",
    "place",
    "place_or_async_session",
    "place_or_session",
    "postgresql_database",
    "store",
    "with_a_bucket",
]

OpenStore = Callable[..., Backend]


class Clock:
    """A clock that stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    def __call__(self) -> int:
        return (self.now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


_postgresql: dict[int, str] = {}


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server: servers.PostgreSQLServer) -> Iterator[str]:
    """A database with our tables, for all tests of the session; a `PostgreSQLPlace` empties it."""
    url = _postgresql.get(id(postgresql_server))
    if url is None:
        url = _postgresql[id(postgresql_server)] = postgresql_server.create_database()
        servers.run_apart(backends.create_postgresql_schema(url))
    yield url
    postgresql_server.ensure_running()
    postgresql_server.drop_database(url)


_mariadb: dict[int, str] = {}


@pytest.fixture(scope="session")
def mariadb_database(mariadb_server: servers.MariaDBServer) -> Iterator[str]:
    """The same for a `MariaDBPlace`."""
    url = _mariadb.get(id(mariadb_server))
    if url is None:
        url = _mariadb[id(mariadb_server)] = mariadb_server.create_database()
        servers.run_apart(backends.create_mariadb_schema(url))
    yield url
    mariadb_server.ensure_running()
    mariadb_server.drop_database(url)


_standin: dict[int, str] = {}


@pytest.fixture(scope="session")
def oracle_standin_database(postgresql_server: servers.PostgreSQLServer) -> Iterator[str]:
    """A database in which the stand-in for Oracle works, with our tables; an `OracleStandInPlace` empties it."""
    url = _standin.get(id(postgresql_server))
    if url is None:
        url = _standin[id(postgresql_server)] = postgresql_server.create_database()
        servers.run_apart(install(url))
        servers.run_apart(create_standin_schema(url))
    yield url
    postgresql_server.ensure_running()
    postgresql_server.drop_database(url)


LONG = [
    "elasticsearch-double",
    "oci-double",
    "s3",
    "s3-moto",
    "redis-cluster",
    "postgresql-sync",
    "mariadb-session",
    "mariadb-sync",
]
"""Places that only the long tests go through: they run code that others run too.

The double of Elasticsearch shows that searches are refreshed; `tests/opensearch_driver` sees to that, too. What is
different on a cluster of Redis is in `tests/redis_cluster`; over OCI's double runs the driver that runs over S3, and what
is between it and the service is in `tests/objects`. Over SeaweedFS, a real S3 server, where a listing takes its time, a
part of `tests/conformance` is gone through at once (`with_a_bucket`), over moto, a double, nothing. Over a server, a
synchronous session does what an asynchronous one does, and one on MariaDB what one on PostgreSQL does,
with the statements of MariaDB's own backend.
"""

OBJECTS = [name for name, place in backends.TABLE.items() if issubclass(place, BucketContents)]
"""Those that lie in buckets, where each step is a request or several."""

_ASYNC_SESSIONS = [name for name in SESSIONS if name.endswith("-session")]


def _params(names: Iterable[str], long: Container[str] = (), *, short: Container[str] = ()) -> list[Any]:
    """Parameters of `place`, of which those in `LONG`, but for `short`, and in `long` are marked as endurance."""
    marked = pytest.mark.endurance
    return [
        pytest.param(name, marks=marked) if name in long or (name in LONG and name not in short) else name
        for name in names
    ]


@pytest.fixture(params=_params(backends.TABLE))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> backends.Place:
    return _make(request, tmp_path)


@pytest.fixture(params=_params([*backends.TABLE, *SESSIONS]))
def place_or_session(request: pytest.FixtureRequest, tmp_path: Path) -> backends.Place:
    """As `place`, which it is imported as; the backends are also gone through by sessions of a host's."""
    return _make(request, tmp_path)


@pytest.fixture(params=_params([*backends.TABLE, *_ASYNC_SESSIONS]))
def place_or_async_session(request: pytest.FixtureRequest, tmp_path: Path) -> backends.Place:
    """As `place_or_session`, for long suites: what is synchronous runs the same code."""
    return _make(request, tmp_path)


@pytest.fixture
def own_connections(place: backends.Place) -> None:
    """For tests of what a host does with its own connections: pools, event loops, closing, cancelling."""
    if not place.capabilities.own_connections:
        pytest.skip("the connections are the caller's")


def _make(request: pytest.FixtureRequest, tmp_path: Path) -> backends.Place:
    made = {**backends.TABLE, **SESSIONS}[request.param]
    reason = made.why_unavailable()
    if reason is not None:
        servers.note_missing(made.name, reason)
        pytest.skip(reason)
    needed: dict[str, Any] = {"folder": tmp_path}
    if made is backends.OracleStandInPlace:
        server = request.getfixturevalue("postgresql_server")
        server.ensure_running()
        needed |= {"server": server, "url": request.getfixturevalue("oracle_standin_database")}
        servers.note_ran(made.name, f"over PostgreSQL {server.version}; no Oracle")
    elif issubclass(made, backends.PostgreSQLPlace):
        server = request.getfixturevalue("postgresql_server")
        server.ensure_running()
        needed |= {"server": server, "url": request.getfixturevalue("postgresql_database")}
        servers.note_ran(made.name, f"PostgreSQL {server.version}")
    elif issubclass(made, backends.MariaDBPlace):
        server = request.getfixturevalue("mariadb_server")
        server.ensure_running()
        needed |= {"server": server, "url": request.getfixturevalue("mariadb_database")}
        servers.note_ran(made.name, server.version)
    elif issubclass(made, backends.OCIPlace):
        bucket = request.getfixturevalue(made.bucket_fixture)
        needed |= {"bucket": bucket}
        servers.note_ran(made.name, bucket.version)
    elif issubclass(made, backends.S3Place):
        server = request.getfixturevalue(made.server_fixture)
        server.ensure_running()
        needed |= {"server": server}
        # What URLs leave out. obstore's threads are there before what a test leaves open is looked at.
        environment = request.getfixturevalue("monkeypatch")
        environment.setenv("AWS_ACCESS_KEY_ID", s3_servers.ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", s3_servers.SECRET_KEY)
        servers.run_apart(_start_obstore())
        servers.note_ran(made.name, server.version)
    elif issubclass(made, (backends.OpenSearchPlace, backends.RedisPlace)):
        server = request.getfixturevalue(made.server_fixture)
        server.ensure_running()
        needed |= {"server": server}
        servers.note_ran(made.name, server.version)
    else:
        servers.note_ran(made.name)
    return made(**needed)


async def _start_obstore() -> None:
    import obstore
    from obstore.store import MemoryStore

    await obstore.put_async(MemoryStore(), "key", b"")


def with_a_bucket(metafunc: pytest.Metafunc) -> None:
    """For ``pytest_generate_tests``: runs tests of `place_or_session` on SeaweedFS, too, without waiting for the long ones."""
    if "place" in metafunc.fixturenames:
        params = _params([*backends.TABLE, *SESSIONS], short=[backends.S3Place.name])
        metafunc.definition.add_marker(pytest.mark.parametrize("place", params, indirect=True))


def only(*names: str) -> pytest.MarkDecorator:
    """Runs a test on some backends only."""
    return pytest.mark.parametrize("place", _params(names), indirect=True)


def briefly(*long: str) -> pytest.MarkDecorator:
    """For a test that stores very much: sessions, and the backends that are named, are gone through by the long tests."""
    params = _params([*backends.TABLE, *_ASYNC_SESSIONS], [*long, *SESSIONS])
    return pytest.mark.parametrize("place", params, indirect=True)


@pytest.fixture
async def open_store(place: backends.Place) -> AsyncIterator[OpenStore]:
    left = backends.Left()
    opened: list[Backend] = []

    def open_one(**options: Any) -> Backend:
        opened.append(place.open(**options))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()
    await left.assert_nothing()
    place.assert_nothing_open()


@pytest.fixture
def store(open_store: OpenStore) -> Backend:
    return open_store()


@pytest.fixture
def other(store: Backend, open_store: OpenStore) -> Backend:
    return open_store()


@pytest.fixture
def checkpointer(store: Backend) -> Checkpointer[AgentState]:
    return store.checkpointer()
