"""Fixtures for real servers, and the lines at the end of a run that say which backends ran.

`postgresql_server`  session: the server, started by the first test that asks for it (`servers.PostgreSQLServer`)
`postgresql_url`     a fresh, empty database for this test: ``postgresql://…``
`new_postgresql`     makes servers that belong to one test, which may stop, kill and restart them
`mariadb_server`, `mariadb_url`, `new_mariadb`: the same for MariaDB (or a MySQL of somebody else's)
`seaweedfs`, `moto`  session: S3 servers (`s3_servers.S3Server`), started by the first test that asks for them
`new_seaweedfs`      makes one that belongs to one test
`oci_double`         session: the double of OCI Object Storage, a process of its own (`oci_double.process.Process`)
`oci_user`           session: somebody who may sign in to it with an API key
`oci_double_bucket`  session: a bucket of it; `oci_bucket`: the real one that the environment names (`oci_buckets`)
`redis_server`       session: a Valkey or Redis; `redis_cluster`: three of them that are one cluster
`new_redis`          makes servers that belong to one test
`osmem`, `noida`     session: doubles of OpenSearch and of Elasticsearch (`opensearch_servers`)
`new_opensearch`     makes doubles that belong to one test
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import hypothesis
import oci_buckets
import opensearch_servers
import pytest
import redis_servers
import s3_servers
import servers
from oci_double.process import Process as OCIDouble
from oci_double.process import User as OCIUser

from locus_store.backends.objects.oci_port import OCIPort
from locus_store.backends.objects.oci_sign_in import SignIn

# Two busy cores make any deadline a matter of luck. Hypothesis has a profile of its own for CI, which is the same here.
hypothesis.settings.register_profile("local", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
if "CI" not in os.environ:
    hypothesis.settings.load_profile("local")


def pytest_configure(config: pytest.Config) -> None:
    # The caller's own store is none of the tests' business, nor are the options of libpq, Amazon's clients or Oracle's SDK.
    for name in [name for name in os.environ if name == "LOCUS_STORE_URL" or name.startswith(("PG", "AWS_", "OCI_"))]:
        del os.environ[name]
    if not os.environ.get(opensearch_servers.OPENSEARCH_URL):
        servers.note_missing("opensearch", f"{opensearch_servers.OPENSEARCH_URL} names no server")
    if not os.environ.get("LOCUS_STORE_TEST_ORACLE_URL"):
        servers.note_missing("oracle", "LOCUS_STORE_TEST_ORACLE_URL names no server")
    if not os.environ.get(oci_buckets.OCI_BUCKET):
        servers.note_missing("oci", f"{oci_buckets.OCI_BUCKET} names no bucket")


# `make test` runs the tests in two processes (pytest-xdist), each with servers of its own: what they record is sent to
# the one that writes the summary.


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["backends"] = servers.notes()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    # A worker that crashed has sent nothing; it is a failure of the run in any case.
    theirs = getattr(node, "workeroutput", {}).get("backends")
    if theirs is not None:
        servers.add_notes(theirs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    # Outermost, so that these lines come after all others and right before the count of the tests.
    yield
    terminalreporter.section("backends")
    for line in servers.summary_lines():
        terminalreporter.write_line(line)


def unavailable(backend: str, error: servers.ServerUnavailableError) -> NoReturn:
    """Skips the test, or fails it where servers are required."""
    servers.note_missing(backend, str(error))
    if servers.REQUIRE_SERVERS:
        pytest.fail(f"LOCUS_STORE_REQUIRE_SERVERS is set, and {error}", pytrace=False)
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[servers.PostgreSQLServer]:
    """The session's PostgreSQL server. A test that stops it starts it again."""
    try:
        server = servers.start_postgresql()
    except servers.ServerUnavailableError as error:
        unavailable("postgresql", error)
    yield server
    server.close()


@pytest.fixture
def postgresql_url(postgresql_server: servers.PostgreSQLServer) -> Iterator[str]:
    """The URL of an empty database that lives as long as the test."""
    servers.note_ran("postgresql", f"PostgreSQL {postgresql_server.version}")
    postgresql_server.ensure_running()
    url = postgresql_server.create_database()
    yield url
    postgresql_server.ensure_running()
    postgresql_server.drop_database(url)


@pytest.fixture
def new_postgresql() -> Iterator[Callable[..., servers.PostgreSQLServer]]:
    """Starts servers of the test's own: ``new_postgresql({"fsync": "on"})``. About a second each."""
    started: list[servers.PostgreSQLServer] = []

    def start(settings: dict[str, str] | None = None) -> servers.PostgreSQLServer:
        try:
            server = servers.start_postgresql(settings, external=False)
        except servers.ServerUnavailableError as error:
            unavailable("postgresql", error)
        servers.note_ran("postgresql", f"PostgreSQL {server.version}")
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[servers.MariaDBServer]:
    """The session's MariaDB server. A test that stops it starts it again."""
    try:
        server = servers.start_mariadb()
    except servers.ServerUnavailableError as error:
        unavailable("mariadb", error)
    yield server
    server.close()


@pytest.fixture
def mariadb_url(mariadb_server: servers.MariaDBServer) -> Iterator[str]:
    """The URL of an empty database that lives as long as the test: ``mariadb://…``."""
    servers.note_ran("mariadb", mariadb_server.version)
    mariadb_server.ensure_running()
    url = mariadb_server.create_database()
    yield url
    mariadb_server.ensure_running()
    mariadb_server.drop_database(url)


