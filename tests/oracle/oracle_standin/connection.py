"""Connections of the stand-in: `oracledb.AsyncConnection` as far as this package and SQLAlchemy use it."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from oracle.oracle_standin import errors
from oracle.oracle_standin.cursor import StandInCursor
from oracle.oracle_standin.errors import StandInError, dpy, is_loss, lost, ora, translated
from oracle.oracle_standin.journal import JOURNAL
from oracle.oracle_standin.translate import Translation
from oracle.oracle_standin.values import Bound

_CACHED = 200
_DDL_WAIT = "10s"
"""Oracle's default is not to wait at all; PostgreSQL's own workers lock tables for moments."""


def creator(url: str) -> Callable[..., Awaitable[StandInConnection]]:
    """What stands for ``oracledb.connect_async``: SQLAlchemy takes it as ``async_creator_fn`` among its connect_args.

    Args:
        url: The database of PostgreSQL's, made fit by `install`. What the caller says of an Oracle server is ignored.
    """

    async def connect(**_: Any) -> StandInConnection:
        try:
            connection = await asyncpg.connect(url, timeout=20, statement_cache_size=0)
            for name, like in (("blob", bytes), ("clob", str)):
                await connection.set_type_codec(
                    name, schema="public", encoder=like, decoder=like, format="binary" if like is bytes else "text"
                )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise dpy(6005, "cannot connect to database") from error
        return StandInConnection(connection, url, functions)

    functions: set[str] = set()
    return connect


class StandInConnection:
    """One session.

    Attributes:
        autocommit: Each statement that succeeds is committed.
        outputtypehandler: Asked for the variable of each column that is fetched, unless the cursor has one.
        functions: The blocks that were made into functions in this database.
    """

    thin = True
    version = "19.0.0.0.0"
    max_identifier_length = 128
    username = "locus"
    dsn = "standin"

    def __init__(self, connection: Any, url: str, functions: set[str]) -> None:
        self.url = url
        self.functions = functions
        self.autocommit = False
        self.outputtypehandler: Any = None
        self.inputtypehandler: Any = None
        self.stmtcachesize = 20
        self.call_timeout = 0
        self.postgresql = connection
        self._statements: OrderedDict[str, Any] = OrderedDict()
        self._lock = asyncio.Lock()
        self._isolation = "READ COMMITTED"
        self._open = False
        self._read_only = False
        self._dirty = False
        self._closed = False

    # --------------------------------------------------------------------------------------------------- the interface

    def cursor(self, scrollable: bool = False) -> StandInCursor:
        return StandInCursor(self)

    async def execute(self, statement: str, parameters: Any = None) -> None:
        await self.cursor().execute(statement, parameters)

    async def executemany(self, statement: str, parameters: Sequence[Any]) -> None:
        await self.cursor().executemany(statement, parameters)

    async def fetchall(self, statement: str, parameters: Any = None, **options: Any) -> list[Any]:
        cursor = self.cursor()
        await cursor.execute(statement, parameters, **_fetching(options))
        return await cursor.fetchall()

    async def fetchone(self, statement: str, parameters: Any = None, **options: Any) -> Any:
        cursor = self.cursor()
        await cursor.execute(statement, parameters, **_fetching(options))
        return await cursor.fetchone()

    async def commit(self) -> None:
        await self.ended("COMMIT")

    async def rollback(self) -> None:
        await self.ended("ROLLBACK")

    async def ping(self) -> None:
        async with self._call():
            await self.postgresql.execute("")

    async def close(self, *_: Any) -> None:
        if self._closed:
            raise dpy(1001, "not connected to database")
        self._closed = True
        await self.postgresql.close(timeout=10)

    def terminate(self) -> None:
        """End at once, without a word to the server."""
        self._closed = True
        self.postgresql.terminate()

    def is_healthy(self) -> bool:
        return not self._closed and not self.postgresql.is_closed()

    @property
    def transaction_in_progress(self) -> bool:
        return self._open

    async def __aenter__(self) -> StandInConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---------------------------------------------------------------------------------------------------- transactions

    @asynccontextmanager
    async def _call(self, *, waited: bool = False, ddl: bool = False, counts: bool = True) -> AsyncIterator[None]:
        """One call to the server: one at a time, and its errors are Oracle's."""
        async with self._lock:
            if self._closed:
                raise dpy(1001, "not connected to database")
            JOURNAL.calls += counts
            try:
                async with asyncio.timeout(self.call_timeout / 1000 if self.call_timeout else None):
                    yield
            except TimeoutError as error:
                raise dpy(4024, f"call timeout of {self.call_timeout} ms exceeded") from error
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
                if is_loss(error) or self.postgresql.is_closed():
                    self.terminate()
                    raise lost() from error
                if not isinstance(error, asyncpg.PostgresError):
                    raise StandInError(repr(error)) from error
                raise translated(error, waited=waited, ddl=ddl) from error

    async def _begin(self, *, read_only: bool = False) -> None:
        """Begin a transaction of PostgreSQL's, for Oracle's begin by themselves."""
        how = "REPEATABLE READ" if read_only or self._isolation == "SERIALIZABLE" else "READ COMMITTED"
        # A first query is what makes PostgreSQL take the snapshot that Oracle's transaction has from its beginning.
        look = "READ ONLY; SELECT 1" if read_only else "READ WRITE"
        await self.postgresql.execute(f"BEGIN ISOLATION LEVEL {how} {look}; SAVEPOINT statement")
        self._open, self._read_only, self._dirty = True, read_only, False

    async def ended(self, how: str, *, within: bool = False) -> None:
        """End the transaction, if there is one; `within` a call that was made already."""
        if not self._open:
            if self._closed:
                raise dpy(1001, "not connected to database")
            return
        async with self._call(counts=not within):
            self._open = self._read_only = self._dirty = False
            await self.postgresql.execute(how)

    @asynccontextmanager
    async def statement(self, *, writes: bool, wait: int | None = None, waited: bool = False) -> AsyncIterator[None]:
        """The time of one statement, which fails alone: the transaction goes on without it.

        Args:
            writes: It changes or locks something.
            wait: How many seconds it waits for a lock, or None for ever.
            waited: It limits its waiting itself.
        """
        async with self._call(waited=waited or bool(wait)):
            # A query alone begins no transaction of Oracle's, and holds nothing that others would wait for.
            single = self.autocommit or (not writes and self._isolation == "READ COMMITTED")
            alone = single and not self._open and wait is None
            if not alone:
                if not self._open:
                    await self._begin()
                patience = "" if wait is None else f"; SET LOCAL lock_timeout = '{max(1, wait * 1000)}ms'"
                if self._dirty:
                    await self.postgresql.execute(f"RELEASE SAVEPOINT statement; SAVEPOINT statement{patience}")
                    self._dirty = False
                elif patience:
                    await self.postgresql.execute(patience[2:])
            try:
                yield
            except BaseException:
                if not alone and not self.postgresql.is_closed():
                    await self.postgresql.execute("ROLLBACK TO SAVEPOINT statement; SET LOCAL lock_timeout = 0")
                raise
            if not alone:
                self._dirty = self._dirty or writes
                if wait is not None:
                    await self.postgresql.execute("SET LOCAL lock_timeout = 0")
                if self.autocommit:
                    self._open = self._dirty = False
                    await self.postgresql.execute("COMMIT")

    async def ddl(self, text: str, domains: Mapping[str, str]) -> None:
        """DDL, which commits before and after."""
        await self.commit()
        for name, create in domains.items():
            async with self._call(ddl=True):
                body = f"BEGIN {create}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END"
                if not await self.postgresql.fetchval("SELECT to_regtype($1)", name):
                    await self.postgresql.execute(f"DO $do$ {body} $do$")
        async with self._call(ddl=True):
            self._statements.clear()
            await self.postgresql.execute(f"SET lock_timeout = '{_DDL_WAIT}'")
            try:
                await self.postgresql.execute(text)
            finally:
                if not self.postgresql.is_closed():
                    await self.postgresql.execute("RESET lock_timeout")

    async def command(self, sql: str) -> None:
        """What is said to the session and is no statement of PostgreSQL's."""
        text = " ".join(sql.upper().split())
        if found := re.fullmatch(r"ALTER SESSION SET ISOLATION_LEVEL ?= ?(READ COMMITTED|SERIALIZABLE)", text):
            self._isolation = found[1]
        elif text.startswith("ALTER SESSION SET NLS_"):
            async with self._call():
                for name, value in re.findall(r"(NLS_\w+) ?= ?'?(\w+)'?", text):
                    await self.postgresql.execute(f"SET oracle.{name} = '{value}'")
        elif text in ("SET TRANSACTION READ ONLY", "SET TRANSACTION READ WRITE"):
            if self._open:
                raise ora(1453, "SET TRANSACTION must be first statement of transaction")
            async with self._call():
                await self._begin(read_only=text.endswith("ONLY"))
        elif text in ("COMMIT", "ROLLBACK"):
            await self.ended(text)
        elif found := re.fullmatch(r"SAVEPOINT (\w+)", text):
            await self._savepoint(f"RELEASE SAVEPOINT statement; SAVEPOINT {found[1]}_; SAVEPOINT statement")
        elif found := re.fullmatch(r"ROLLBACK TO (?:SAVEPOINT )?(\w+)", text):
            await self._savepoint(f"ROLLBACK TO SAVEPOINT {found[1]}_; SAVEPOINT statement")
        else:
            raise StandInError(f"the stand-in does not know: {sql}")

    async def _savepoint(self, text: str) -> None:
        async with self._call():
            if not self._open:
                await self._begin()
            await self.postgresql.execute(text)
            self._dirty = False

    # ------------------------------------------------------------------------------------------------------ statements

    async def prepared(self, text: str) -> Any:
        """A statement of PostgreSQL's, prepared once."""
        found = self._statements.get(text)
        if found is None:
            found = self._statements[text] = await self.postgresql.prepare(text)
            if len(self._statements) > _CACHED:
                self._statements.popitem(last=False)
        self._statements.move_to_end(text)
        return found

    async def run(self, done: Translation, values: Mapping[str, Bound]) -> tuple[list[Any], Any]:
        """Run a statement within `statement`; its rows, and what was prepared."""
        text, arguments = done.text(values)
        try:
            prepared = await self.prepared(text)
            return await prepared.fetch(*arguments), prepared
        except (asyncpg.InvalidCachedStatementError, asyncpg.InvalidSQLStatementNameError) as error:
            # Somebody changed a table; a session of Oracle's compiles the statement again.
            self._statements.clear()
            if self._open:
                await self.postgresql.execute("ROLLBACK TO SAVEPOINT statement")
            try:
                prepared = await self.prepared(text)
                return await prepared.fetch(*arguments), prepared
            except asyncpg.InvalidCachedStatementError:
                raise error from None


def _fetching(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name.startswith("fetch_")}


__all__ = ["StandInConnection", "creator", "errors"]
