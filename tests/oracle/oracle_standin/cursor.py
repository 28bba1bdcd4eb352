"""Cursors of the stand-in: `oracledb.AsyncCursor` as far as this package and SQLAlchemy use it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import oracledb
from oracle.oracle_standin import blocks
from oracle.oracle_standin.errors import StandInError, dpy
from oracle.oracle_standin.journal import JOURNAL
from oracle.oracle_standin.translate import Translation, by_name, translate
from oracle.oracle_standin.values import LOB, Column, Var, bound, column, plain

if TYPE_CHECKING:
    from oracle.oracle_standin.connection import StandInConnection

_LOBS = (oracledb.DB_TYPE_BLOB, oracledb.DB_TYPE_CLOB)


class StandInCursor:
    """One cursor."""

    def __init__(self, connection: StandInConnection) -> None:
        self.connection = connection
        self.description: list[Column] | None = None
        self.rowcount = 0
        self.arraysize = 100
        self.prefetchrows = 2
        self.outputtypehandler: Any = None
        self.statement: str | None = None
        self.bindvars: Any = None
        self._sizes: dict[str, Any] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._at = 0

    def var(self, typ: Any, *arguments: Any, **options: Any) -> Var:
        return Var(typ, *arguments, **options)

    def setinputsizes(self, *types: Any, **named: Any) -> None:
        if types:
            raise StandInError("setinputsizes by position")
        self._sizes = {name.strip('"') if '"' in name else name.upper(): kind for name, kind in named.items()}

    def close(self) -> None:
        self._rows = []

    async def __aenter__(self) -> StandInCursor:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------ executing

    async def execute(
        self,
        statement: str,
        parameters: Any = None,
        *,
        fetch_lobs: bool | None = None,
        fetch_decimals: bool | None = None,
        **named: Any,
    ) -> StandInCursor | None:
        done = self._prepare(statement)
        values = by_name(statement, done, parameters if parameters is not None else named or None)
        await JOURNAL.note(statement, list(values.values()))
        if done.kind == "block":
            await blocks.run(self.connection, statement, values, self._sizes)
        elif done.kind == "command":
            await self.connection.command(statement)
        elif done.kind == "ddl":
            text, _ = done.text({})
            await self.connection.ddl(text, done.domains)
        else:
            await self._run(done, values, fetch_lobs)
        self._sizes = {}
        return self if self.description is not None else None

    def _prepare(self, statement: str) -> Translation:
        self.statement = statement
        self.description = None
        self._rows, self._at, self.rowcount = [], 0, 0
        return translate(statement)

    async def _run(self, done: Translation, values: Mapping[str, Any], fetch_lobs: bool | None) -> None:
        given = {name: bound(value, self._sizes.get(name)) for name, value in values.items() if name not in done.out}
        async with self.connection.statement(writes=done.writes, wait=done.wait):
            rows, prepared = await self.connection.run(done, given)
        if done.kind == "query":
            self.description = [column(a.name, a.type.name) for a in prepared.get_attributes()]
            await self._give(rows, fetch_lobs)
        else:
            self.rowcount = _count(prepared)
        if done.out:
            await _return(done, values, rows, 0)

    async def executemany(self, statement: str, parameters: Any, **_: Any) -> None:
        done = self._prepare(statement)
        if done.kind == "block":
            raise StandInError("a block in executemany")
        rows = [{}] * parameters if isinstance(parameters, int) else list(parameters)
        given = [by_name(statement, done, row) for row in rows]
        for values in given:
            await JOURNAL.note(statement, list(values.values()))
        finished = 0
        try:
            async with self.connection.statement(writes=True):
                for values in given:
                    await self._one_of_many(done, values, finished)
                    finished += 1
        except oracledb.Error as error:
            # The rows before the one that failed stay.
            if finished and not getattr(error.args[0], "is_session_dead", False):
                async with self.connection.statement(writes=True):
                    self.rowcount = 0
                    for n, values in enumerate(given[:finished]):
                        await self._one_of_many(done, values, n)
            raise
        self._sizes = {}

    async def _one_of_many(self, done: Translation, values: Mapping[str, Any], n: int) -> None:
        given = {name: bound(value, self._sizes.get(name)) for name, value in values.items() if name not in done.out}
        rows, prepared = await self.connection.run(done, given)
        self.rowcount += _count(prepared)
        if done.out:
            await _return(done, values, rows, n)

    # ------------------------------------------------------------------------------------------------------- fetching

    async def _give(self, rows: Sequence[Any], fetch_lobs: bool | None) -> None:
        assert self.description is not None
        handler = self.outputtypehandler or self.connection.outputtypehandler
        variables = [_variable(self, handler, found) for found in self.description]
        if fetch_lobs is None:
            fetch_lobs = oracledb.defaults.fetch_lobs
        for row in rows:
            given = []
            for value, variable, found in zip(row, variables, self.description, strict=True):
                if variable is not None:
                    given.append(await variable.convert(plain(value), found.type_code))
                elif found.type_code in _LOBS and value is not None and fetch_lobs:
                    given.append(LOB(value, found.type_code))
                else:
                    given.append(plain(value))
            self._rows.append(tuple(given))

    async def fetchall(self) -> list[Any]:
        return await self.fetchmany(len(self._rows))

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        if self.description is None:
            raise dpy(1003, "the executed statement does not return rows")
        found = self._rows[self._at : self._at + (self.arraysize if size is None else size)]
        self._at += len(found)
        self.rowcount = self._at
        return found

    async def fetchone(self) -> Any:
        found = await self.fetchmany(1)
        return found[0] if found else None

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (row := await self.fetchone()) is not None:
            yield row


def _variable(cursor: StandInCursor, handler: Any, found: Column) -> Var | None:
    if handler is None:
        return None
    if len(inspect.signature(handler).parameters) == 2:
        made = handler(cursor, found)
    else:
        made = handler(cursor, found.name, found.type_code, found.internal_size, found.precision, found.scale)
    assert made is None or isinstance(made, Var)
    return made


def _count(prepared: Any) -> int:
    words = (prepared.get_statusmsg() or "").split()
    return int(words[-1]) if words and words[-1].isdigit() else 0


async def _return(done: Translation, values: Mapping[str, Any], rows: Sequence[Any], n: int) -> None:
    """Put what RETURNING gave into the variables: for each execution a list with a value for each row."""
    for place, name in enumerate(done.out):
        variable = values[name]
        if not isinstance(variable, Var):
            raise dpy(4012, f"the bind {name} of RETURNING is no variable")
        variable.values[n] = [await variable.convert(plain(row[place]), None) for row in rows]
