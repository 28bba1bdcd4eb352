"""`upgrade` over the caller's connection: joined, undone, raced, and doing nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from migrations.conftest import OURS, ROOT, Database, statements_of
from sqlalchemy import Connection, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from locus_store.core.errors import StoreBusyError
from locus_store.migrations import commands, upgrade
from locus_store.migrations.locks import one_in_this_process
from locus_store.sql.schema import VERSION_TABLE, check

ROWS = f"SELECT (SELECT count(*) FROM locus_store_schema), (SELECT count(*) FROM {VERSION_TABLE})"


def async_engine(database: Database) -> Any:
    return database.async_engine()


# --- transactions -----------------------------------------------------------------------------------------------------


def test_commits_its_own_transaction(database: Database) -> None:
    def work(connection: Connection) -> None:
        upgrade(connection)
        assert not connection.in_transaction()

    database(work, begin=False)
    assert database.tables() == OURS


def test_joins_the_callers_transaction_and_is_rolled_back_with_it(transactional: Database) -> None:
    transactional.execute("CREATE TABLE hosts (id INTEGER)")

    def work(connection: Connection) -> None:
        with connection.begin() as transaction:
            connection.exec_driver_sql("INSERT INTO hosts VALUES (1)")
            upgrade(connection)
            check(connection)
            assert OURS.issubset(inspect(connection).get_table_names())
            transaction.rollback()

    transactional(work, begin=False)
    assert transactional.tables() == {"hosts"}
    assert transactional.execute("SELECT * FROM hosts") == []
    transactional(upgrade)
    transactional(check)


def test_first_in_the_callers_transaction(transactional: Database) -> None:
    def work(connection: Connection) -> None:
        with connection.begin() as transaction:
            upgrade(connection)
            connection.exec_driver_sql("CREATE TABLE hosts (id INTEGER)")
            transaction.rollback()

    transactional(work, begin=False)
    assert transactional.tables() == set()


def sqlite_with_a_begin_of_its_own(url: str) -> Any:
    """An engine with SQLAlchemy's recipe for real transactions on SQLite."""
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def connect(driver: Any, record: object) -> None:
        driver.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def test_sqlite_with_real_transactions(sqlite: Database) -> None:
    engine = sqlite_with_a_begin_of_its_own(sqlite.url)
    with engine.connect() as connection, connection.begin() as transaction:
        upgrade(connection)
        check(connection)
        transaction.rollback()
    assert sqlite.tables() == set()
    with engine.begin() as connection:
        upgrade(connection)
    assert sqlite.tables() == OURS
    engine.dispose()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the driver's autocommit mode came with Python 3.12")
def test_sqlite_in_the_drivers_new_mode(sqlite: Database) -> None:
    engine = create_engine(sqlite.url, connect_args={"autocommit": False})
    with engine.connect() as connection, connection.begin() as transaction:
        upgrade(connection)
        transaction.rollback()
    assert sqlite.tables() == set()
    with engine.begin() as connection:
        upgrade(connection)
    assert sqlite.tables() == OURS
    engine.dispose()


def test_autocommit_is_refused(postgresql: Database) -> None:
    def work(connection: Connection) -> None:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(ValueError, match="autocommit"):
            upgrade(connection)

    postgresql(work, begin=False)
    assert postgresql.tables() == set()


def test_an_upgrade_that_fails_leaves_nothing(transactional: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    real = commands.MigrationContext.run_migrations

    def fail(self: Any) -> None:
        real(self)
        raise RuntimeError("half way")

    monkeypatch.setattr(commands.MigrationContext, "run_migrations", fail)
    with pytest.raises(RuntimeError, match="half way"):
        transactional(upgrade, begin=False)
    assert transactional.tables() == set()
    monkeypatch.undo()
    transactional(upgrade)


# --- nothing to do ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [True, False])
def test_ready_tables_get_no_ddl_and_no_lock(database: Database, begin: bool) -> None:
    database(upgrade)

    def work(connection: Connection) -> list[str]:
        seen = statements_of(connection)
        upgrade(connection)
        return seen

    seen = database(work, begin=begin)
    assert len(seen) <= 2
    assert [statement for statement in seen if not statement.startswith(("SELECT", "PRAGMA", "SHOW"))] == []
    assert "advisory" not in "".join(seen)


def test_a_role_without_the_right_to_ddl(postgresql: Database) -> None:
    role = f"locus_dml_{postgresql.url.rpartition('/')[2]}"
    postgresql(upgrade)
    postgresql.execute(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"CREATE ROLE {role}",
        *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}" for table in OURS - {VERSION_TABLE}),
    )

    def work(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET ROLE {role}")
        with pytest.raises(DBAPIError), connection.begin_nested():
            connection.exec_driver_sql("CREATE TABLE forbidden (id INTEGER)")
        check(connection)
        upgrade(connection)
        connection.commit()
        check(connection)
        upgrade(connection)

    try:
        postgresql(work, begin=False)
    finally:
        postgresql.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# --- together ---------------------------------------------------------------------------------------------------------

WORKER = """
import sys
from migrations.conftest import Database
from locus_store.migrations import upgrade
from locus_store.sql.schema import check

database = Database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
database(upgrade, begin=sys.argv[2] == "begin")
database(check)
"""


@pytest.mark.parametrize("how", ["begin", "own", "alembic"])
def test_five_processes_at_once(database: Database, how: str) -> None:
    if how == "begin" and not database.transactional:
        pytest.skip("where DDL ends a transaction, migrating refuses to work in one")
    if how == "alembic":
        command = [
            sys.executable,
            "-c",
            "input(print('ready', flush=True) or ''); import alembic.config as a; a.main()",
        ]
        command += ["upgrade", "head"]
    else:
        command = [sys.executable, "-c", WORKER, database.url, how]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "LOCUS_STORE_URL": database.url}
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(5)
    ]
    for process in processes:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    told = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 5, told
    assert database.tables() == OURS
    assert database.execute(ROWS) == [(1, 1)]


