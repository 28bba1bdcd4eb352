"""Migrating from a program, over a connection that the program has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import op
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from locus_store.core.errors import SchemaIncompleteError
from locus_store.migrations.locks import commits_ddl, database_lock, one_in_this_process, refuse_transaction
from locus_store.migrations.unfinished import make_version_table, put_right
from locus_store.sql.schema import REVISION, VERSION_TABLE, State, effective_schema, refuse, state


def script_directory() -> ScriptDirectory:
    """The revisions of this package."""
    return ScriptDirectory(str(Path(__file__).parent))


def head_revision() -> str:
    """The newest revision of this package, as a host's ``depends_on`` or `stamp` names it."""
    head = script_directory().get_current_head()
    assert head is not None
    return head


def upgrade(connection: Connection, *, schema: str | None = None) -> None:
    """Creates the tables, or brings them up to this release; with nothing to do it sends no DDL and takes no lock.

    In a transaction of the caller it joins that, and the caller commits; otherwise it commits its own. Several
    processes may call it at once. Where DDL ends a transaction (MySQL, MariaDB, Oracle) it refuses to work in one; what
    one that was killed there left half done is begun again, if nothing is stored yet. From a coroutine:
    ``await async_connection.run_sync(upgrade)``.

    On SQLite it begins with BEGIN IMMEDIATE unless the driver's connection is in a transaction already. One that has
    only read and meets another writer fails with SQLITE_BUSY and must be run again from its beginning.

    Args:
        connection: Where to work. It must not be in autocommit.
        schema: The schema for the tables, which must exist, or None for the connection's own.

    Raises:
        SchemaAheadError: The tables are of a newer release.
        SchemaIncompleteError: Some of them are missing, or what Alembic noted and the schema row differ.
        TransactionNotAllowedError: DDL would commit the caller's transaction.
        ValueError: The connection is in autocommit.
    """
    schema = effective_schema(connection, schema)
    found = state(connection, schema=schema)
    # Where DDL is seen at once, somebody may be in the middle of it, or have been killed there.
    in_the_making = found.condition == "incomplete" and found.revision is None and commits_ddl(connection)
    if not in_the_making and _needs_nothing(found):
        return
    refuse_transaction(connection)
    if connection.in_transaction():
        _upgrade(connection, schema)
    else:
        with connection.begin():
            _upgrade(connection, schema)


def _needs_nothing(found: State) -> bool:
    if found.condition in ("missing", "behind"):
        return False
    refuse(found)
    return True


def _upgrade(connection: Connection, schema: str | None) -> None:
    with database_lock(connection, schema):
        put_right(connection, schema)
        # Another process may have been here while this one waited.
        found = state(connection, schema=schema)
        if not _needs_nothing(found):
            _run_revisions(connection, schema, found)


def _run_revisions(connection: Connection, schema: str | None, found: State) -> None:
    scripts = script_directory()

    def steps(heads: Any, _context: MigrationContext) -> Iterable[RevisionStep]:
        revisions = scripts.iterate_revisions("heads", heads, implicit_base=True)
        return [MigrationStep.upgrade_from_script(scripts.revision_map, each) for each in reversed(list(revisions))]

    context = MigrationContext.configure(
        connection,
        opts={
            "fn": steps,
            "script": scripts,
            "version_table": VERSION_TABLE,
            "version_table_schema": schema,
            "locus_store_schema": schema,
        },
    )
    noted = context.get_current_heads()
    if noted != (() if found.revision is None else (found.revision,)):
        raise SchemaIncompleteError(
            found.revision,
            REVISION,
            f"{VERSION_TABLE} says {', '.join(noted) or 'nothing'}. If the tables belong to another Alembic history, "
            "upgrade that one; if they were removed by hand, drop that table as well",
        )
    make_version_table(connection, schema)
    with one_in_this_process(connection), _operations(context):
        context.run_migrations()


@contextmanager
def _operations(context: MigrationContext) -> Iterator[None]:
    """Makes ``alembic.op`` work on `context`, and afterwards on what it did before.

    A host may call `upgrade` in a revision of its own. Alembic has no public way to put back what was there.
    """
    outer = getattr(op, "_proxy", None)
    try:
        with Operations.context(context):
            yield
    finally:
        if outer is not None:
            outer._install_proxy()
