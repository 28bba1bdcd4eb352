"""The relational driver over an asynchronous engine: transactions, retries, and the first use of a database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import greenlet_spawn

from locus_store.core.driver import Key, Plan, PutResult
from locus_store.core.errors import BackendError, BackendUnavailableError, SchemaIncompleteError, SchemaNotReadyError
from locus_store.core.frames import Codec
from locus_store.migrations import upgrade
from locus_store.sql.async_engine import AsyncEngines
from locus_store.sql.dialects.base import Dialect, Kind
from locus_store.sql.direct import DirectConnection, DirectStatements, NotDirectError
from locus_store.sql.driver import SQLDriver
from locus_store.sql.handed_in import READ_WHOLE
from locus_store.sql.loop_engine import LoopEngine
from locus_store.sql.schema import REVISION, check

_ATTEMPTS = 6
"""How often a transaction is run that the database undoes because of others."""
_PAUSE = 0.01

READING = "REPEATABLE READ"
WRITING = "READ COMMITTED"

P = ParamSpec("P")
R = TypeVar("R")


class OutcomeUnknownError(BackendUnavailableError):
    """The connection was lost after a commit was sent: it may have happened or not."""


class Progress:
    """How far an attempt came.

    Attributes:
        connected: There was a connection, so an error is not that none can be had.
        committing: The commit was sent, so an error says nothing about whether it happened.
    """

    __slots__ = ("committing", "connected")

    def __init__(self) -> None:
        self.connected = False
        self.committing = False


class AsyncSQLDriver(SQLDriver):
    """Runs the primitives over one engine for each event loop.

    Args:
        dialect: What this database does differently.
        engines: The engines.
        codec: What frames go through.
        schema: The schema of the tables, or None for that of the engines, or the connection's own.
        create_schema: Make the tables on first use if they are missing; `prepare` also upgrades them.
        fill: How many connections are opened at first use in a loop.
        direct: Send what only reads past SQLAlchemy, where that is one statement; `_fetcher` says how.

    Attributes:
        busy_timeout: Seconds for which a transaction is run again that met a lock, where the database does not wait.
    """

    busy_timeout = 0.0

    def __init__(
        self,
        dialect: Dialect,
        engines: AsyncEngines,
        *,
        codec: Codec | None,
        schema: str | None,
        create_schema: bool,
        fill: int = 0,
        direct: bool = False,
    ) -> None:
        self.dialect = dialect
        self.codec = codec
        self._engines = engines
        self._schema = engines.schema if schema is None else schema
        self.creates_schema = create_schema
        self._fill = fill
        self._ready = False
        self._statements = DirectStatements(self._schema) if direct else None
        # Functions that need more than one fixed statement, as was found out.
        self._roundabout: set[Callable[..., Any]] = set()

    # -------------------------------------------------------------------------------------------------- transactions

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        try:
            return await super().put(key, plan)
        except OutcomeUnknownError:
            # This time the save looks for its own earlier attempt.
            return await super().put(key, replace(plan, fresh_id=False))

    async def _read(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        statements = self._statements
        if statements is not None and function not in self._roundabout:

            async def attempt(opened: LoopEngine, progress: Progress) -> R:
                async with opened.lease() as connection:
                    progress.connected = True
                    direct = DirectConnection(self._fetcher(connection), statements, opened.engine.dialect)
                    return await greenlet_spawn(partial(function, cast(Connection, direct), *args, **kwargs))

            try:
                return await self._persist(attempt)
            except NotDirectError:
                self._roundabout.add(function)
        # All statements see the same state, also where a function needs several.
        return await self._run(READING, function, *args, **kwargs)

    async def _write(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(WRITING, function, *args, **kwargs)

    def _fetcher(self, connection: Any) -> Callable[..., Awaitable[Sequence[Any]]]:
        """What sends a text with its parameters on the driver's own connection, in autocommit, and returns the rows."""
        raise NotImplementedError

    def _options(self, isolation: str) -> dict[str, Any]:
        """The options of a connection for a transaction at this level."""
        return {"isolation_level": isolation}

    def _begin(self, connection: Connection, isolation: str) -> None:
        """What is sent at the beginning of a transaction; one that writes may wait for locks."""

    async def _run(
        self, isolation: str, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        def work(connection: Connection, progress: Progress) -> R:
            with connection.begin():
                self.dialect.check_connection(connection)
                self._begin(connection, isolation)
                result = function(connection, *args, **kwargs)
                progress.committing = isolation == WRITING
            return result

        async def attempt(opened: LoopEngine, progress: Progress) -> R:
            async with opened.connect() as connection:
                progress.connected = True
                options = READ_WHOLE | self._options(isolation)
                if self._schema is not None:
                    options["schema_translate_map"] = {None: self._schema}
                await connection.execution_options(**options)
                return await connection.run_sync(work, progress)

        return await self._persist(attempt)

    async def _persist(self, attempt: Callable[[LoopEngine, Progress], Awaitable[R]]) -> R:
        """Make an attempt, and make it again where the database undid it or the connection was lost before a commit.

        Raises:
            BackendError: What the last attempt failed with, translated.
        """
        tried = 0
        patience = asyncio.get_running_loop().time() + self.busy_timeout
        lost = renewed = False
        while True:
            opened = await self._engines.here()
            if not (self._ready and opened.prepared):
                await self._prepare(opened)
            progress = Progress()
            try:
                return await attempt(opened, progress)
            except Exception as error:
                if not self._is_of_database(error):
                    raise
                kind = self.dialect.classify(error)
                tried += 1
                if kind is Kind.RETRYABLE and tried < _ATTEMPTS:
                    pass
                elif kind is Kind.BUSY and progress.connected and asyncio.get_running_loop().time() < patience:
                    tried = min(tried, 3)
                elif kind is Kind.GONE and progress.connected and not progress.committing and not lost:
                    lost = True
                    continue
                elif self.dialect.lacks_schema(error) and not renewed:
                    # Somebody dropped or changed the tables under a running store: look at them again.
                    renewed = True
                    self._ready = False
                    continue
                else:
                    raise self._translate(error, progress)  # noqa: B904 - it has the driver's own error as its cause
            await asyncio.sleep(random.uniform(0, _PAUSE * 2**tried))  # noqa: S311 - no secret

    def _translate(self, error: Exception, progress: Progress) -> BackendError:
        found = self.dialect.translate(error)
        if progress.committing and isinstance(found, BackendUnavailableError):
            unknown = OutcomeUnknownError(str(found))
            unknown.__cause__ = found.__cause__
            return unknown
        return found

    def _may_not_create(self, error: BaseException) -> bool:
        """Whether the database refused DDL to this user."""
        return False

    # ------------------------------------------------------------------------------------------------- preparing

    async def prepare(self) -> None:
        """See `Driver.prepare`."""
        opened = await self._engines.here()
        if not (self._ready and opened.prepared):
            await self._prepare(opened, asked=True)

    async def _prepare(self, opened: LoopEngine, *, asked: bool = False) -> None:
        async with opened.preparing:
            try:
                if not self._ready:
                    await self._look(opened, asked)
                    self._ready = True
                if not opened.prepared:
                    await opened.fill(self._fill)
                    opened.prepared = True
            except Exception as error:
                if not self._is_of_database(error):
                    raise
                raise self._translate(error, Progress())  # noqa: B904 - it has the driver's own error as its cause

    async def _look(self, opened: LoopEngine, asked: bool) -> None:
        async with opened.connect() as connection:
            try:
                await connection.run_sync(check, schema=self._schema)
                return
            except SchemaNotReadyError as error:
                # What an older release made is changed when that is asked for: it may be running still.
                if not self.creates_schema or (error.current is not None and not asked):
                    raise
                found = error.current
            except SchemaIncompleteError as error:
                # Where DDL is seen at once, another process may be making them right now.
                if not self.creates_schema or error.current is not None:
                    raise
                found = None
            await connection.execution_options(**self._options(WRITING))
            try:
                await connection.run_sync(upgrade, schema=self._schema)
            except SQLAlchemyError as error:
                if not self._may_not_create(error):
                    raise
                refused: BackendError = self.dialect.translate(error)
                raise SchemaNotReadyError(
                    found,
                    REVISION,
                    f"and this user may not {'create' if found is None else 'change'} them ({refused}): "
                    "run `alembic upgrade head` as one who may",
                ) from refused.__cause__

    async def aclose(self) -> None:
        """See `Driver.aclose`."""
        await self._engines.aclose()