def test_one_that_dies_while_it_migrates_blocks_nobody(database: Database) -> None:
    program = """
import os, sys
from migrations.conftest import Database
from locus_store.migrations import commands, upgrade

commands.MigrationContext.run_migrations = lambda self: (print("in", flush=True), sys.stdin.readline())
Database(sys.argv[1])(upgrade)
"""
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", program, database.url]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"in\n"
        waiting = threading.Thread(target=lambda: database(upgrade))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        holder.kill()
        waiting.join(30)
    assert not waiting.is_alive()
    database(check)


def test_threads_of_one_process(database: Database, tmp_path: Path) -> None:
    databases = [database, database, *(Database(f"sqlite:///{tmp_path / f'{n}.db'}") for n in range(4))]
    failures: list[BaseException] = []

    def work(each: Database) -> None:
        try:
            each(upgrade)
        except BaseException as error:  # noqa: BLE001, RUF100 - whatever it is, it must be told
            failures.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for each in databases:
        each(check)


async def test_tasks_of_one_loop(postgresql: Database) -> None:
    engine = async_engine(postgresql)

    async def task(schema: str) -> None:
        async with engine.begin() as connection:
            await connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))
            await connection.run_sync(lambda c: upgrade(c, schema=schema))

    async with asyncio.timeout(60):
        await asyncio.gather(*(task(f"tenant_{n}") for n in range(4)))
        async with engine.connect() as connection:
            for n in range(4):
                await connection.run_sync(lambda c, schema: check(c, schema=schema), f"tenant_{n}")
    await engine.dispose()


async def test_a_task_waits_for_another_without_stopping_the_loop(database: Database) -> None:
    engine = async_engine(database)
    steps: list[str] = []

    def hold(connection: Connection) -> None:
        with one_in_this_process(connection):
            steps.append("held")
            connection.connection.dbapi_connection.run_async(lambda _: asyncio.sleep(0.1))  # type: ignore[union-attr]
            steps.append("free")

    async def run(connection: AsyncConnection) -> None:
        await connection.run_sync(upgrade)
        steps.append("done")

    begin = engine.begin if database.transactional else engine.connect
    async with begin() as first, begin() as second, asyncio.timeout(30):
        await asyncio.gather(first.run_sync(hold), run(second))
    assert steps == ["held", "free", "done"]
    await engine.dispose()


async def test_a_plain_call_that_would_wait_for_a_task_of_its_own_loop(sqlite: Database) -> None:
    engine = async_engine(sqlite)
    plain = create_engine("sqlite://")

    def hold(connection: Connection) -> None:
        with (
            one_in_this_process(connection),
            plain.begin() as other,
            pytest.raises(StoreBusyError, match="await it first"),
        ):
            upgrade(other)

    async with engine.begin() as connection:
        await connection.run_sync(hold)
    await engine.dispose()
    plain.dispose()


# --- inside a running loop --------------------------------------------------------------------------------------------


async def test_inside_a_running_loop(transactional: Database) -> None:
    engine = async_engine(transactional)
    async with engine.connect() as connection:
        async with connection.begin() as transaction:
            await connection.run_sync(upgrade)
            await connection.run_sync(check)
            await transaction.rollback()
        assert OURS.isdisjoint(await connection.run_sync(lambda c: inspect(c).get_table_names()))
    async with engine.begin() as connection:
        await connection.run_sync(upgrade)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade)
        await connection.run_sync(check)
    await engine.dispose()
