"""What docs/migrations.md says is done, word for word, by a host that has an Alembic project of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from migrations.conftest import OURS, Database
from migrations.host_project import FILES, PAGE, HostProject, commands, sql

from locus_store import SchemaNotReadyError, TransactionNotAllowedError, open_backend
from locus_store.migrations import upgrade
from locus_store.sql.schema import REVISION, VERSION_TABLE, check

HOSTS = {"customers", "orders", "alembic_version"}
Make = Callable[..., HostProject]


@pytest.fixture
def make(tmp_path: Path, database: Database) -> Make:
    def project(**options: object) -> HostProject:
        (tmp_path / "host").mkdir()
        return HostProject(tmp_path / "host", database, **options)

    return project


def versions(database: Database) -> set[str]:
    return {row[0] for row in database.execute("SELECT version_num FROM alembic_version")}


# --- beside and inside ------------------------------------------------------------------------------------------------


def test_beside(database: Database, make: Make) -> None:
    host = make(inside=False)
    export, *ours = commands("Beside your own migrations")
    assert export.startswith("export LOCUS_STORE_URL=")
    assert len(ours) == 4
    for command in ours:
        host.shell(command)
    assert database.tables() == OURS

    host.alembic("upgrade", "head")
    assert database.tables() == OURS | HOSTS
    assert "No new upgrade operations" in host.alembic("check")
    host.shell(ours[1])
    host.program("shop/orders.py")

    host.alembic("downgrade", "base")
    database(check)
    assert database.tables() == OURS | {"alembic_version"}


def test_inside(database: Database, make: Make) -> None:
    host = make(inside=True)
    (command,) = commands("Inside your own history")
    host.shell(command)
    assert database.tables() == (OURS | HOSTS) - {VERSION_TABLE}
    database(check)
    assert "No new upgrade operations" in host.alembic("check")
    host.shell(command)
    host.program("shop/orders.py")
    # The singular, out of habit, is refused by Alembic.
    host.alembic("upgrade", "head", fails=True)

    host.alembic("downgrade", "shop@base")
    database(check)
    assert database.tables() == (OURS | {"alembic_version"}) - {VERSION_TABLE}
    host.alembic("downgrade", "locus_store@base")
    assert database.tables() == {"alembic_version"}
    with pytest.raises(SchemaNotReadyError):
        database(check)


def test_a_host_compares_both(database: Database, make: Make) -> None:
    host = make(inside=True)
    host.alembic("upgrade", "heads")
    env = host.folder / "migrations" / "env.py"
    target = FILES["compare.py"]
    env.write_text(
        target
        + env.read_text().replace(
            "target_metadata=Base.metadata, include_name=not_ours", "target_metadata=target_metadata"
        )
    )
    assert "No new upgrade operations" in host.alembic("check")
    database.execute("DROP TABLE locus_store_terms")
    host.alembic("check", fails=True)


def test_a_synchronous_env(database: Database, make: Make) -> None:
    drivers = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
    scheme, _, rest = database.url.partition("://")
    host = make(inside=True, url=f"{drivers[scheme]}://{rest}")
    host.alembic("upgrade", "heads")
    database(check)
    assert "No new upgrade operations" in host.alembic("check")


# --- changing ---------------------------------------------------------------------------------------------------------


def test_from_beside_to_inside_and_back(database: Database, make: Make) -> None:
    into, again, out, back = commands("Changing from one to the other")
    host = make(inside=False)
    database(upgrade)
    host.alembic("upgrade", "head")

    host.take_in()
    host.shell(into)
    host.shell(again)
    database.execute(f"DROP TABLE {VERSION_TABLE}")
    database(check)
    assert "No new upgrade operations" in host.alembic("check")
    database(upgrade)
    assert database.tables() == (OURS | HOSTS) - {VERSION_TABLE}

    host.take_out()
    host.shell(out)
    assert versions(database) == {"shop0001"}
    host.shell(back)
    assert database.execute(f"SELECT * FROM {VERSION_TABLE}")[0][0] == REVISION
    assert "No new upgrade operations" in host.alembic("check")
    assert "No new upgrade operations" in database.alembic("check")
    database.alembic("upgrade", "head")
    host.program("shop/orders.py")
    host.alembic("downgrade", "base")
    database.alembic("downgrade", "base")
    assert database.tables() == {"alembic_version"}


def test_joining_without_the_note_says_what_is_there(database: Database, make: Make) -> None:
    database(upgrade)
    host = make(inside=True)
    with pytest.raises(Exception, match="already exists"):
        host.alembic("upgrade", "heads")
    database(check)


# --- programs ---------------------------------------------------------------------------------------------------------


def test_case_74_setting_up_from_a_program(database: Database, make: Make) -> None:
    host = make(inside=False)
    host.program("set_up.py")
    assert database.tables() == OURS
    host.program("set_up.py")


def test_case_67_provisioning_in_one_transaction(database: Database, make: Make) -> None:
    host = make(inside=False)
    if not database.transactional:
        host.program("provision.py")
        assert database.tables() == OURS
        database.execute(*(f"DROP TABLE {table}" for table in OURS))
        with pytest.raises(TransactionNotAllowedError):
            database(upgrade, begin=True)
        assert database.tables() == set()
        return
    database.execute("CREATE TABLE provisioned (id INTEGER)")
    with pytest.raises(Exception, match="provisioned"):
        host.program("provision.py")
    assert database.tables() == {"provisioned"}
    database.execute("DROP TABLE provisioned")
    host.program("provision.py")
    assert database.tables() == OURS | {"provisioned"}


@pytest.fixture
def schemas(database: Database) -> Iterator[list[str]]:
    names = ["agents", "drafts"]
    kind = "SCHEMA" if database.name == "postgresql" else "DATABASE"
    if database.name != "sqlite":
        database.execute(*(f"CREATE {kind} {name}" for name in names))
    yield names
    if kind == "DATABASE" and database.name != "sqlite":
        database.execute(*(f"DROP DATABASE {name}" for name in names))


def test_stores_in_schemas(database: Database, make: Make, schemas: list[str]) -> None:
    if database.name == "sqlite":
        pytest.skip("SQLite has files in place of schemas")
    host = make(inside=False)
    host.program("two_stores.py (PostgreSQL, MariaDB)")
    host.program("other_schema.py (PostgreSQL, MariaDB)")
    assert database.tables() == set()
    for name in schemas:
        database(lambda connection, name=name: check(connection, schema=name))
        assert "No new upgrade operations" in database.alembic("-x", f"schema={name}", "check")


async def use(url: str, **options: object) -> None:
    """All that a store does on tables that are ready."""
    async with open_backend(url, create_schema=False, ttl_seconds=1e6, keep_checkpoints=40, **options) as store:
        await store.setup()
        for i in range(70):
            await store.save("t", {"l": ["x" * 200] * i}, f"c{i}", {"i": i})
        await store.save("t", {"l": []}, "c69")
        await store.put_records("t", "scope", {"k": 1})
        assert await store.records("t", "scope") == {"k": 1}
        assert await store.copy_thread("t", "u") is True
        assert await store.delete("t", ["c50", "c51"]) is True
        assert await store.vacuum(older_than_days=0) == 37 + 39
        assert await store.query_by_metadata("i", 68) == []
        assert await store.list_threads() == ["u", "t"]
        assert await store.delete("t") is True


async def test_case_69_these_rights_are_enough_on_mariadb(mariadb: Database) -> None:
    mariadb(upgrade)
    user, name = f"agent_{mariadb.short_name}"[:32], mariadb.short_name
    (grant,) = re.findall(r"`(GRANT .*?)`", PAGE)
    grant = grant.replace("database.*", f"{name}.*").replace("TO agent", f"TO {user}")
    mariadb.execute(f"CREATE USER {user} IDENTIFIED BY 'p%w'", grant)
    parts = urlsplit(mariadb.url)
    try:
        await use(f"{parts.scheme}://{user}:p%25w@{parts.hostname}:{parts.port}{parts.path}")
    finally:
        mariadb.execute(f"DROP USER {user}")


async def test_case_69_no_ddl_is_sent_to_sqlite(sqlite: Database) -> None:
    sqlite(upgrade)
    (before,) = sqlite.execute("PRAGMA schema_version")
    await use(sqlite.url)
    assert sqlite.execute("PRAGMA schema_version") == [before]


async def test_case_69_these_rights_are_enough_on_postgresql(postgresql: Database) -> None:
    role = f"locus_agent_{postgresql.short_name}"
    grants = [grant.strip().replace("TO agent", f"TO {role}") for grant in sql("Roles and rights").split(";")]
    postgresql(upgrade)
    postgresql.execute(f"CREATE ROLE {role}", *filter(None, grants))
    try:
        await use(postgresql.url, connect_args={"server_settings": {"role": role}})
    finally:
        postgresql.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_every_example_is_run() -> None:
    known = {"compare.py", "set_up.py", "provision.py", "alembic.ini", "shop/models.py", "shop/orders.py"}
    known |= {"migrations/env.py", "migrations/env.py (synchronous)", "migrations/versions/shop0001_customers.py"}
    known |= {"two_stores.py (PostgreSQL, MariaDB)", "other_schema.py (PostgreSQL, MariaDB)"}
    assert set(FILES) == known
    assert PAGE.count("```sh") == 4
    assert PAGE.count("```sql") == 1
