"""Statements sent to the driver's own connection, past SQLAlchemy's execution.

A function that reads (see `locus_store.sql.reading`) gets a `DirectConnection` in place of a `sqlalchemy.Connection`.
What it executes is compiled once and sent as text, outside any transaction: one statement, one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import VARBINARY, CompoundSelect, Dialect, Select
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import await_only

from locus_store.sql.types import Identifier, OracleBytes, from_oracle

Statement = Select[Any] | CompoundSelect[Any]


class NotDirectError(Exception):
    """The statement has a part that is known only when it is executed: run the function the usual way."""


class _Compiled(NamedTuple):
    """A statement as text.

    Attributes:
        text: The text.
        names: Its parameters in order, or None where they go by name.
        values: Those that are fixed.
        encoded: The names of those that are text as bytes.
        readers: What makes of a column's values what is wanted, for those that are something else.
    """

    text: str
    names: tuple[str, ...] | None
    values: Mapping[str, Any]
    encoded: frozenset[str]
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]


class DirectStatements:
    """Compiled statements of one store.

    Only types whose values need no conversion are used in them, so parameters and rows pass as they are; but for names,
    which are bytes on some databases, and for bytes on Oracle, where none at all would be nothing.

    Args:
        schema: The schema of the tables, or None.
    """

    def __init__(self, schema: str | None) -> None:
        self._options: dict[str, Any] = (
            {} if schema is None else {"schema_translate_map": {None: schema}, "render_schema_translate": True}
        )
        self._compiled: dict[Statement, _Compiled] = {}

    def of(self, statement: Statement, dialect: Dialect) -> _Compiled:
        """The text of a statement, which is one of a few that live as long as the process.

        Args:
            statement: The statement.
            dialect: SQLAlchemy's dialect; once it has been connected, for it asks the server about escapes.
        """
        found = self._compiled.get(statement)
        if found is None:
            compiled = statement.compile(dialect=dialect, **self._options)
            assert isinstance(compiled, SQLCompiler)
            if compiled.literal_execute_params or compiled.post_compile_params:
                raise NotDirectError
            found = _Compiled(
                compiled.string,
                None if compiled.positiontup is None else tuple(compiled.positiontup),
                compiled.params,
                frozenset(name for name, bind in compiled.binds.items() if _is_bytes(bind.type, dialect)),
                tuple(
                    (i, read)
                    for i, column in enumerate(statement.selected_columns)
                    if (read := _reader(column.type, dialect)) is not None
                ),
            )
            self._compiled[statement] = found
        return found


def _is_bytes(type_: TypeEngine[Any], dialect: Dialect) -> bool:
    return isinstance(type_, Identifier) and isinstance(type_.load_dialect_impl(dialect), VARBINARY)


def _reader(type_: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    if _is_bytes(type_, dialect):
        return bytes.decode
    return from_oracle if isinstance(type_.dialect_impl(dialect), OracleBytes) else None


def _read(row: Sequence[Any], readers: tuple[tuple[int, Callable[[Any], Any]], ...]) -> list[Any]:
    values = list(row)
    for i, read in readers:
        if values[i] is not None:
            values[i] = read(values[i])
    return values


class DirectRows:
    """As much of `sqlalchemy.Result` as functions that read use; the rest is `NotDirectError`."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> Sequence[Any]:
        """All rows."""
        return self._rows

    def first(self) -> Any:
        """The first row, or None."""
        return self._rows[0] if self._rows else None

    def __getattr__(self, name: str) -> Any:
        raise NotDirectError


class DirectConnection:
    """As much of `sqlalchemy.Connection` as functions that read use; the rest is `NotDirectError`.

    It waits, so it must be used within a greenlet.

    Args:
        fetch: The driver connection's coroutine that sends a text with its parameters, one by one or as a dict where
            they go by name, and returns rows.
        statements: Where compiled statements are kept.
        dialect: SQLAlchemy's dialect of the engine that the connection is from.
    """

    def __init__(self, fetch: Callable[..., Any], statements: DirectStatements, dialect: Dialect) -> None:
        self._fetch = fetch
        self._statements = statements
        self._dialect = dialect

    def execute(self, statement: Statement, parameters: Mapping[str, Any]) -> DirectRows:
        """Send a statement and wait for its rows."""
        text, names, values, encoded, readers = self._statements.of(statement, self._dialect)
        arguments: list[Any]
        if names is None:
            arguments = [{name: parameters.get(name, value) for name, value in values.items()}]
        elif encoded:
            values = {**values, **parameters}
            arguments = [values[name].encode() if name in encoded else values[name] for name in names]
        else:
            arguments = [parameters[name] if name in parameters else values[name] for name in names]
        rows = await_only(self._fetch(text, *arguments))
        return DirectRows([_read(row, readers) for row in rows] if readers else rows)

    def __getattr__(self, name: str) -> Any:
        raise NotDirectError
