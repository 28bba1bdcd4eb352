"""The script that ``--sql`` writes for Oracle, statement by statement, and what comes of it."""

from __future__ import annotations

import re
from pathlib import Path

from migrations.conftest import run_alembic
from oracle.checks import complaints
from oracle.oracle_standin.backend import StandInBackend
from oracle.test_standin import Connect


def statements(tmp_path: Path) -> list[str]:
    text = run_alembic("-x", "url=oracle://", "upgrade", "head", "--sql", cwd=tmp_path)
    text = re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
    return [part.strip() for part in re.split(r"^/$", text, flags=re.MULTILINE) if part.strip()]


def test_every_statement_of_the_script_is_oracles(tmp_path: Path) -> None:
    found = statements(tmp_path)
    assert len(found) >= 12
    for statement in found:
        assert complaints(statement) == []


async def test_a_database_made_by_the_script_is_ready(tmp_path: Path, connect: Connect, standin_url: str) -> None:
    connection = await connect()
    for (table,) in await connection.fetchall("SELECT table_name FROM all_tables WHERE owner = 'LOCUS'"):
        await connection.execute(f"DROP TABLE {table}")
    for statement in statements(tmp_path):
        await connection.execute(statement)
    async with StandInBackend(standin_url, create_schema=False) as store:
        await store.save("t", {"n": 1})
        assert await store.load("t") == {"n": 1}
