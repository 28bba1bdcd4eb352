"""``--sql``: scripts for databases that are not here, with no driver installed."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest
from migrations.conftest import OURS, ROOT, Database, run_alembic

from locus_store.sql.schema import REVISION, check

DIALECTS = ["oracle", "postgresql", "sqlite", "mysql", "mariadb"]

# What other databases have not, or take for something else.
FORBIDDEN = r"\b(BOOLEAN|BOOL|JSON|JSONB|DATE|DATETIME|TIMESTAMP\w*|CLOB|NCLOB|FLOAT|REAL|ENUM)\b"


def script(dialect: str, tmp_path: Path, *options: str) -> str:
    return run_alembic("-x", f"url={dialect}://", *options, "upgrade", "head", "--sql", cwd=tmp_path)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_renders(dialect: str, tmp_path: Path) -> None:
    text = script(dialect, tmp_path)
    assert set(re.findall(r"CREATE TABLE (\w+)", text)) == OURS
    assert f"VALUES (1, '{REVISION}', 1)" in text
    assert "RETURNING" not in text
    assert "COMMIT" in text
    assert re.findall(FORBIDDEN, text, re.IGNORECASE) == []
    assert list(tmp_path.iterdir()) == []


def test_no_driver_is_needed(tmp_path: Path) -> None:
    """They are kept from being imported, whether or not they are installed."""
    drivers = ("asyncmy", "asyncpg", "cx_Oracle", "MySQLdb", "oracledb", "psycopg", "psycopg2", "pymysql")
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules |= dict.fromkeys({drivers})\nprint('without drivers')\n"
    )
    for dialect in DIALECTS:
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        command = ["-x", f"url={dialect}://", "upgrade", "head", "--sql"]
        told = run_alembic(*command, cwd=tmp_path, PYTHONPATH=path)
        assert told.startswith("without drivers")
        assert "CREATE TABLE" in told


def test_oracle(tmp_path: Path) -> None:
    text = script("oracle", tmp_path)
    names = set(re.findall(r"(?:TABLE|INDEX|CONSTRAINT|ON) (\w+)", text)) | set(re.findall(r"^ {4}(\w+) ", text, re.M))
    assert {"locus_store_alembic_pkc", "uq_locus_store_checkpoints_id", "block_number"} <= names
    assert [name for name in names if len(name) > 30] == []
    assert "thread_id VARCHAR2(512 BYTE)" in text
    assert "term RAW(16)" in text
    assert "payload BLOB" in text
    assert ":" not in re.sub(r"^--.*$", "", text, flags=re.M)


def test_a_schema(tmp_path: Path) -> None:
    text = script("oracle", tmp_path, "-x", "schema=agents")
    assert set(re.findall(r"CREATE TABLE (\S+)", text)) == {f"agents.{name}" for name in OURS}
    assert set(re.findall(r"INSERT INTO (\S+)", text)) == {"agents.locus_store_schema", "agents.locus_store_alembic"}


def test_the_script_makes_what_the_command_makes_on_sqlite(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.executescript(script("sqlite", tmp_path / "."))
    connection.close()
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database(check)
    assert "No new upgrade operations" in database.alembic("check")


def test_the_script_makes_what_the_command_makes_on_postgresql(postgresql: Database, tmp_path: Path) -> None:
    text = re.sub(r"^--.*$", "", script("postgresql", tmp_path), flags=re.M)
    statements = [statement for statement in text.split(";") if statement.strip() not in ("", "BEGIN", "COMMIT")]
    postgresql.execute(*statements)
    postgresql(check)
    assert "No new upgrade operations" in postgresql.alembic("check")
