"""What Alembic runs for each command: it finds the database and hands Alembic a connection.

``-x url=…``, else ``LOCUS_STORE_URL``, else a SQLite file in the working folder. ``-x schema=…`` puts the tables and
Alembic's version table into a schema, which must exist. A program may hand in a connection as
``config.attributes["connection"]`` (and a ``"schema"`` beside it): it is used as it is.

No logging is configured here: that is the program's affair.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

from alembic import context
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import URL, Connection, MetaData, NullPool, Table, create_engine
from sqlalchemy.exc import DBAPIError, NoSuchModuleError
from sqlalchemy.ext.asyncio import create_async_engine

from locus_store.core.errors import BackendUnavailableError, MissingDependencyError, SchemaError
from locus_store.migrations.filters import our_object, ours
from locus_store.migrations.locks import commits_ddl, database_lock, locks_version_table, refuse_transaction
from locus_store.migrations.unfinished import make_version_table, put_right
from locus_store.migrations.urls import ENVIRONMENT, database_url, schema_in
from locus_store.sql.dialects.base import Kind, root
from locus_store.sql.models import models_in
from locus_store.sql.schema import VERSION_TABLE, effective_schema

_log = logging.getLogger("locus_store.migrations")


def run() -> None:
    """Runs the command that Alembic was given."""
    config = context.config
    arguments = context.get_x_argument(as_dictionary=True)
    unknown = sorted(set(arguments) - {"url", "schema"})
    if unknown:
        raise CommandError(f"-x {unknown[0]}: not known; there are -x url=… and -x schema=…")
    schema = arguments.get("schema") or config.attributes.get("schema")
    connection = config.attributes.get("connection")
    if schema is None and connection is None:
        schema = schema_in(arguments)
    if connection is not None and not context.is_offline_mode():
        _online(connection, schema)
        return
    url = _url(config, arguments)
    if context.is_offline_mode():
        _offline(url, schema)
        return
    shown = url.difference_update_query(["wallet_password"])
    _log.info("Database: %s", shown.render_as_string(hide_password=True))
    try:
        with_connection(url, lambda connection: _online(connection, schema))
    except (BackendUnavailableError, MissingDependencyError, SchemaError) as error:
        if config.cmd_opts is None:
            raise
        raise CommandError(str(error)) from error
    except DBAPIError as error:
        if config.cmd_opts is None:
            raise
        raise CommandError(_refused(error)) from error


def _refused(error: DBAPIError) -> str:
    """What the database said to a statement, and the statement's beginning."""
    cause = root(error)
    statement = " ".join((error.statement or "").split())
    return f"{type(cause).__name__}: {cause}" + (f"; the statement was: {statement[:120]}" if statement else "")


@contextmanager
def _reaching() -> Iterator[None]:
    """Around the making of a connection: whatever fails there, the database cannot be reached."""
    try:
        yield
    except Exception as error:
        cause = root(error)
        raise BackendUnavailableError(f"{Kind.GONE.value}: {type(cause).__name__}: {cause}") from cause


def _extra(url: URL) -> str:
    """The extra of this package that installs the client."""
    name = url.get_backend_name()
    return "mysql" if name == "mariadb" else name


def with_connection(url: URL, work: Callable[[Connection], None]) -> None:
    """Calls `work` with a connection of its own to `url`, from anywhere: inside a running event loop as well."""
    try:
        if not url.get_dialect().is_async:
            engine = create_engine(url, poolclass=NullPool)
            with _reaching():
                connection = engine.connect()
            with connection:
                work(connection)
            return
        async_engine = create_async_engine(url, poolclass=NullPool)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"{url.drivername}://", error.name or "", _extra(url)) from error
    except NoSuchModuleError:
        raise CommandError(f"{url.drivername}:// is no relational database, so it has no schema to migrate") from None

    async def main() -> None:
        with _reaching():
            connection = await async_engine.connect()
        try:
            await connection.run_sync(work)
        finally:
            await connection.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main())
    else:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, main()).result()


def _url(config: Config, arguments: dict[str, str]) -> URL:
    if config.file_config.has_option(config.config_ini_section, "sqlalchemy.url") and "url" not in arguments:
        # A password may hold what such a file takes for its own signs.
        raise CommandError(f"sqlalchemy.url is not read: give the URL by {ENVIRONMENT} or -x url=…, and remove it")
    try:
        return database_url(arguments)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _options(schema: str | None, table_schema: str | None) -> dict[str, Any]:
    """What Alembic is told.

    Args:
        schema: Where the tables are.
        table_schema: The same, as reflection names it: None for the connection's default schema.
    """
    return {
        "target_metadata": models_in(table_schema).metadata,
        "version_table": VERSION_TABLE,
        "version_table_schema": schema,
        "locus_store_schema": schema,
        "include_schemas": table_schema is not None,
        "include_name": ours(table_schema),
        "include_object": our_object,
        "compare_type": True,
        "render_as_batch": True,
    }


def _offline(url: URL, schema: str | None) -> None:
    try:
        context.configure(
            dialect_name=url.get_backend_name(),
            literal_binds=True,
            dialect_opts={"paramstyle": "named"},
            # The script commits its own rows wherever it is run.
            transactional_ddl=True,
            **_options(schema, schema),
        )
    except NoSuchModuleError:
        raise CommandError(f"{url.drivername}:// is no relational database, so it has no schema to migrate") from None
    # Alembic's note of the revision would come back into a variable that no script has (Oracle).
    context.get_context().dialect.insert_returning = False
    with context.begin_transaction():
        context.run_migrations()


def _online(connection: Connection, schema: str | None) -> None:
    schema = effective_schema(connection, schema)
    table_schema = None if schema == connection.dialect.default_schema_name else schema
    joined = connection.in_transaction()
    with nullcontext() if joined else connection.begin():
        context.configure(connection=connection, **_options(schema, table_schema))
        if context.get_context().opts.get("dont_mutate"):
            context.run_migrations()
            return
        if joined:
            refuse_transaction(connection)
        late = locks_version_table(connection)
        with database_lock(connection, schema):
            put_right(connection, schema)
            try:
                make_version_table(connection, schema)
                context.run_migrations()
            except Exception:
                # Elsewhere it goes with the transaction.
                if commits_ddl(connection) and not late:
                    _remove_empty_version_table(connection, schema)
                raise
            if not late:
                _remove_empty_version_table(connection, schema)
        if late:
            _remove_empty_version_table(connection, schema)


def _remove_empty_version_table(connection: Connection, schema: str | None) -> None:
    """After ``downgrade base``, and after a ``check`` that found nothing, nothing of ours is left."""
    if not context.get_context().get_current_heads():
        Table(VERSION_TABLE, MetaData(), schema=schema).drop(connection, checkfirst=True)
