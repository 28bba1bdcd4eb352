"""Alembic's commands in a checkout, and without one."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from migrations.conftest import OURS, ROOT, Database, run, run_alembic

from locus_store.migrations import upgrade
from locus_store.sql.schema import REVISION, VERSION_TABLE, check


def test_up_down_and_up_again(database: Database) -> None:
    assert "not up to date" in database.alembic("check", fails=True)
    assert database.tables() == set()

    database.alembic("upgrade", "head")
    assert database.tables() == OURS
    assert database.execute("SELECT * FROM locus_store_schema") == [(1, REVISION, 1)]
    assert database.execute(f"SELECT * FROM {VERSION_TABLE}") == [(REVISION,)]
    assert REVISION in database.alembic("current")
    assert "No new upgrade operations" in database.alembic("check")
    database(check)

    database.alembic("downgrade", "base")
    assert database.tables() == set()

    database.alembic("upgrade", "head")
    assert database.tables() == OURS
    database.alembic("upgrade", "head")
    database(upgrade)
    database(check)


def test_reading_commands_make_nothing(database: Database) -> None:
    database.alembic("current")
    database.alembic("history")
    database.alembic("heads")
    assert database.tables() == set()


def test_a_schema(postgresql: Database) -> None:
    postgresql.execute("CREATE SCHEMA agents")
    postgresql.alembic("-x", "schema=agents", "upgrade", "head")
    assert postgresql.tables() == set()
    assert postgresql.tables("agents") == OURS
    assert "No new upgrade operations" in postgresql.alembic("-x", "schema=agents", "check")
    postgresql(lambda connection: check(connection, schema="agents"))

    postgresql.alembic("-x", "schema=public", "upgrade", "head")
    assert "No new upgrade operations" in postgresql.alembic("-x", "schema=public", "check")
    assert "No new upgrade operations" in postgresql.alembic("check")

    postgresql.alembic("-x", "schema=agents", "downgrade", "base")
    assert postgresql.tables("agents") == set()
    assert postgresql.tables() == OURS


def test_the_option_goes_before_the_environment(sqlite: Database, tmp_path: Path) -> None:
    other = Database(f"sqlite:///{tmp_path / 'other.db'}")
    sqlite.alembic("-x", f"url={other.url}", "upgrade", "head")
    assert not (tmp_path / "store.db").exists()
    assert other.tables() == OURS


def test_an_async_url_of_sqlite(tmp_path: Path) -> None:
    run_alembic("upgrade", "head", LOCUS_STORE_URL=f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
    assert Database(f"sqlite:///{tmp_path / 'store.db'}").tables() == OURS


def test_the_default_is_a_file_in_the_working_folder(tmp_path: Path) -> None:
    # Where alembic.ini is told from does not matter, as the package is found from there.
    run_alembic("upgrade", "head", cwd=tmp_path)
    assert Database(f"sqlite:///{tmp_path / 'locus_store.db'}").tables() == OURS


def test_a_password_with_a_percent_sign(mariadb: Database) -> None:
    user = f"owner_{mariadb.short_name}"[:32]
    mariadb.execute(f"CREATE USER {user} IDENTIFIED BY '50%(here)s'", f"GRANT ALL ON {mariadb.short_name}.* TO {user}")
    parts = urlsplit(mariadb.url)
    try:
        owner = Database(f"{parts.scheme}://{user}:50%25(here)s@{parts.hostname}:{parts.port}{parts.path}")
        owner.alembic("upgrade", "head")
        assert "No new upgrade operations" in owner.alembic("check")
        told = owner.alembic("current")
        assert REVISION in told
        assert "here" not in told
    finally:
        mariadb.execute(f"DROP USER {user}")
    assert mariadb.tables() == OURS


def test_from_a_wheel(sqlite: Database, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    run([*command, str(ROOT)], cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere.mkdir()
    options = {"cwd": elsewhere, "PYTHONPATH": str(site), "LOCUS_STORE_URL": sqlite.url}
    run([sys.executable, "-m", "locus_store.migrations", "upgrade", "head"], **options)
    assert sqlite.tables() == OURS
    found = "import locus_store.migrations as m; print(m.__file__, m.head_revision())"
    assert run([sys.executable, "-c", found], **options).split() == [
        str(site / "locus_store" / "migrations" / "__init__.py"),
        REVISION,
    ]


def test_without_a_checkout(sqlite: Database, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "locus_store.migrations"]
    run([*command, "upgrade", "head"], cwd=tmp_path, LOCUS_STORE_URL=sqlite.url)
    assert "No new upgrade operations" in run([*command, "check"], cwd=tmp_path, LOCUS_STORE_URL=sqlite.url)
    assert "CREATE TABLE" in run([*command, "-x", "url=oracle://", "upgrade", "head", "--sql"], cwd=tmp_path)
    assert "usage:" in run(command, cwd=tmp_path, fails=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-x", "ulr=sqlite://"], "-x ulr: not known"),
        (["-x", "url=memory://"], "memory:// is no relational database"),
        (["-x", "url=postgresql+pg8000://h/d"], "needs the package 'pg8000': pip install 'locus-store[postgresql]'"),
        (["-x", "url=mariadb+mariadbconnector://h/d"], "pip install 'locus-store[mysql]'"),
        (["-x", "url=postgresql://u:p@secret@127.0.0.1:1/d"], "an '@' in a user or a password is written %40"),
        (["-x", "url=no-url-with-secret"], "not the URL of a relational database"),
        (["-x", "url=sqlite:///no/folder/a.db"], "cannot be reached, or the connection was lost: OperationalError"),
        (["-x", "url=sqlite://", "-x", "schema=agents"], "unknown database agents; the statement was: CREATE TABLE"),
        (
            ["-x", "url=postgresql://u:secret@127.0.0.1:1/d"],
            "the database cannot be reached, or the connection was lost",
        ),
        (["-x", "url=mysql://u:secret@127.0.0.1:1/d"], "the database cannot be reached, or the connection was lost"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    told = run_alembic(*arguments, "upgrade", "head", cwd=tmp_path, fails=True)
    assert message in told
    assert "Traceback" not in told
    assert "secret" not in told
    assert list(tmp_path.iterdir()) == []


def test_a_url_in_the_file_is_refused_and_not_overlooked(tmp_path: Path) -> None:
    (tmp_path / "alembic.ini").write_text(
        "[alembic]\nscript_location = locus_store:migrations\nsqlalchemy.url = sqlite:///mine.db\n"
    )
    told = run([sys.executable, "-m", "alembic", "upgrade", "head"], cwd=tmp_path, fails=True)
    assert "sqlalchemy.url is not read" in told
    assert [path.name for path in tmp_path.iterdir()] == ["alembic.ini"]


def test_a_new_revision_gets_a_name_that_sorts(tmp_path: Path) -> None:
    for name in ("alembic.ini", "alembic", "locus_store"):
        run(["cp", "-r", str(ROOT / name), str(tmp_path / name)])
    alembic = [sys.executable, "-m", "alembic"]
    run([*alembic, "revision", "--rev-id", "ls9999", "-m", "Try it"], cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (tmp_path / "locus_store/migrations/versions/ls9999_try_it.py").exists()
    url = f"sqlite:///{tmp_path / 'store.db'}"
    run([*alembic, "upgrade", "head"], cwd=tmp_path, PYTHONPATH=str(tmp_path), LOCUS_STORE_URL=url)
    assert Database(url).execute("SELECT revision FROM locus_store_schema") == [("ls9999",)]
    run([*alembic, "downgrade", "-1"], cwd=tmp_path, PYTHONPATH=str(tmp_path), LOCUS_STORE_URL=url)
    assert Database(url).execute("SELECT revision FROM locus_store_schema") == [(REVISION,)]