@pytest.fixture
def new_mariadb() -> Iterator[Callable[..., servers.MariaDBServer]]:
    """Starts servers of the test's own: ``new_mariadb({"max-allowed-packet": "1M"})``. Two seconds each."""
    started: list[servers.MariaDBServer] = []

    def start(settings: dict[str, str] | None = None) -> servers.MariaDBServer:
        try:
            server = servers.start_mariadb(settings, external=False)
        except servers.ServerUnavailableError as error:
            unavailable("mariadb", error)
        servers.note_ran("mariadb", server.version)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[s3_servers.SeaweedFS]:
    """The session's SeaweedFS, a real S3 server. A test that stops it starts it again."""
    yield from _s3(s3_servers.SeaweedFS)


@pytest.fixture(scope="session")
def moto() -> Iterator[s3_servers.Moto]:
    """The session's moto, a double of S3."""
    yield from _s3(s3_servers.Moto)


def _s3(kind: type[s3_servers.S3Server]) -> Iterator[Any]:
    try:
        server = kind()
    except servers.ServerUnavailableError as error:
        unavailable(kind.name, error)
    yield server
    server.close()


@pytest.fixture
def new_seaweedfs() -> Iterator[Callable[[], s3_servers.SeaweedFS]]:
    """Starts servers of the test's own, four seconds each."""
    started: list[s3_servers.SeaweedFS] = []

    def start() -> s3_servers.SeaweedFS:
        try:
            server = s3_servers.SeaweedFS()
        except servers.ServerUnavailableError as error:
            unavailable(s3_servers.SeaweedFS.name, error)
        servers.note_ran(server.name, server.version)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis_servers.RedisServer]:
    """The session's Redis or Valkey. A test that stops it starts it again."""
    try:
        server = redis_servers.start_redis()
    except servers.ServerUnavailableError as error:
        unavailable("redis", error)
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[redis_servers.RedisCluster]:
    """The session's cluster. A test that stops a node starts it again."""
    try:
        cluster = redis_servers.start_cluster()
    except servers.ServerUnavailableError as error:
        unavailable("redis-cluster", error)
    yield cluster
    cluster.close()


@pytest.fixture
def new_redis() -> Iterator[Callable[..., redis_servers.RedisServer]]:
    """Starts servers of the test's own: ``new_redis({"maxmemory": "8mb"})``; a tenth of a second each."""
    started: list[redis_servers.RedisServer] = []

    def start(settings: dict[str, Any] | None = None, **options: Any) -> redis_servers.RedisServer:
        try:
            server = redis_servers.start_redis(settings, external=False, **options)
        except servers.ServerUnavailableError as error:
            unavailable("redis", error)
        servers.note_ran("redis", server.version)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def oci_double() -> Iterator[OCIDouble]:
    """The session's double of OCI Object Storage. A test that stops it takes one of its own."""
    with OCIDouble() as double:
        yield double


@pytest.fixture(scope="session")
def oci_user(oci_double: OCIDouble, tmp_path_factory: pytest.TempPathFactory) -> OCIUser:
    """Somebody who may sign in to it with an API key, from a configuration file of the user's own."""
    return OCIUser(tmp_path_factory.mktemp("oci")).known_to(oci_double)


@pytest.fixture
def oci_port(oci_double: OCIDouble, oci_user: OCIUser) -> Iterator[OCIPort]:
    """A port to an empty bucket of the double."""
    bucket = oci_double.make_bucket()
    sign_in = SignIn(config_file=str(oci_user.config_file), service_endpoint=oci_double.url)
    yield OCIPort(bucket, sign_in=sign_in)
    oci_double.tell("drop bucket", bucket)


@pytest.fixture(scope="session")
def oci_double_bucket(oci_double: OCIDouble, oci_user: OCIUser) -> oci_buckets.OCIBucket:
    """The double's bucket for the shared suite, which empties it for each test."""
    return oci_buckets.DoubleBucket(oci_double, oci_user)


@pytest.fixture(scope="session")
def oci_bucket() -> Iterator[oci_buckets.OCIBucket]:
    """The real bucket that the environment names, and a prefix in it, which is emptied."""
    bucket = oci_buckets.NamedBucket()
    yield bucket
    bucket.empty()


@pytest.fixture(scope="session")
def osmem() -> Iterator[opensearch_servers.Osmem]:
    """The session's double of OpenSearch. A test that stops it starts it again, empty."""
    yield from _opensearch(opensearch_servers.Osmem)


@pytest.fixture(scope="session")
def noida() -> Iterator[opensearch_servers.Noida]:
    """The session's double of Elasticsearch. A test that stops it starts it again."""
    yield from _opensearch(opensearch_servers.Noida)


@pytest.fixture(scope="session")
def external_opensearch() -> opensearch_servers.External:
    """The real server that the environment names."""
    return opensearch_servers.External(os.environ[opensearch_servers.OPENSEARCH_URL])


def _opensearch(kind: type[opensearch_servers.Double]) -> Iterator[Any]:
    try:
        server = kind()
    except servers.ServerUnavailableError as error:
        unavailable(kind.name, error)
    yield server
    server.close()


@pytest.fixture
def new_opensearch() -> Iterator[Callable[..., opensearch_servers.Double]]:
    """Starts doubles of the test's own: ``new_opensearch(Noida)``; a tenth of a second each."""
    started: list[opensearch_servers.Double] = []

    def start(kind: type[opensearch_servers.Double]) -> opensearch_servers.Double:
        try:
            server = kind()
        except servers.ServerUnavailableError as error:
            unavailable(kind.name, error)
        servers.note_ran(server.name, server.version)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()
