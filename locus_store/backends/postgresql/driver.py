"""The driver of PostgreSQL: one round trip for a save that nobody raced, and one for a load or a listing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.postgresql.options import address, place
from locus_store.backends.postgresql.pooler import statement_names
from locus_store.core.driver import Key, Plan, PutResult, Saved
from locus_store.core.errors import MissingDependencyError
from locus_store.core.frames import Codec
from locus_store.sql.async_driver import WRITING, AsyncSQLDriver, OutcomeUnknownError, Progress
from locus_store.sql.async_engine import over_engine, over_url
from locus_store.sql.dialects.base import Kind
from locus_store.sql.dialects.postgresql import (
    LIMIT_WAITING,
    PostgreSQLDialect,
    quoted,
    sqlstate,
)
from locus_store.sql.dialects.postgresql_save import THREAD_GONE, fits, save
from locus_store.sql.loop_engine import LoopEngine, Wire
from locus_store.sql.models import metadata
from locus_store.sql.search.tables import PLACES, QUEUE, TEXTS

P = ParamSpec("P")
R = TypeVar("R")


class PostgreSQLDriver(AsyncSQLDriver):
    """Stores threads in a PostgreSQL database.

    Args:
        url: ``postgresql://user:password@host:port/database``. ``sslmode``, ``application_name`` and
            ``connect_timeout`` may follow as in libpq, and any argument of ``asyncpg.connect``.
        engine: The host's own engine in place of a URL; it is used, and otherwise left as it is.
        schema: The schema of the tables, or None for the one that the search path names.
        min_pool_size: How many connections are opened at first use.
        max_pool_size: How many connections there are at most, for each event loop.
        create_schema: Make the tables on first use if they are missing.
        lock_timeout: Seconds that a write waits for a lock.
        codec: What stored bytes go through.
        connect_args: More arguments of ``asyncpg.connect``: ``ssl``, ``command_timeout``, …; ``statement_cache_size=0``
            says that there is a pooler in transaction mode, which otherwise is found out.
        engine_options: More arguments of ``create_async_engine``.
    """

    dialect: PostgreSQLDialect
    capabilities = replace(AsyncSQLDriver.capabilities, reclaim=True, search=True)
    max_piece = PostgreSQLDialect.max_piece
    seals = True
    modules = AsyncSQLDriver.modules | {"asyncpg"}

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
            import asyncpg  # noqa: F401
        except ImportError as e:
            raise MissingDependencyError("PostgreSQLBackend", "asyncpg", "postgresql") from e
        known = PostgreSQLDialect()
        wire = Wire(
            is_closed=methodcaller("is_closed"),
            terminate=methodcaller("terminate"),
            # Whatever is sent next waits for the end of what was cancelled.
            settle=methodcaller("execute", ""),
            breaks=lambda error: known.classify(error) is Kind.GONE,
        )
        if engine is not None:
            engines = over_engine(
                wire,
                engine,
                known.names,
                "asyncpg",
                url=(url, None),
                connect_args=(connect_args or None, None),
                engine_options=(engine_options or None, None),
                min_pool_size=(min_pool_size, 1),
                max_pool_size=(max_pool_size, 10),
            )
            self._place = place(engine.url)
        elif url is not None:
            where, connect = address(url, connect_args)
            connect, watch = statement_names(connect)
            self._place = place(where)
            options = {"pool_size": max_pool_size, **(engine_options or {})}
            engines = over_url(wire, where, connect, options, watch=watch)
        else:
            raise ValueError("where the database is: pass a url, or an engine of yours")
        fill = 0 if engine is not None else min(min_pool_size, max_pool_size)
        super().__init__(
            known, engines, codec=codec, schema=schema, create_schema=create_schema, fill=fill, direct=True
        )
        self._milliseconds = max(1, round(lock_timeout * 1000))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place})"

    # -------------------------------------------------------------------------------------------------- hot paths

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        if fits(plan):
            self._check_size(plan.payload)
            if plan.block is not None:
                self._check_size(plan.block)
            try:
                row = await self._persist(partial(self._save_at_once, key, plan))
            except OutcomeUnknownError:
                # From here on the save looks for its own earlier attempt.
                plan = replace(plan, fresh_id=False)
            else:
                if row is not None:
                    saved = Saved(*row)
                    await self._seal_after(key, saved)
                    return saved
        return await super().put(key, plan)

    async def _save_at_once(self, key: Key, plan: Plan, opened: LoopEngine, progress: Progress) -> Any:
        """One statement in autocommit; None if it wrote nothing and a transaction must find out why."""
        statement, arguments = save(self._schema, self._milliseconds, key, plan)
        async with opened.lease() as connection:
            progress.connected = progress.committing = True
            try:
                return await connection.fetchrow(statement, *arguments)
            except Exception as error:
                if self.dialect.classify(error) in (Kind.RETRYABLE, Kind.DUPLICATE) or sqlstate(error) == THREAD_GONE:
                    return None
                raise

    def _fetcher(self, connection: Any) -> Callable[..., Awaitable[Sequence[Any]]]:
        fetch: Callable[..., Awaitable[Sequence[Any]]] = connection.fetch
        return fetch

    # ---------------------------------------------------------------------------------------------------- the rest

    async def reclaim(self) -> int:
        """See `Driver.reclaim`: a VACUUM of the tables, which gives back what is free at their ends."""
        prefix = "" if self._schema is None else quoted(self._schema) + "."
        names = [prefix + table for table in (*metadata.tables, QUEUE.name, TEXTS.name, PLACES.name)]

        def work(connection: Connection) -> int:
            freed = 0
            for name in names:
                before = connection.scalar(_SIZE, {"name": name})
                if before is None:
                    continue  # no search was enabled
                connection.exec_driver_sql(f"VACUUM {name}")
                freed += before - connection.scalar(_SIZE, {"name": name})
            return max(0, freed)

        async def attempt(opened: LoopEngine, progress: Progress) -> int:
            async with opened.connect() as connection:
                progress.connected = True
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                return await connection.run_sync(work)

        return await self._persist(attempt)

    def _begin(self, connection: Connection, isolation: str) -> None:
        if isolation == WRITING:
            connection.execute(LIMIT_WAITING, {"timeout": f"{self._milliseconds}ms"})

    def _may_not_create(self, error: BaseException) -> bool:
        return sqlstate(error) == _INSUFFICIENT_PRIVILEGE


_INSUFFICIENT_PRIVILEGE = "42501"
_SIZE = text("SELECT pg_total_relation_size(to_regclass(:name))")
