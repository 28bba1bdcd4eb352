"""Databases to migrate, by a plain connection each, whatever the driver."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import pytest
import servers
from alembic.config import CommandLine, Config
from sqlalchemy import Connection, NullPool, create_engine, event, inspect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from locus_store.migrations.urls import engine_url
from locus_store.sql.models import metadata
from locus_store.sql.schema import VERSION_TABLE

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
OURS = {*metadata.tables, VERSION_TABLE}


class Database:
    """An empty database at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = engine_url(url).get_backend_name()
        self.transactional = self.name not in ("mysql", "mariadb")
        self.short_name = re.sub(r"\W", "_", url.rpartition("/")[2])

    def __call__(self, work: Callable[[Connection], T], *, begin: bool | None = None) -> T:
        """What `work` returns, in a transaction that is then committed, or on a connection without one.

        By default it is the first, but not where DDL ends a transaction: there migrating refuses to work in one.

        In a thread, so that it can be used inside a running event loop as well.
        """
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._run, work, begin).result()

    def _run(self, work: Callable[[Connection], T], begin: bool | None) -> T:
        commit = begin is None
        begin = self.transactional if begin is None else begin
        url = engine_url(self.url)
        if not url.get_dialect().is_async:
            engine = create_engine(url, poolclass=NullPool)
            with engine.begin() if begin else engine.connect() as connection:
                return work(connection)

        async def main() -> T:
            engine = create_async_engine(url, poolclass=NullPool)
            async with engine.begin() if begin else engine.connect() as connection:
                done = await connection.run_sync(work)
                if commit and not begin:
                    await connection.commit()
                return done

        return asyncio.run(main())

    def async_engine(self, **options: Any) -> AsyncEngine:
        """An asynchronous engine as a host makes one."""
        url = engine_url(self.url)
        if self.name == "sqlite":
            pytest.importorskip("aiosqlite")
            url = url.set(drivername="sqlite+aiosqlite")
        return create_async_engine(url, **options)

    def execute(self, *statements: str) -> list[Any]:
        """Runs statements and commits; the rows of the last."""

        def work(connection: Connection) -> list[Any]:
            for statement in statements:
                marked = connection.dialect.paramstyle in ("format", "pyformat")
                result = connection.exec_driver_sql(statement.replace("%", "%%") if marked else statement)
            return list(result.all()) if result.returns_rows else []

        return self(work)

    def tables(self, schema: str | None = None) -> set[str]:
        """The names of all tables, with those that the database makes for itself left out."""
        names = self(lambda connection: set(inspect(connection).get_table_names(schema=schema)))
        return names - {"sqlite_sequence"}

    def alembic(self, *arguments: str, fails: bool = False) -> str:
        """Runs one of Alembic's commands on this database with the checkout's alembic.ini; what it printed."""
        command_line = CommandLine()
        options = command_line.parser.parse_args(list(arguments))
        printed = io.StringIO()
        failed = False
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
            patch.setenv("LOCUS_STORE_URL", self.url)
            patch.setattr(sys, "path", list(sys.path))
            try:
                command_line.run_cmd(Config(str(ROOT / "alembic.ini"), cmd_opts=options, stdout=printed), options)
            except SystemExit:
                failed = True
        assert failed == fails, printed.getvalue()
        return printed.getvalue()


def run_alembic(*arguments: str, cwd: Path = ROOT, fails: bool = False, **environment: str) -> str:
    """Runs ``alembic`` with the checkout's alembic.ini as a program of its own; what it printed."""
    command = [sys.executable, "-m", "alembic", "-c", str(ROOT / "alembic.ini"), *arguments]
    return run(command, cwd=cwd, fails=fails, **environment)


def run(command: list[str], *, cwd: Path = ROOT, fails: bool = False, **environment: str) -> str:
    """Runs `command`, which must succeed unless it `fails`; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr if fails else done.stdout


def statements_of(connection: Connection) -> list[str]:
    """A list to which each statement of `connection` is added from now on."""
    seen: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda c, cursor, statement, *rest: seen.append(statement))
    return seen


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    servers.note_ran("sqlite")
    return Database(f"sqlite:///{tmp_path / 'store.db'}")


@pytest.fixture
def postgresql(postgresql_url: str) -> Database:
    return Database(postgresql_url)


@pytest.fixture
def mariadb(mariadb_url: str) -> Database:
    return Database(mariadb_url)


@pytest.fixture(params=["sqlite", "postgresql"])
def transactional(request: pytest.FixtureRequest) -> Database:
    """A database that can roll DDL back."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


DATABASES = ["sqlite", "postgresql", "mariadb"]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]
