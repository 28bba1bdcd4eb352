"""Databases of past releases: brought up to date where they are, with all that is in them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from exactness import differs
from migrations.conftest import DATABASES, Database
from migrations.fixtures.make_ls0001 import EVERYTHING, GROWING, RECORDS
from migrations.test_model import differences
from sqlalchemy import Connection, select

from locus_store import open_backend
from locus_store.migrations import upgrade
from locus_store.sql.models import Block, Checkpoint, Thread
from locus_store.sql.schema import REVISIONS, check

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture(params=[f"{revision} {database}" for revision in REVISIONS for database in DATABASES])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A copy of the database that the release of that revision made."""
    revision, name = request.param.split()
    database: Database = request.getfixturevalue(name)
    if name == "sqlite":
        shutil.copy(FIXTURES / f"{revision}.sqlite3", tmp_path / "store.db")
        return database
    script = gzip.decompress((FIXTURES / f"{revision}.{database.name}.sql.gz").read_bytes()).decode()
    statements = [statement.strip() for statement in script.split(";\n")]
    database.execute(*(statement for statement in statements if statement not in ("", "BEGIN", "COMMIT")))
    return database


def test_upgrading_a_past_release_loses_nothing(old: Database) -> None:
    tables = old.tables() - {"locus_store_alembic", "locus_store_schema"}
    before = {table: old.execute(f"SELECT count(*) FROM {table}") for table in tables}
    assert [] not in before.values()
    assert [(0,)] not in before.values()
    old(upgrade)
    old(upgrade)
    old(check)
    assert old(differences) == []
    assert {table: old.execute(f"SELECT count(*) FROM {table}") for table in before} == before


def test_the_model_reads_it(old: Database) -> None:
    def work(connection: Connection) -> None:
        thread = connection.execute(select(Thread.id, Thread.tenant, Thread.created_at)).first()
        assert thread is not None
        assert thread.created_at.tzinfo is not None
        of_thread = select(Checkpoint.checkpoint_id, Checkpoint.stamp, Checkpoint.details, Block.payload).join(
            Block, Block.thread == Checkpoint.thread
        )
        rows = connection.execute(of_thread.where(Checkpoint.thread == thread.id)).all()
        assert rows
        assert all(len(row.stamp) == 16 and row.payload for row in rows)

    old(upgrade)
    old(work)


async def test_case_76_every_old_checkpoint_loads_equal_and_can_be_built_upon(old: Database) -> None:
    async with open_backend(old.url) as backend:
        await backend.setup()
        for checkpoint_id, document in GROWING.items():
            assert differs(await backend.load("growing", checkpoint_id), document) is None
        assert differs(await backend.load("everything"), EVERYTHING) is None
        assert await backend.list_checkpoints("copy", None) == [f"c{n}" for n in range(30, 0, -1)]
        assert await backend.records("growing", "scope") == RECORDS
        assert [r["checkpoint_id"] for r in await backend.query_by_metadata("tags", ["old"])] == ["c30", "c60"]
        assert await backend.tenant("other").load("growing") == {"n": 1}
        newer = {**GROWING["c60"], "messages": [*GROWING["c60"]["messages"], {"role": "assistant", "content": "new"}]}
        await backend.save("growing", newer, "c61")
        await backend.delete("growing", [f"c{n}" for n in range(1, 61)])
        assert differs(await backend.load("growing"), newer) is None
        assert await backend.vacuum(older_than_days=0) == 29
