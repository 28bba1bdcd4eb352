"""The primitives inside a transaction of the caller's.

Every statement goes through the `Connection.execute` of the session or connection that was handed in, with the store's
schema given with the statement: the host's own options, pools and hooks are left as they are, and no statement goes
round SQLAlchemy. Nothing is begun here but what SQLAlchemy begins by itself, and nothing is ended, flushed or tried
again. What the host's connection does between two statements is the host's affair, so a read of several statements
makes sure itself that they belong together (`Dialect.joining`).

What the process remembers of a thread is shared with the backend that was bound. It may be wrong after a rollback;
a save names what it is planned on, the database checks that, and then the save is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from locus_store.core.driver import Key
from locus_store.core.errors import (
    BackendError,
    SchemaNotReadyError,
    StoreBusyError,
    TransactionConflictError,
    TransactionNotAllowedError,
)
from locus_store.sql import copying
from locus_store.sql.driver import SQLDriver
from locus_store.sql.handed_in import READ_WHOLE
from locus_store.sql.models import Thread
from locus_store.sql.schema import REVISION, UPGRADE, check_joining

P = ParamSpec("P")
R = TypeVar("R")

_AGAIN = "roll your transaction back, and run the whole of it again from its first statement"
_OF_THREAD = {"mapper": Thread}
"""What a session with several binds is asked with."""


class JoinedConnection:
    """A `Connection` of the caller's on which each statement is executed with options of its own.

    Args:
        connection: The caller's connection; its own options are not changed.
        options: The execution options of each statement.
    """

    __slots__ = ("_connection", "_options")

    def __init__(self, connection: Connection, options: Mapping[str, Any]) -> None:
        self._connection = connection
        self._options = options

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        """See `Connection.execute`."""
        return self._connection.execute(statement, parameters, execution_options=self._options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class BoundSQLDriver(SQLDriver):
    """Runs the primitives on a session or connection of the caller's.

    Args:
        parent: The driver whose storage this is.
        target: An `AsyncSession`, `AsyncConnection`, `Session` or `Connection`; of a scoped session, the one of now.

    Raises:
        TypeError: ``target`` is something else.
    """

    def __init__(self, parent: SQLDriver, target: object) -> None:
        if isinstance(target, scoped_session | async_scoped_session):
            target = target()
        if not isinstance(target, AsyncSession | AsyncConnection | Session | Connection):
            raise TypeError(
                f"bind() takes an AsyncSession, AsyncConnection, Session or Connection, got {type(target).__name__}; "
                "an AsyncEngine is handed to the backend itself: engine=…"
            )
        self._parent = parent
        self._target = target
        self.synchronous = isinstance(target, Session | Connection)
        self.dialect = parent.dialect.joining()
        self.codec = parent.codec
        self.modules = parent.modules
        self.max_piece = parent.max_piece
        self.capabilities = replace(parent.capabilities, own_connections=False, reclaim=False)
        self._schema = parent._schema
        self._options = dict(READ_WHOLE)
        if self._schema is not None:
            self._options["schema_translate_map"] = {None: self._schema}
        self.bound_to = f" bound to {type(target).__name__}"
        self._in_use = False

    def __repr__(self) -> str:
        return f"{self._parent!r}{self.bound_to}"

    def bound(self, target: object) -> BoundSQLDriver:
        """See `Driver.bound`."""
        return self._parent.bound(target)

    async def _read(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._join(function, *args, **kwargs)

    async def _write(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        def write(connection: Connection) -> R:
            return function(self.dialect.writer(connection), *args, **kwargs)

        return await self._join(write)

    async def _join(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        def work(connection: Connection) -> R:
            if not self._parent.tables_seen:
                check_joining(connection, schema=self._schema)
                self._parent.tables_seen = True
            joined = JoinedConnection(connection, self._options)
            return function(cast(Connection, joined), *args, **kwargs)

        return await self._on_connection(work)

    async def _on_connection(self, function: Callable[[Connection], R]) -> R:
        def work(target: Session | Connection) -> R:
            connection = target.connection(bind_arguments=_OF_THREAD) if isinstance(target, Session) else target
            self._check(connection)
            return function(connection)

        target = self._target
        if self._in_use:
            raise BackendError(
                f"two tasks use one {type(target).__name__} at the same time; give each a session of its own"
            )
        self._in_use = True
        try:
            if isinstance(target, AsyncSession | AsyncConnection):
                return await target.run_sync(work)
            return work(target)
        except Exception as error:
            if not self._is_of_database(error):
                raise
            raise self._translate(error)  # noqa: B904 - it has the driver's own error as its cause
        finally:
            self._in_use = False

    def _check(self, connection: Connection) -> None:
        """Look at what was handed in."""
        if connection.dialect.name not in self.dialect.names:
            raise ValueError(
                f"the {type(self._target).__name__} leads to {connection.dialect.name}, "
                f"but this is a store for {', '.join(sorted(self.dialect.names))}"
            )
        if self.dialect.in_autocommit(connection):
            raise ValueError("the connection is in autocommit, so it has no transaction that a store could join")
        self.dialect.check_connection(connection)

    def _translate(self, error: Exception) -> Exception:
        found: Exception
        if isinstance(error, InvalidRequestError):
            # Closed, in need of a rollback, without a bind for our tables, or used by two at once: it says so itself,
            # and then may quote a statement of the host's with its values.
            said = str(error.args[0]).partition(" Original exception was:")[0]
            found = BackendError(
                f"the {type(self._target).__name__} that this store is bound to cannot be used: {said}"
            )
            found.__cause__ = error
            return found
        translated = self.dialect.translate(error)
        if self.dialect.lacks_schema(error):
            self._parent.tables_seen = False
            found = SchemaNotReadyError(None, REVISION, UPGRADE)
        elif isinstance(translated, TransactionConflictError | StoreBusyError):
            found = type(translated)(f"{translated}. {_AGAIN}")
        elif type(translated) is BackendError:
            found = BackendError(f"{translated}. Roll your transaction back")
        else:
            return translated
        found.__cause__ = translated.__cause__
        return found

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        if self.codec is not None and self.codec.bound:
            await self._write(copying.check_rebinding, source, dest, upto, self.codec)
        return await super().clone(source, dest, upto=upto, overwrite=overwrite, now=now)

    async def prepare(self) -> None:
        """See `Driver.prepare`; what it makes is part of the caller's transaction, where DDL does not end that."""
        self._parent.tables_seen = False
        if self._parent.creates_schema:
            await self._on_connection(partial(_set_up, schema=self._schema))
        else:
            await self._join(_nothing)

    async def reclaim(self) -> int:
        """See `Driver.reclaim`."""
        raise TransactionNotAllowedError(type(self).__name__, "reclaim")

    async def aclose(self) -> None:
        """See `Driver.aclose`; all that is open is the caller's."""


def _set_up(connection: Connection, schema: str | None) -> None:
    from locus_store.migrations import upgrade  # Alembic is imported only where there is something to do
    from locus_store.migrations.locks import commits_ddl

    if not connection.in_transaction() and not commits_ddl(connection):
        connection.begin()  # as any statement of a bound store begins one, which the caller ends
    upgrade(connection, schema=schema)


def _nothing(_connection: Connection) -> None:
    """Looking at what was handed in is all that is wanted."""
