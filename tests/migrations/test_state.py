"""Missing, behind, ahead, half there: three clear errors; and what it costs when all is well."""

from __future__ import annotations

import pytest
from migrations.conftest import Database, statements_of
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from locus_store.core.errors import SchemaAheadError, SchemaError, SchemaIncompleteError, SchemaNotReadyError
from locus_store.migrations import upgrade
from locus_store.sql import schema
from locus_store.sql.schema import REVISION, State, check, state


def problem(database: Database, *, begin: bool = True) -> SchemaError:
    """What `check` says, with the transaction (if there is one) alive afterwards."""

    def work(connection: Connection) -> SchemaError:
        with pytest.raises(SchemaError) as caught:
            check(connection)
        assert connection.in_transaction() == begin
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        return caught.value

    return database(work, begin=begin)


@pytest.mark.parametrize("begin", [True, False])
def test_missing(database: Database, begin: bool) -> None:
    database.execute("CREATE TABLE locus_checkpoints (id INTEGER)", "CREATE TABLE threads (id INTEGER)")
    error = problem(database, begin=begin)
    assert type(error) is SchemaNotReadyError
    assert (error.current, error.wanted) == (None, REVISION)
    assert "python -m locus_store.migrations upgrade head" in str(error)
    assert "alembic upgrade head" in str(error)


@pytest.mark.parametrize("begin", [True, False])
def test_behind(database: Database, begin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    database(upgrade)
    monkeypatch.setattr(schema, "REVISIONS", (REVISION, "ls0002"))
    monkeypatch.setattr(schema, "REVISION", "ls0002")
    error = problem(database, begin=begin)
    assert type(error) is SchemaNotReadyError
    assert (error.current, error.wanted) == (REVISION, "ls0002")
    assert "alembic upgrade head" in str(error)


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize("change", ["revision = 'ls9999'", "format = 9"])
def test_ahead(database: Database, begin: bool, change: str) -> None:
    database(upgrade)
    database.execute(f"UPDATE locus_store_schema SET {change}")
    error = problem(database, begin=begin)
    assert type(error) is SchemaAheadError
    assert error.wanted == REVISION
    assert "upgrade the package" in str(error)
    with pytest.raises(SchemaAheadError):
        database(upgrade)


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("DROP TABLE locus_store_terms", "missing: locus_store_terms;"),
        ("DROP TABLE locus_store_schema", "missing: locus_store_schema;"),
        ("DELETE FROM locus_store_schema", "the row of locus_store_schema is missing"),
    ],
)
def test_half_there(database: Database, begin: bool, damage: str, named: str) -> None:
    database(upgrade)
    database.execute(damage)
    error = problem(database, begin=begin)
    assert type(error) is SchemaIncompleteError
    assert named in str(error)
    before = database.tables()
    with pytest.raises(SchemaIncompleteError):
        database(upgrade)
    assert database.tables() == before


def test_tables_removed_behind_alembics_back(database: Database) -> None:
    database(upgrade)
    for table in database.tables() - {"locus_store_alembic"}:
        database.execute(f"DROP TABLE {table}")
    assert isinstance(problem(database), SchemaNotReadyError)
    with pytest.raises(SchemaIncompleteError, match="locus_store_alembic says ls0001"):
        database(upgrade)


def test_ready_costs_one_statement(database: Database) -> None:
    database(upgrade)

    def work(connection: Connection) -> list[str]:
        seen = statements_of(connection)
        check(connection)
        assert not connection.in_transaction()
        return seen

    (statement,) = database(work, begin=False)
    assert statement.startswith("SELECT locus_store_schema.revision")


def test_ready_in_a_transaction(database: Database) -> None:
    database(upgrade)

    def work(connection: Connection) -> tuple[State, int]:
        seen = statements_of(connection)
        return state(connection), len(seen)

    found, statements = database(work)
    assert found == State("ready", REVISION, ())
    assert statements <= 2


def test_no_right_to_read_is_not_taken_for_missing(postgresql: Database) -> None:
    postgresql(upgrade)
    role = f"locus_reader_{postgresql.url.rpartition('/')[2]}"
    postgresql.execute(f"CREATE ROLE {role}", f"GRANT SELECT ON locus_store_schema TO {role}")

    def work(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET ROLE {role}")
        connection.commit()
        with pytest.raises(DBAPIError, match="permission denied"):
            check(connection)

    try:
        postgresql(work, begin=False)
    finally:
        postgresql.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_schema(postgresql: Database) -> None:
    postgresql.execute("CREATE SCHEMA agents")
    postgresql(lambda connection: upgrade(connection, schema="agents"))
    for begin in (True, False):
        assert postgresql(lambda connection: state(connection, schema="agents"), begin=begin).condition == "ready"
        assert postgresql(state, begin=begin).condition == "missing"


def test_the_schema_that_the_connection_translates_to(postgresql: Database) -> None:
    postgresql.execute("CREATE SCHEMA agents")

    def work(connection: Connection) -> str:
        connection.execution_options(schema_translate_map={None: "agents"})
        upgrade(connection)
        check(connection)
        return state(connection).condition

    assert postgresql(work) == "ready"
    assert postgresql.tables() == set()
    assert len(postgresql.tables("agents")) == 7
