"""What a migrator leaves that was killed where DDL cannot be rolled back, put right for the next one.

All of it is done by the one who holds the lock, so nobody else is in the middle of it.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, literal_column, select

from locus_store.migrations.locks import commits_ddl
from locus_store.sql.models import metadata
from locus_store.sql.schema import VERSION_TABLE, refuse, state
from locus_store.sql.types import TABLE_OPTIONS


def put_right(connection: Connection, schema: str | None) -> None:
    """Brings what is half there to a state from which revisions can be run, if nothing can be lost by it.

    - Tables without the schema row, which is written last: they are removed if all of them are empty.
    - The schema row is there, and Alembic's table, which is written after it, is empty: it is filled.

    Raises:
        SchemaIncompleteError: Something could be lost.
    """
    if not commits_ddl(connection):
        return
    noted = inspect(connection).has_table(VERSION_TABLE, schema=schema)
    notes = _version_table(schema)
    found = state(connection, schema=schema)
    if found.condition == "incomplete" and found.revision is None:
        there = [
            table if schema is None else table.to_metadata(MetaData(), schema=schema)
            for table in metadata.sorted_tables
            if table.name not in found.missing
        ]
        if not all(_is_empty(connection, table) for table in ([*there, notes] if noted else there)):
            refuse(found)
        for table in there:
            table.drop(connection)
    elif noted and found.revision is not None and _is_empty(connection, notes):
        connection.execute(insert(notes), {"version_num": found.revision})


def make_version_table(connection: Connection, schema: str | None) -> None:
    """Makes Alembic's table where the server's defaults decide of what kind a table is, and no key may have a name."""
    if connection.dialect.name in ("mysql", "mariadb"):
        _version_table(schema).create(connection, checkfirst=True)


def _version_table(schema: str | None) -> Table:
    number = Column("version_num", String(32), primary_key=True, nullable=False)
    return Table(VERSION_TABLE, MetaData(), number, schema=schema, **TABLE_OPTIONS)


def _is_empty(connection: Connection, table: Table) -> bool:
    return connection.execute(select(literal_column("1")).select_from(table).limit(1)).first() is None
