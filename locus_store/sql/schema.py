"""What a store reads at start: are the tables there, and are they those of this release?

The answer is one row of ``locus_store_schema``, which each revision writes itself, so it does not matter which Alembic
history ran the migration. Nothing here changes the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import DBAPIError

from locus_store.core.errors import SchemaAheadError, SchemaIncompleteError, SchemaNotReadyError
from locus_store.sql.models import Block, Checkpoint, Record, Schema, Term, Thread, metadata

REVISIONS = ("ls0001",)
"""The revisions of all releases up to this one, oldest first."""

REVISION = REVISIONS[-1]
"""The revision that this release needs."""

FORMAT = 1
"""The newest stored format that this release reads."""

VERSION_TABLE = "locus_store_alembic"
"""Where Alembic keeps its own note of what it ran; only migrating looks at it."""

_TABLES = frozenset(metadata.tables)
UPGRADE = (
    "run `python -m locus_store.migrations upgrade head` with LOCUS_STORE_URL naming this database "
    "(in a checkout: `alembic upgrade head`), or call locus_store.migrations.upgrade(connection)"
)
"""What to do where the tables are missing or old."""

# The row, by a statement that fails if any table is missing or must not be read. No id is negative.
_ROW = select(Schema.revision, Schema.format).where(Schema.id == 1)
_ROW_AND_TABLES = (
    _ROW.select_from(Schema)
    .outerjoin(Thread, Thread.id == -Schema.id)
    .outerjoin(Checkpoint, Checkpoint.id == -Schema.id)
    .outerjoin(Block, Block.thread == -Schema.id)
    .outerjoin(Term, Term.thread == -Schema.id)
    .outerjoin(Record, Record.id == -Schema.id)
)


class State(NamedTuple):
    """What was found.

    Attributes:
        condition: ``ready``, or how the database differs from what this release needs.
        revision: The revision of the schema row, or None if there is none.
        missing: The tables of this release that are not there.
    """

    condition: Literal["ready", "missing", "behind", "ahead", "incomplete"]
    revision: str | None
    missing: tuple[str, ...]


def effective_schema(connection: Connection, schema: str | None) -> str | None:
    """The schema the tables are in: the one named, or the one to which `connection` translates none."""
    if schema is not None:
        return schema
    translation = connection.get_execution_options().get("schema_translate_map") or {}
    return translation.get(None)


def state(connection: Connection, *, schema: str | None = None) -> State:
    """Looks at the tables: by one SELECT, if they are as they should be.

    A connection that is in no transaction is in none afterwards. In a transaction nothing is sent that could fail and,
    on some databases, abort it: there the tables' names are asked for first.

    Args:
        connection: Where to look.
        schema: The schema the tables are in, or None for the connection's own.
    """
    schema = effective_schema(connection, schema)
    if connection.in_transaction():
        return _diagnose(connection, schema)
    try:
        return _look(connection, schema)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        with connection.begin():
            found = _diagnose(connection, schema)
        if found.condition != "ready":
            return found
    # Somebody has made the tables in between, or there is another trouble, which then shows again.
    return _look(connection, schema)


def check(connection: Connection, *, schema: str | None = None) -> None:
    """Returns if the tables are those of this release; sends no DDL.

    Raises:
        SchemaNotReadyError: They are missing, or of an older release.
        SchemaAheadError: They are of a newer release.
        SchemaIncompleteError: Some of them are missing, or the schema row is.
    """
    refuse(state(connection, schema=schema))


def check_joining(connection: Connection, *, schema: str | None = None) -> None:
    """As `check`, in the caller's transaction: nothing is sent that could fail, and nothing is ended."""
    refuse(_diagnose(connection, effective_schema(connection, schema)))


def refuse(found: State) -> None:
    """Raises what `check` raises, unless `found` is ``ready``."""
    if found.condition in ("missing", "behind"):
        raise SchemaNotReadyError(found.revision, REVISION, UPGRADE)
    if found.condition == "ahead":
        raise SchemaAheadError(found.revision, REVISION, "upgrade the package locus-store here")
    if found.condition == "incomplete":
        lack = f"missing: {', '.join(found.missing)}" if found.missing else "the row of locus_store_schema is missing"
        raise SchemaIncompleteError(
            found.revision,
            REVISION,
            f"{lack}; restore it from a backup, or, if the data may go, drop the tables "
            f"locus_store_… ({VERSION_TABLE} too) and upgrade again",
        )


def _look(connection: Connection, schema: str | None) -> State:
    """Expects that all is well."""
    with connection.begin() as transaction:
        row = connection.execute(_ROW_AND_TABLES, execution_options=_options(schema)).one_or_none()
        transaction.rollback()
    return _judge(row, ())


def _diagnose(connection: Connection, schema: str | None) -> State:
    """Finds out in single steps, none of which fails, how the tables are."""
    there = set(inspect(connection).get_table_names(schema=schema))
    missing = tuple(name for name in metadata.tables if name not in there)
    if Schema.__tablename__ not in there:
        return State("incomplete" if there & _TABLES else "missing", None, missing)
    row = connection.execute(_ROW, execution_options=_options(schema)).one_or_none()
    return _judge(row, missing)


def _judge(row: Sequence[Any] | None, missing: tuple[str, ...]) -> State:
    if row is None:
        return State("incomplete", None, missing)
    revision, stored_format = row
    if revision not in REVISIONS or stored_format > FORMAT:
        return State("ahead", revision, missing)
    if revision != REVISION:
        return State("behind", revision, missing)
    return State("incomplete" if missing else "ready", revision, missing)


def _options(schema: str | None) -> dict[str, Any]:
    return {} if schema is None else {"schema_translate_map": {None: schema}}
