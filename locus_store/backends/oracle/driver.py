"""The driver of Oracle Database: a small save is one round trip, a large one three, a load two."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.oracle.options import address, place
from locus_store.core.driver import Key, Plan, PutResult, Saved
from locus_store.core.errors import MissingDependencyError, UnsupportedOperationError
from locus_store.core.frames import Codec
from locus_store.sql.async_driver import WRITING, AsyncSQLDriver, OutcomeUnknownError, Progress
from locus_store.sql.async_engine import over_engine, over_url
from locus_store.sql.dialects import oracle_save
from locus_store.sql.dialects.base import Kind
from locus_store.sql.dialects.oracle import NO_RIGHTS, PATIENCE, OracleDialect, code, limited
from locus_store.sql.dialects.oracle_session import BINARY, check_session
from locus_store.sql.loop_engine import LoopEngine, Wire

_NUMBERS = frozenset(
    """
    base_version block expected expires high low moment new_epoch now parent stored thread_row version
    """.split()  # noqa: SIM905
)
_BYTES = frozenset(["content", "ranges", "payload", "metadata", "terms", "stamp", "base_stamp"])
_ROWS = 1000
"""How many rows one round trip brings."""


class OracleDriver(AsyncSQLDriver):
    """Stores threads in an Oracle database, 19c or newer.

    Args:
        dsn: Where the database is; see `options.address` for this and the next seven.
        user: Who connects.
        password: Their password.
        wallet_location: The folder of a wallet.
        wallet_password: Its password.
        host: The server, where there is no dsn.
        port: The port of its listener.
        service_name: The service there.
        engine: The host's own engine in place of all that; it is used, and otherwise left as it is.
        schema: The schema of the tables, or None for the session's own.
        min_pool_size: How many connections are opened at first use.
        max_pool_size: How many connections there are at most, for each event loop.
        create_schema: Make the tables on first use if they are missing.
        lock_timeout: Seconds that a write waits for a lock; Oracle counts whole ones.
        codec: What stored bytes go through.
        connect_args: More arguments of ``oracledb.connect_async``.
        engine_options: More arguments of ``create_async_engine``.
    """

    dialect: OracleDialect
    max_piece = OracleDialect.max_piece
    modules = AsyncSQLDriver.modules | {"oracledb"}

    def __init__(
        self,
        dsn: str | URL | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        wallet_location: str | None = None,
        wallet_password: str | None = None,
        host: str | None = None,
        port: int = 1521,
        service_name: str | None = None,
        engine: AsyncEngine | None = None,
        schema: str | None = None,
        min_pool_size: int = 1,
        max_pool_size: int = 5,
        create_schema: bool = True,
        lock_timeout: float = 10.0,
        codec: Codec | None = None,
        connect_args: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import oracledb
        except ImportError as e:
            raise MissingDependencyError("OracleBackend", "oracledb", "oracle") from e
        self._sizes: dict[str, Any] = dict.fromkeys(_NUMBERS, oracledb.DB_TYPE_NUMBER)
        self._sizes |= dict.fromkeys(_BYTES, oracledb.DB_TYPE_RAW)
        known = OracleDialect()
        wire = Wire(
            is_closed=lambda connection: not connection.is_healthy(),
            terminate=methodcaller("terminate"),
            # What was cancelled has been broken off by then; what it did is undone.
            settle=methodcaller("rollback"),
            breaks=lambda error: known.classify(error) is Kind.GONE,
        )
        owned = engine is None
        if engine is not None:
            engines = over_engine(
                wire,
                engine,
                known.names,
                "oracledb",
                dsn=(dsn, None),
                user=(user or "admin", "admin"),
                password=(password or "", ""),
                port=(port, 1521),
                host=(host, None),
                service_name=(service_name, None),
                wallet_location=(wallet_location, None),
                wallet_password=(wallet_password, None),
                connect_args=(connect_args or None, None),
                engine_options=(engine_options or None, None),
                min_pool_size=(min_pool_size, 1),
                max_pool_size=(max_pool_size, 5),
            )
            self._place = engine.url.render_as_string(hide_password=True).rpartition("@")[2]
            if not getattr(engine.dialect, "auto_convert_lobs", True):
                raise ValueError("the engine has auto_convert_lobs=False, but a store needs LOBs as values")
        else:
            connect = address(
                dsn,
                user=user,
                password=password,
                wallet_location=wallet_location,
                wallet_password=wallet_password,
                host=host,
                port=port,
                service_name=service_name,
                connect_args=connect_args,
            )
            self._place = place(connect)
            # Whoever had a connection has ended its transaction; to end none would be a round trip.
            options = {"pool_size": max_pool_size, "pool_reset_on_return": None, **(engine_options or {})}
            engines = over_url(wire, URL.create("oracle+oracledb_async"), connect, options, begin=_compare_bytes)
        super().__init__(
            known,
            engines,
            codec=codec,
            schema=schema,
            create_schema=create_schema,
            fill=min(min_pool_size, max_pool_size) if owned else 0,
            direct=True,
        )
        # What the owner of an engine set it to is for the owner's own transactions.
        self._isolates = not owned or "isolation_level" in (engine_options or {})
        self._patience = max(1, math.ceil(lock_timeout))
        # Set where the server does not run our block: a package that it needs was taken away from everybody.
        self._no_blocks = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place})"

    # -------------------------------------------------------------------------------------------------- hot paths

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        if oracle_save.fits(plan) and not self._no_blocks:
            self._check_size(plan.payload)
            if plan.block is not None:
                self._check_size(plan.block)
            try:
                saved = await self._persist(partial(self._save_at_once, key, plan))
            except OutcomeUnknownError:
                # From here on the save looks for its own earlier attempt.
                plan = replace(plan, fresh_id=False)
            else:
                if saved is not None:
                    return saved
        return await super().put(key, plan)

    async def _save_at_once(self, key: Key, plan: Plan, opened: LoopEngine, progress: Progress) -> Saved | None:
        """A block of PL/SQL, and what is too large for it in statements of their own; the last one commits."""
        shape = oracle_save.shape(self._schema, self._patience, plan)
        async with opened.lease() as connection:
            progress.connected = True
            autocommit, connection.autocommit = connection.autocommit, False
            try:
                progress.committing = shape.whole
                answer = await self._run_block(connection, shape, oracle_save.parameters(shape, key, plan))
                if not answer["saved"]:
                    return None
                left = oracle_save.rest(shape, plan, answer)
                for i, (text, values) in enumerate(left, 1):
                    if i == len(left):
                        connection.autocommit = progress.committing = True
                    await self._execute(connection, text, values)
            except Exception as error:
                if not shape.whole and connection.is_healthy():
                    await connection.rollback()
                if "UTL_RAW" in str(error):
                    self._no_blocks = True
                    return None
                if self.dialect.classify(error) in (Kind.RETRYABLE, Kind.DUPLICATE):
                    return None
                raise
            finally:
                connection.autocommit = autocommit
        return Saved(answer["version"] or 0, answer["epoch"] or 0, answer["block"] or 0)

    async def _run_block(
        self, connection: Any, shape: oracle_save.Shape, values: Mapping[str, Any]
    ) -> dict[str, int | None]:
        with limited(connection, self._patience):
            return await self._execute(connection, oracle_save.block(shape), values, oracle_save.RETURNED)

    async def _execute(
        self, connection: Any, text: str, values: Mapping[str, Any], returned: tuple[str, ...] = ()
    ) -> dict[str, int | None]:
        """Run a statement with one type for each name, whatever the values are; what it returned, by name."""
        cursor = connection.cursor()
        try:
            cursor.setinputsizes(**{name: self._sizes[name] for name in values if name in self._sizes})
            out = {name: cursor.var(int) for name in returned}
            await cursor.execute(text, {**values, **out})
            return {name: variable.getvalue() for name, variable in out.items()}
        finally:
            cursor.close()

    def _fetcher(self, connection: Any) -> Callable[..., Awaitable[Sequence[Any]]]:
        async def fetch(text: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
            cursor = connection.cursor()
            try:
                cursor.arraysize, cursor.prefetchrows = _ROWS, _ROWS + 1
                # LOBs as values, for this call only: what the process does elsewhere is not ours to say.
                await cursor.execute(text, parameters, fetch_lobs=False)
                rows: Sequence[Any] = await cursor.fetchall()
                return rows
            finally:
                cursor.close()

        return fetch

    # ---------------------------------------------------------------------------------------------------- the rest

    async def reclaim(self) -> int:
        """See `Driver.reclaim`: what a table has once taken of its tablespace its owner gives back, if at all."""
        raise UnsupportedOperationError("OracleBackend", "vacuum(reclaim=True)")

    async def _look(self, opened: LoopEngine, asked: bool) -> None:
        async with opened.connect() as connection:
            await connection.run_sync(check_session)
        await super()._look(opened, asked)

    def _options(self, isolation: str) -> dict[str, Any]:
        # What reads is one statement, or looks again where it matters.
        level = super()._options(isolation) if self._isolates and isolation == WRITING else {}
        return {**level, PATIENCE: self._patience}

    def _may_not_create(self, error: BaseException) -> bool:
        return code(error) in NO_RIGHTS


def _compare_bytes(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(BINARY)
    cursor.close()
