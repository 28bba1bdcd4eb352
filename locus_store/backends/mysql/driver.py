"""The driver of MySQL and MariaDB: one round trip for a load or a listing."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import methodcaller
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, bindparam, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.mysql.options import address, place, refuse_isolation
from locus_store.core.errors import BackendError, MissingDependencyError
from locus_store.core.frames import Codec
from locus_store.sql.async_driver import WRITING, AsyncSQLDriver, Progress
from locus_store.sql.async_engine import over_engine, over_url
from locus_store.sql.dialects.base import Kind
from locus_store.sql.dialects.mysql import MAY_NOT, MySQLDialect, number
from locus_store.sql.loop_engine import LoopEngine, Wire
from locus_store.sql.models import metadata

P = ParamSpec("P")
R = TypeVar("R")


class MySQLDriver(AsyncSQLDriver):
    """Stores threads in a MySQL or MariaDB database.

    Args:
        url: ``mysql://user:password@host:port/database`` or ``mariadb://…``. What SQLAlchemy understands may follow:
            ``ssl_ca``, ``connect_timeout``, ``unix_socket``, …
        engine: The host's own engine in place of a URL; it is used, and otherwise left as it is.
        schema: The database of the tables, or None for the connection's own.
        min_pool_size: How many connections are opened at first use.
        max_pool_size: How many connections there are at most, for each event loop.
        create_schema: Make the tables on first use if they are missing.
        lock_timeout: Seconds that a statement waits for a lock; fractions are rounded up.
        codec: What stored bytes go through.
        connect_args: More arguments of ``asyncmy.connect``: ``ssl``, ``read_timeout``, ``stmt_cache_size``, …
        engine_options: More arguments of ``create_async_engine``.
    """

    dialect: MySQLDialect
    capabilities = replace(AsyncSQLDriver.capabilities, reclaim=True)
    max_piece = MySQLDialect.max_piece
    modules = AsyncSQLDriver.modules | {"asyncmy"}

    def __init__(
        self,
        url: URL | str | None = None,
        *,
        engine: AsyncEngine | None = None,
        schema: str | None = None,
        min_pool_size: int = 1,
        max_pool_size: int = 10,
        create_schema: bool = True,
        lock_timeout: float = 10.0,
        codec: Codec | None = None,
        connect_args: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import asyncmy  # noqa: F401
        except ImportError as e:
            raise MissingDependencyError("MySQLBackend", "asyncmy", "mysql") from e
        known = MySQLDialect()
        wire = Wire(
            is_closed=lambda connection: not connection.connected,
            terminate=methodcaller("close"),
            # One whose answer was not read to its end has closed itself, and says so.
            settle=methodcaller("ping", False),
            breaks=lambda error: known.classify(error) is Kind.GONE,
        )
        self._owned = engine is None
        if engine is not None:
            engines = over_engine(
                wire,
                engine,
                known.names,
                "asyncmy",
                url=(url, None),
                connect_args=(connect_args or None, None),
                engine_options=(engine_options or None, None),
                min_pool_size=(min_pool_size, 1),
                max_pool_size=(max_pool_size, 10),
            )
            self._place = place(engine.url)
        elif url is not None:
            where, connect = address(url, connect_args, lock_timeout)
            refuse_isolation(engine_options or {})
            self._place = place(where)
            # Nothing is left open on a connection that is brought back: see `_begin`.
            options = {"pool_size": max_pool_size, "pool_reset_on_return": None, **(engine_options or {})}
            engines = over_url(wire, where, connect, options)
        else:
            raise ValueError("where the database is: pass a url, or an engine of yours")
        super().__init__(
            known,
            engines,
            codec=codec,
            schema=schema,
            create_schema=create_schema,
            fill=min(min_pool_size, max_pool_size) if self._owned else 0,
            # On a host's connection a SELECT begins a transaction.
            direct=self._owned,
        )
        self._patience = max(1, math.ceil(lock_timeout))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place})"

    # ------------------------------------------------------------------------------------------------ transactions

    def _fetcher(self, connection: Any) -> Callable[..., Awaitable[Sequence[Any]]]:
        async def fetch(statement: str, *arguments: Any) -> Sequence[Any]:
            async with connection.cursor() as cursor:
                await cursor.execute(statement, arguments)
                rows: Sequence[Any] = await cursor.fetchall()
                return rows

        return fetch

    def _options(self, isolation: str) -> dict[str, Any]:
        # Own connections are READ COMMITTED from the start; to change that back and forth costs four round trips.
        return {} if self._owned else super()._options(isolation)

    def _begin(self, connection: Connection, isolation: str) -> None:
        if self._owned and isolation == WRITING:
            connection.exec_driver_sql("START TRANSACTION")
        elif self._owned:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    async def _write(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._owned:
            return await super()._write(function, *args, **kwargs)
        return await super()._write(self._patiently, lambda connection: function(connection, *args, **kwargs))

    def _patiently(self, connection: Connection, function: Callable[[Connection], R]) -> R:
        """Call a function on a host's connection, which waits for locks as long as ours do, and then as before."""
        before = connection.exec_driver_sql("SELECT @@SESSION.innodb_lock_wait_timeout").scalar_one()
        connection.exec_driver_sql(_PATIENCE.format(self._patience))
        try:
            return function(connection)
        finally:
            # One that is lost needs no restoring.
            with suppress(DBAPIError):
                connection.exec_driver_sql(_PATIENCE.format(int(before)))

    # ---------------------------------------------------------------------------------------------------- the rest

    async def reclaim(self) -> int:
        """See `Driver.reclaim`: OPTIMIZE of the tables, which writes each of them anew."""

        def work(connection: Connection) -> int:
            quote = connection.dialect.identifier_preparer.quote
            prefix = "" if self._schema is None else quote(self._schema) + "."
            tables = ", ".join(prefix + name for name in metadata.tables)
            # What the server believes of the sizes is brought up to date by the first statement.
            connection.exec_driver_sql(f"ANALYZE TABLE {tables}").all()
            before = self._size(connection)
            for table, _, kind, told in connection.exec_driver_sql(f"OPTIMIZE TABLE {tables}").all():
                if str(kind).lower() == "error":
                    raise BackendError(f"{table} could not be written anew: {told}")
            return max(0, before - self._size(connection))

        async def attempt(opened: LoopEngine, progress: Progress) -> int:
            async with opened.connect() as connection:
                progress.connected = True
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                return await connection.run_sync(work)

        return await self._persist(attempt)

    def _size(self, connection: Connection) -> int:
        names = {"names": list(metadata.tables), "place": self._schema}
        return int(connection.execute(_SIZE, names).scalar_one() or 0)

    def _may_not_create(self, error: BaseException) -> bool:
        return number(error) in MAY_NOT


_PATIENCE = "SET SESSION innodb_lock_wait_timeout = {}"
_SIZE = text(
    "SELECT sum(data_length + index_length + data_free) FROM information_schema.tables"
    " WHERE table_schema = coalesce(:place, database()) AND table_name IN :names"
).bindparams(bindparam("names", expanding=True))
