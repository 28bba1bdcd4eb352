"""This release and one that comes after it, which has one more revision, on the same database."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from migrations.conftest import ROOT, Database

from locus_store import SchemaAheadError, open_backend
from locus_store.migrations import upgrade
from locus_store.sql.schema import REVISION

NEXT = "ls0900"
REVISION_FILE = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{REVISION}"
branch_labels = None
depends_on = None


def _set(value):
    schema = op.get_context().opts.get("locus_store_schema")
    row = sa.table("locus_store_schema", sa.column("revision", sa.String), schema=schema)
    op.execute(row.update().values(revision=value))


def upgrade():
    schema = op.get_context().opts.get("locus_store_schema")
    op.create_index("ix_locus_store_next", "locus_store_threads", ["head_version"], schema=schema)
    _set(revision)


def downgrade():
    schema = op.get_context().opts.get("locus_store_schema")
    op.drop_index("ix_locus_store_next", "locus_store_threads", schema=schema)
    _set(down_revision)
"""
PROGRAM = """
import asyncio, json, sys
from locus_store import SchemaError, open_backend
from locus_store.sql.schema import REVISION

assert REVISION == "{next}"

async def main(url, options, *steps):
    async with open_backend(url, **json.loads(options)) as store:
        for step in steps:
            try:
                await {{"setup": store.setup, "use": lambda: store.save("t", {{"by": "next"}})}}[step]()
                print(json.dumps([step, "done"]))
            except SchemaError as error:
                print(json.dumps([step, type(error).__name__, error.current, error.wanted, str(error)]))

if "wait" in sys.argv[1]:
    print("ready", flush=True)
    sys.stdin.readline()
asyncio.run(main(*sys.argv[2:]))
"""


class NextRelease:
    """A copy of the package with one more revision."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(ROOT / "locus_store", folder / "locus_store", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / f"locus_store/migrations/versions/{NEXT}_next.py").write_text(REVISION_FILE)
        schema = folder / "locus_store/sql/schema.py"
        text, count = re.subn(
            r"^REVISIONS = \((.*)\)$", rf'REVISIONS = (*(\1), "{NEXT}")', schema.read_text(), flags=re.M
        )
        assert count == 1
        schema.write_text(text)
        self._folder = folder

    def start(self, database: Database, *steps: str, wait: bool = False, **options: Any) -> subprocess.Popen[str]:
        program = textwrap.dedent(PROGRAM.format(next=NEXT))
        how = "wait" if wait else "go"
        return subprocess.Popen(
            [sys.executable, "-c", program, how, database.url, json.dumps(options), *steps],
            cwd=self._folder,
            env={"PYTHONPATH": str(self._folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, database: Database, *steps: str, **options: Any) -> list[Any]:
        """What it said to each step."""
        out, err = self.start(database, *steps, **options).communicate(timeout=120)
        assert err == ""
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> NextRelease:
    return NextRelease(tmp_path_factory.mktemp("next"))


def revision(database: Database) -> str:
    return str(database.execute("SELECT revision FROM locus_store_schema")[0][0])


async def test_case_76_setup_upgrades_in_place(database: Database, next_release: NextRelease) -> None:
    async with open_backend(database.url) as old:
        await old.save("t", {"by": "this", "l": ["x" * 300] * 5}, "c1")

    assert next_release(database, "setup", "setup", "use") == [["setup", "done"], ["setup", "done"], ["use", "done"]]
    assert revision(database) == NEXT

    async with open_backend(database.url) as old:
        with pytest.raises(SchemaAheadError, match=f"found revision {NEXT}, needed {REVISION}.*upgrade the package"):
            await old.load("t")
    database.execute(f"UPDATE locus_store_schema SET revision = '{REVISION}'")
    async with open_backend(database.url) as old:
        assert await old.load("t", "c1") == {"by": "this", "l": ["x" * 300] * 5}
        assert await old.load("t") == {"by": "next"}


def test_first_use_leaves_what_others_may_be_using(database: Database, next_release: NextRelease) -> None:
    database(upgrade)
    ((_, *said),) = next_release(database, "use")
    if database.name == "sqlite":
        # A file is its program's own.
        assert said == ["done"]
        assert revision(database) == NEXT
        return
    assert said[:3] == ["SchemaNotReadyError", REVISION, NEXT]
    assert "python -m locus_store.migrations upgrade head" in said[3]
    assert revision(database) == REVISION


def test_nothing_is_changed_where_that_is_not_allowed(database: Database, next_release: NextRelease) -> None:
    database(upgrade)
    for step, *said in next_release(database, "setup", "use", create_schema=False):
        assert said[:3] == ["SchemaNotReadyError", REVISION, NEXT], step
    assert revision(database) == REVISION


def test_a_role_without_the_right_to_change_tables(postgresql: Database, next_release: NextRelease) -> None:
    role = f"locus_rows_{postgresql.short_name}"
    postgresql(upgrade)
    postgresql.execute(
        f"CREATE ROLE {role}", f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
    )
    try:
        as_role = {"connect_args": {"server_settings": {"role": role}}}
        ((_, *said),) = next_release(postgresql, "setup", **as_role)
        assert said[:3] == ["SchemaNotReadyError", REVISION, NEXT]
        assert "this user may not change them" in said[3]
    finally:
        postgresql.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_case_72_five_processes_upgrade_at_once(database: Database, next_release: NextRelease) -> None:
    database(upgrade)
    processes = [next_release.start(database, "setup", "use", wait=True) for _ in range(5)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (out, err) == ('["setup", "done"]\n["use", "done"]\n', "")
    assert database.execute("SELECT count(*) FROM locus_store_schema")[0][0] == 1
    assert database.execute("SELECT count(*) FROM locus_store_alembic")[0][0] == 1
    assert revision(database) == NEXT
    assert database.execute("SELECT version FROM locus_store_threads")[0][0] == 5
