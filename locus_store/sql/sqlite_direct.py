"""Prebuilt statements, run straight on SQLite's own cursor.

Compiling and binding a statement costs SQLAlchemy ten times what SQLite takes to run it. The statements of the
primitives are built once, so their text and the order of their parameters are known after the first call. This is only
for connections that the store opened itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Executable
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

Parameters = Mapping[str, Any]


class _Prepared(NamedTuple):
    """A statement as SQLite takes it; ``defaults`` are values that the statement itself brings."""

    text: str
    names: tuple[str, ...]
    defaults: dict[str, Any]

    def values(self, parameters: Parameters) -> list[Any]:
        if self.defaults:
            parameters = self.defaults | dict(parameters)
        return [parameters[name] for name in self.names]


_prepared: dict[Executable, _Prepared | None] = {}


def _prepare(statement: Executable, dialect: Dialect, parameters: Parameters) -> _Prepared | None:
    """None for a statement whose text depends on its parameters (IN with a list)."""
    compiled = statement.compile(dialect=dialect, column_keys=list(parameters))  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    if compiled.post_compile_params or compiled.literal_execute_params or compiled.positiontup is None:
        return None
    defaults = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
    return _Prepared(compiled.string, tuple(compiled.positiontup), defaults)


class DirectResult:
    """The part of SQLAlchemy's result that the primitives use; rows are tuples."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed."""
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The id of the row that the statement inserted."""
        return self._cursor.lastrowid

    def __iter__(self) -> Iterator[Any]:
        return self._cursor

    def all(self) -> list[Any]:
        """All rows."""
        return self._cursor.fetchall()

    def first(self) -> Any:
        """The first row, or None; the rest is not read."""
        row = self._cursor.fetchone()
        self._cursor.close()
        return row

    def one(self) -> Any:
        """The only row."""
        (row,) = self._cursor.fetchall()
        return row

    def scalar_one(self) -> Any:
        """The only value of the only row."""
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        """The only value of the only row, or None if there is no row."""
        rows = self._cursor.fetchall()
        return rows[0][0] if rows else None


class DirectConnection:
    """A connection of the store's own on which `execute` skips SQLAlchemy where it can.

    Args:
        connection: The connection; what cannot be prepared is run by it, in the same transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        self.raw = raw

    def execute(self, statement: Executable, parameters: Parameters | Sequence[Parameters] | None = None) -> Any:
        """See `Connection.execute`."""
        parameters = parameters or {}
        try:
            prepared = _prepared[statement]
        except KeyError:
            sample = parameters if isinstance(parameters, Mapping) else next(iter(parameters), {})
            prepared = _prepared[statement] = _prepare(statement, self.connection.dialect, sample)
        if prepared is None:
            return self.connection.execute(statement, parameters)
        if isinstance(parameters, Mapping):
            return DirectResult(self.raw.execute(prepared.text, prepared.values(parameters)))
        return DirectResult(self.raw.executemany(prepared.text, [prepared.values(p) for p in parameters]))
