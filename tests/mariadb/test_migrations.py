"""Migrating where DDL ends a transaction."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mariadb.conftest import Open
from migrations.conftest import OURS, ROOT, Database, run_alembic, statements_of
from migrations.test_offline import script
from postgresql.steps import fresh, save
from sqlalchemy import Connection, event

from locus_store.core.errors import SchemaIncompleteError, TransactionNotAllowedError
from locus_store.migrations import upgrade
from locus_store.sql.schema import REVISION, VERSION_TABLE, check


class KilledError(Exception):
    """Stands for the end of a process."""


def killed_at(connection: Connection, step: int) -> None:
    """Ends an upgrade before its statement number `step` that changes anything."""
    count = iter(range(step, -1, -1))

    @event.listens_for(connection, "before_cursor_execute")
    def before(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not re.match(r"\s*(SELECT|SHOW|COMMIT)", statement) and next(count) == 0:
            raise KilledError


def changes(database: Database) -> list[str]:
    def work(connection: Connection) -> list[str]:
        seen = statements_of(connection)
        upgrade(connection)
        return [statement for statement in seen if not re.match(r"\s*(SELECT|SHOW|COMMIT)", statement)]

    return database(work)


def test_an_upgrade_that_was_ended_anywhere_is_begun_again(mariadb: Database) -> None:
    steps = len(changes(mariadb))
    assert steps >= 11  # seven tables, two indexes, two rows
    mariadb.alembic("downgrade", "base")
    assert mariadb.tables() == set()
    for step in range(steps):

        def work(connection: Connection, step: int = step) -> None:
            killed_at(connection, step)
            upgrade(connection)

        with pytest.raises(KilledError):
            mariadb(work)
        if step % 2:
            mariadb(upgrade)
        else:
            mariadb.alembic("upgrade", "head")
        mariadb(check)
        assert mariadb.tables() == OURS
        assert mariadb.execute(f"SELECT * FROM {VERSION_TABLE}") == [(REVISION,)]
        assert "No new upgrade operations" in mariadb.alembic("check")
        mariadb.alembic("downgrade", "base")
        assert mariadb.tables() == set()


async def test_a_store_goes_on_where_another_was_killed(mariadb: Database, open_driver: Open) -> None:
    program = """
import os, signal, sys
from alembic.ddl.impl import DefaultImpl
from migrations.conftest import Database
from locus_store.migrations import upgrade

made = []
create = DefaultImpl.create_table

def create_table(self, table, **options):
    if len(made) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    made.append(table)
    create(self, table, **options)

DefaultImpl.create_table = create_table
Database(sys.argv[1])(upgrade)
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", program, mariadb.url], cwd=ROOT, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert 1 < len(mariadb.tables()) < len(OURS)
    with pytest.raises(SchemaIncompleteError):
        await save(open_driver(create_schema=False), fresh("x"))
    await save(open_driver(), fresh("x"))
    assert mariadb.tables() == OURS


async def test_what_is_half_there_and_holds_something_is_left_alone(mariadb: Database, open_driver: Open) -> None:
    await save(open_driver(), fresh("x"))
    mariadb.execute("DROP TABLE locus_store_schema", f"DELETE FROM {VERSION_TABLE}")
    before = mariadb.tables()
    with pytest.raises(SchemaIncompleteError, match="locus_store_schema"):
        mariadb(upgrade)
    told = run_alembic("upgrade", "head", fails=True, LOCUS_STORE_URL=mariadb.url)
    assert "only half there" in told
    assert mariadb.tables() == before
    assert mariadb.execute("SELECT count(*) FROM locus_store_checkpoints") == [(1,)]
    with pytest.raises(SchemaIncompleteError):
        await save(open_driver(), fresh("y"))


def test_a_transaction_of_the_callers_is_not_committed(mariadb: Database) -> None:
    mariadb.execute("CREATE TABLE hosts (id INTEGER)")

    def work(connection: Connection) -> None:
        with connection.begin() as transaction:
            connection.exec_driver_sql("INSERT INTO hosts VALUES (1)")
            with pytest.raises(TransactionNotAllowedError, match="commit or roll back first"):
                upgrade(connection)
            transaction.rollback()

    mariadb(work, begin=False)
    assert mariadb.tables() == {"hosts"}
    assert mariadb.execute("SELECT * FROM hosts") == []

    # Where there is nothing to do, there is nothing to refuse.
    mariadb(upgrade)
    mariadb(upgrade, begin=True)


def test_the_lock_is_free_afterwards(mariadb: Database) -> None:
    def work(connection: Connection) -> None:
        upgrade(connection)
        name = connection.exec_driver_sql("SELECT concat('locus_store ', md5(database()))").scalar_one()
        assert connection.exec_driver_sql(f"SELECT IS_FREE_LOCK('{name}')").scalar_one() == 1

    mariadb(work)


def test_tables_are_transactional_and_exact_whatever_the_servers_defaults_are(mariadb: Database) -> None:
    mariadb.execute(f"ALTER DATABASE `{mariadb.url.rpartition('/')[2]}` CHARACTER SET latin1")

    def work(connection: Connection) -> None:
        connection.exec_driver_sql("SET SESSION default_storage_engine = 'MyISAM'")
        connection.commit()
        upgrade(connection)

    mariadb(work)
    query = "SELECT table_name, engine, table_collation FROM information_schema.tables WHERE table_schema = database()"
    assert set(map(tuple, mariadb.execute(query))) == {(name, "InnoDB", "utf8mb4_bin") for name in OURS}


async def test_setting_up_writes_nothing_into_the_log(driver: Any, caplog: pytest.LogCaptureFixture) -> None:
    await driver.prepare()
    await save(driver, fresh("x"))
    assert [record for record in caplog.records if record.name != "alembic.runtime.migration"] == []


def test_the_offline_script_makes_what_the_command_makes(mariadb: Database, tmp_path: Path) -> None:
    text = re.sub(r"^--.*$", "", script("mysql", tmp_path), flags=re.M)
    mariadb.execute(*[statement for statement in text.split(";") if statement.strip() not in ("", "BEGIN", "COMMIT")])
    mariadb(check)
    assert "No new upgrade operations" in mariadb.alembic("check")
    assert text.count("ENGINE=InnoDB") >= 6


def test_the_server_complains_of_no_name(mariadb_url: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LOCUS_STORE_URL": mariadb_url}
    command = [sys.executable, "-m", "locus_store.migrations", "upgrade", "head"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "Running upgrade" in done.stderr
    assert "ignored" not in done.stderr
