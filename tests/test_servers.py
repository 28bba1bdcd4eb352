"""The servers that the other tests stand on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncmy
import asyncpg
import pytest
import servers
from fault_proxy import FaultProxy

LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncmy.errors.Error)
Launcher = Callable[..., servers.PostgreSQLServer]


def through(proxy: FaultProxy, url: str) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/{url.rpartition('/')[2]}"


@pytest.fixture
def upstream(postgresql_server: servers.PostgreSQLServer) -> tuple[str, int]:
    return postgresql_server.host, postgresql_server.port


class TestPostgreSQL:
    async def test_a_client_writes_and_reads(self, postgresql_url):
        connection = await asyncpg.connect(postgresql_url)
        try:
            await connection.execute('CREATE TABLE t (a text COLLATE "C")')
            await connection.execute("INSERT INTO t VALUES ($1)", "ä")
            assert await connection.fetchval("SELECT a FROM t") == "ä"
            assert await connection.fetchval("SHOW server_encoding") == "UTF8"
        finally:
            await connection.close()

    async def test_every_test_has_an_empty_database(self, postgresql_url, postgresql_server):
        tables = "SELECT * FROM pg_tables WHERE schemaname = 'public'"
        assert postgresql_server.execute(tables, url=postgresql_url) == []
        postgresql_server.execute("CREATE TABLE t ()", url=postgresql_url)
        other = postgresql_server.create_database()
        try:
            assert postgresql_server.execute(tables, url=other) == []
        finally:
            postgresql_server.drop_database(other)

    def test_a_database_can_be_copied_and_put_back(self, postgresql_url, postgresql_server):
        name = postgresql_url.rpartition("/")[2]
        postgresql_server.execute("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", url=postgresql_url)
        copy = postgresql_server.create_database(template=name)
        try:
            postgresql_server.execute("UPDATE t SET a = 2", url=postgresql_url)
            postgresql_server.drop_database(postgresql_url)
            assert postgresql_server.create_database(name, template=copy.rpartition("/")[2]) == postgresql_url
            assert postgresql_server.execute("SELECT a FROM t", url=postgresql_url)[0]["a"] == 1
        finally:
            postgresql_server.drop_database(copy)

    async def test_a_database_is_dropped_under_its_clients(self, postgresql_server):
        url = postgresql_server.create_database()
        connection = await asyncpg.connect(url)
        postgresql_server.drop_database(url)
        with pytest.raises(LOST):
            await connection.execute("SELECT 1")
        connection.terminate()

    def test_what_was_committed_survives_crashes(self, new_postgresql: Launcher):
        server = new_postgresql({"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"})
        port = server.port
        server.execute("CREATE TABLE t (a int)")
        for crash in (server.kill, server.stop):
            server.execute("INSERT INTO t VALUES (1)")
            crash()
            with pytest.raises(LOST):
                server.execute("SELECT 1")
            server.start()
        assert server.port == port
        assert len(server.execute("SELECT a FROM t")) == 2

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
    def test_a_killed_run_leaves_no_server(self, tmp_path, postgresql_server):
        if not postgresql_server.managed:
            pytest.skip("needs a server that the tests start")
        assert_a_killed_run_leaves_no_server("start_postgresql", "-p\0{}\0", tmp_path)


class TestMariaDB:
    def test_every_test_has_an_empty_database(self, mariadb_url, mariadb_server):
        assert mariadb_server.execute("SHOW TABLES", url=mariadb_url) == []
        mariadb_server.execute("CREATE TABLE t (a VARCHAR(9))", "INSERT INTO t VALUES ('ä')", url=mariadb_url)
        assert mariadb_server.execute("SELECT a FROM t", url=mariadb_url) == [("ä",)]
        other = mariadb_server.create_database()
        try:
            assert mariadb_server.execute("SHOW TABLES", url=other) == []
        finally:
            mariadb_server.drop_database(other)

    async def test_a_database_is_dropped_under_its_clients(self, mariadb_server):
        url = mariadb_server.create_database()
        place = {"host": mariadb_server.host, "port": mariadb_server.port, "user": "root"}
        connection = await asyncmy.connect(**place, db=url.rpartition("/")[2])
        mariadb_server.execute("CREATE TABLE t (a int)", url=url)
        async with connection.cursor() as cursor:
            await cursor.execute("INSERT INTO t VALUES (1)")  # holds the table until its end
        assert len(mariadb_server.sessions(url)) == 1
        mariadb_server.drop_database(url)
        with pytest.raises(LOST):
            await connection.query("SELECT 1")
        connection.close()

    def test_what_was_committed_survives_crashes(self, new_mariadb):
        server = new_mariadb({"innodb-flush-log-at-trx-commit": "1"})
        port = server.port
        url = server.create_database()
        server.execute("CREATE TABLE t (a int)", url=url)
        for crash in (server.kill, server.stop):
            server.execute("INSERT INTO t VALUES (1)", url=url)
            crash()
            with pytest.raises(LOST):
                server.execute("SELECT 1")
            server.start()
        assert server.port == port
        assert len(server.execute("SELECT a FROM t", url=url)) == 2

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
    def test_a_killed_run_leaves_no_server(self, tmp_path, mariadb_server):
        if not mariadb_server.managed:
            pytest.skip("needs a server that the tests start")
        assert_a_killed_run_leaves_no_server("start_mariadb", "--port={}\0", tmp_path)


def assert_a_killed_run_leaves_no_server(start: str, port_of: str, folder: Path, module: str = "servers") -> None:
    program = f"import {module}, time\nprint({module}.{start}(external=False).port, flush=True)\ntime.sleep(99)"
    here = {**os.environ, "PYTHONPATH": str(Path(servers.__file__).parent), "TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=here) as child:
        port = child.stdout.readline().strip()
        folders = list(folder.glob("locus-*"))
        child.send_signal(signal.SIGKILL)
    wanted = port_of.format(port).encode()

    def left() -> list[Path]:
        return [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if wanted in _read(entry)]

    deadline = time.monotonic() + 10
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert port
    assert not left()
    assert len(folders) == 1


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class TestFaultProxy:
    @pytest.fixture
    async def proxy(self, upstream):
        async with FaultProxy(*upstream) as proxy:
            yield proxy

    @pytest.fixture
    async def connection(self, proxy, postgresql_url, postgresql_server):
        postgresql_server.execute("CREATE TABLE t (a int)", url=postgresql_url)
        connection = await asyncpg.connect(through(proxy, postgresql_url), timeout=5)
        yield connection
        connection.terminate()

    async def stored(self, postgresql_server, url):
        return len(postgresql_server.execute("SELECT a FROM t", url=url))

    async def test_it_passes(self, proxy, connection):
        assert await connection.fetchval("SELECT length($1::text)", "x" * 300_000) == 300_000
        proxy.delay = 0.05
        started = time.monotonic()
        await connection.execute("SELECT 1")
        assert time.monotonic() - started >= 0.1
        assert proxy.connections == 1

    async def test_refuse_and_back(self, proxy, connection, postgresql_url):
        await proxy.set("refuse")
        with pytest.raises(LOST):
            await connection.execute("SELECT 1")
        with pytest.raises(ConnectionRefusedError):
            await asyncpg.connect(through(proxy, postgresql_url))
        await proxy.set("pass")
        again = await asyncpg.connect(through(proxy, postgresql_url))
        assert await again.fetchval("SELECT 1") == 1
        await again.close()

    async def test_blackhole(self, proxy, connection, postgresql_url):
        await proxy.set("blackhole")
        with pytest.raises(TimeoutError):
            await asyncpg.connect(through(proxy, postgresql_url), timeout=0.2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.execute("SELECT 1"), 0.2)

    async def test_reset(self, proxy, connection, postgresql_url):
        running = asyncio.ensure_future(connection.execute("SELECT pg_sleep(30)"))
        await asyncio.sleep(0.1)
        await proxy.set("reset")
        with pytest.raises(LOST):
            await running
        with pytest.raises(LOST):
            await asyncpg.connect(through(proxy, postgresql_url))

    @pytest.mark.parametrize(("when", "rows"), [("before", 0), ("after", 1)])
    async def test_cut(self, proxy, connection, postgresql_server, postgresql_url, when, rows):
        proxy.cut(b"COMMIT", when)
        with pytest.raises(LOST):
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (1)")
        assert proxy.cuts == 1
        assert await self.stored(postgresql_server, postgresql_url) == rows

    async def test_cut_at_a_later_one(self, proxy, connection, postgresql_server, postgresql_url):
        proxy.cut(b"INSERT INTO t", "before", skip=2)
        for _ in range(2):
            await connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(LOST):
            await connection.execute("INSERT INTO t VALUES (1)")
        assert await self.stored(postgresql_server, postgresql_url) == 2


class TestFindingServers:
    def test_a_url_that_does_not_answer_is_named(self, monkeypatch):
        monkeypatch.setenv(servers.POSTGRESQL_URL, f"postgresql://x@127.0.0.1:{servers.free_port()}/x")
        with pytest.raises(servers.ServerUnavailableError, match=f"{servers.POSTGRESQL_URL} does not answer"):
            servers.start_postgresql()

    def test_a_mysql_url_that_does_not_answer_is_named(self, monkeypatch):
        monkeypatch.setenv(servers.MYSQL_URL, f"mysql://x@127.0.0.1:{servers.free_port()}/x")
        with pytest.raises(servers.ServerUnavailableError, match=f"{servers.MYSQL_URL} does not answer"):
            servers.start_mariadb()

    def test_without_a_mariadb_the_package_is_named(self, monkeypatch):
        monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: None)
        with pytest.raises(servers.ServerUnavailableError, match="install mariadb-server"):
            servers.start_mariadb(external=False)

    def test_a_folder_without_binaries_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setenv(servers.POSTGRESQL_BIN, str(tmp_path))
        with pytest.raises(servers.ServerUnavailableError, match=r"lacks initdb or postgres"):
            servers.start_postgresql(external=False)

    def test_a_server_of_somebody_else_is_used_and_left_alone(self, postgresql_server, monkeypatch):
        monkeypatch.setenv(servers.POSTGRESQL_URL, postgresql_server.admin_url)
        given = servers.start_postgresql()
        url = given.create_database()
        given.drop_database(url)
        with pytest.raises(RuntimeError, match="not started by the tests"):
            given.restart()
        given.close()
        assert postgresql_server.execute("SELECT 1")


class TestSummary:
    @pytest.fixture(autouse=True)
    def nothing_noted(self, monkeypatch):
        for name in ("_details", "_tests", "_missing"):
            monkeypatch.setattr(servers, name, {})

    def test_one_line_per_backend(self, monkeypatch):
        servers.note_ran("sqlite", "SQLite 3.45")
        servers.note_ran("sqlite")
        servers.note_missing("postgresql", "no server:\n  none")
        servers.note_missing("oracle", "no URL")
        assert servers.summary_lines() == [
            "backend memory: not run: no selected test uses it",
            "backend file: not run: no selected test uses it",
            "backend sqlite: ran, 1 test (SQLite 3.45)",
            "backend postgresql: not run: no server: none",
            "backend mariadb: not run: no selected test uses it",
            "backend oracle-standin: not run: no selected test uses it",
            "backend redis: not run: no selected test uses it",
            "backend redis-cluster: not run: no selected test uses it",
            "backend opensearch-double: not run: no selected test uses it",
            "backend oci-double: not run: no selected test uses it",
            "backend s3: not run: no selected test uses it",
            "backend oracle: not run: no URL",
        ]

    def test_what_several_processes_noted_is_added_up(self, monkeypatch):
        servers.note_ran("sqlite")
        servers.note_missing("oracle", "no URL")
        theirs = json.loads(json.dumps(servers.notes()))
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "another.py::test (call)")
        servers.note_ran("sqlite", "SQLite 3.45")
        servers.note_ran("file")
        servers.add_notes(theirs)
        servers.add_notes(theirs)
        assert servers.summary_lines() == [
            "backend memory: not run: no selected test uses it",
            "backend file: ran, 1 test",
            "backend sqlite: ran, 2 tests (SQLite 3.45)",
            "backend postgresql: not run: no selected test uses it",
            "backend mariadb: not run: no selected test uses it",
            "backend oracle-standin: not run: no selected test uses it",
            "backend redis: not run: no selected test uses it",
            "backend redis-cluster: not run: no selected test uses it",
            "backend opensearch-double: not run: no selected test uses it",
            "backend oci-double: not run: no selected test uses it",
            "backend s3: not run: no selected test uses it",
            "backend oracle: not run: no URL",
        ]
