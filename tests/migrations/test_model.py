"""The schema of the migrations is the schema of the model."""

from __future__ import annotations

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from migrations.conftest import OURS, Database
from sqlalchemy import Connection, inspect

from locus_store.migrations import head_revision, upgrade
from locus_store.migrations.commands import script_directory
from locus_store.sql.models import metadata
from locus_store.sql.schema import REVISION, REVISIONS, VERSION_TABLE

# What PostgreSQL keeps about the tables: their columns, indexes and constraints.
CATALOG = """
    SELECT 'column', relname, attname, format_type(atttypid, atttypmod),
            concat(attnotnull, attidentity, attcollation::regcollation)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relname LIKE 'locus_store_%' AND relkind = 'r' AND attnum > 0
    UNION ALL
    SELECT 'index', tablename, indexname, indexdef, '' FROM pg_indexes WHERE tablename LIKE 'locus_store_%'
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '' FROM pg_constraint
        WHERE conname LIKE '%locus_store_%' AND contype <> 'n'
"""


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": VERSION_TABLE})
    return compare_metadata(context, metadata)


def test_one_history_with_one_head() -> None:
    scripts = script_directory()
    assert scripts.get_heads() == [REVISION]
    assert head_revision() == REVISION
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == REVISIONS
    first = scripts.get_revision(REVISIONS[0])
    assert first is not None
    assert first.branch_labels == {"locus_store"}


def test_no_difference(database: Database) -> None:
    database(upgrade)
    assert database(differences) == []


def test_differences_would_be_seen(database: Database) -> None:
    database(upgrade)
    on = " ON locus_store_terms" if database.name == "mariadb" else ""
    database.execute(f"DROP INDEX ix_locus_store_terms{on}", "ALTER TABLE locus_store_blocks ADD COLUMN more INTEGER")
    assert len(database(differences)) == 2


def test_sqlite_keeps_the_very_same_text(sqlite: Database, tmp_path: Any) -> None:
    other = Database(f"sqlite:///{tmp_path / 'other.db'}")
    sqlite(upgrade)
    other(metadata.create_all)
    text = "SELECT name, sql FROM sqlite_master WHERE tbl_name <> 'locus_store_alembic' ORDER BY name"
    assert sqlite.execute(text) == other.execute(text)


def test_postgresql_has_the_very_same_catalog(postgresql: Database) -> None:
    postgresql(metadata.create_all)
    expected = set(map(tuple, postgresql.execute(CATALOG)))
    postgresql(metadata.drop_all)
    postgresql(upgrade)
    found = set(map(tuple, postgresql.execute(CATALOG)))
    assert {row for row in found if VERSION_TABLE not in row[1]} == expected


def test_large_blocks_are_compressed_and_small_ones_stay_in_their_rows(postgresql: Database) -> None:
    postgresql(upgrade)
    assert postgresql.execute(
        "SELECT attstorage, reloptions FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
        "WHERE relname = 'locus_store_blocks' AND attname = 'payload'"
    ) == [(b"x", ["toast_tuple_target=8160"])]


def test_names_are_short_enough_for_every_database(database: Database) -> None:
    database(upgrade)

    def names(connection: Connection) -> set[str | None]:
        inspector = inspect(connection)
        found: set[str | None] = set(OURS)
        for table in OURS:
            found |= {column["name"] for column in inspector.get_columns(table)}
            found |= {index["name"] for index in inspector.get_indexes(table)}
            found |= {unique["name"] for unique in inspector.get_unique_constraints(table)}
            found.add(inspector.get_pk_constraint(table)["name"])
        return found

    assert [name for name in database(names) if name and len(name.encode()) > 30] == []
