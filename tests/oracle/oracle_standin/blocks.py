"""Blocks of PL/SQL, run as functions of PL/pgSQL.

The two languages are near relatives, and this is a translation of the shape that `locus_store.sql.dialects.oracle_save`
writes, not an interpreter: declarations, IF, counted loops, SELECT … INTO, INSERT, UPDATE, assignments to variables and
binds, one COMMIT or ROLLBACK at the end of a path, handlers. What it shows is the logic of a block: what it checks, in
which order it locks, what it writes and answers, and how it behaves among others that do the same at once. It does not
show:

- COMMIT and ROLLBACK inside. A function cannot end the transaction, so it notes what it would have done and the stand-in
  does it right afterwards. That is the same as long as nothing is read or written after it, which is checked.
- Handlers. PostgreSQL undoes what a block did before it runs a handler, Oracle undoes the failed statement alone. That is
  the same as long as a handler begins with ROLLBACK, or its block only reads, which is checked too.
- The lengths of variables: values of binds are checked, results of expressions are not.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg
import oracledb
from oracle.oracle_standin.errors import StandInError, ora
from oracle.oracle_standin.values import IN_BLOCK, LONG_RAW, LONG_TEXT, Bound, Var, bound, plain
from oracle.tokens import Token, inside, tokens

if TYPE_CHECKING:
    from oracle.oracle_standin.connection import StandInConnection

_WORDS = {
    "NVL": "coalesce",
    "GREATEST": "oracle_greatest",
    "LEAST": "oracle_least",
    "DUP_VAL_ON_INDEX": "unique_violation",
    "COMMIT": "o_ending := 'COMMIT'",
    "ROLLBACK": "o_ending := 'ROLLBACK'",
    "EXIT": "EXIT",
}
_CHANGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
_OUT = {oracledb.DB_TYPE_NUMBER: "bigint", oracledb.DB_TYPE_VARCHAR: "text", oracledb.DB_TYPE_RAW: "bytea"}


class Block(NamedTuple):
    """A block in PL/pgSQL.

    Attributes:
        body: What the function consists of; ``b_x`` is the bind ``x``, and ``o_x`` what is assigned to it.
        out: The binds that it assigns to.
        undoes: After an error that it lets through the transaction is undone.
        waits: It names a time to wait for a lock.
    """

    body: str
    out: tuple[str, ...]
    undoes: bool
    waits: bool


async def run(connection: StandInConnection, sql: str, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    """Run a block, and end the transaction if it says so.

    Args:
        connection: Where.
        sql: The block.
        values: Its binds; those it assigns to are variables.
        sizes: What was said of their types.
    """
    if "dbms_transaction.local_transaction_id" in sql:
        # SQLAlchemy asks for the isolation level like this, and does without where the answer is out of its reach.
        values["TRANS_ID"].setvalue(0, "1.2.3")
        return
    given = {name: _bound(value, sizes.get(name)) for name, value in values.items() if not isinstance(value, Var)}
    # A NULL has no type here, so it is a part of the text.
    block = translated(sql, frozenset(name for name, value in given.items() if value.kind is None))
    arguments = [(name, value) for name, value in given.items() if value.kind is not None]
    variables = [(name, values[name]) for name in block.out]
    name = await _function(connection, block, arguments, variables)
    call = ", ".join(f"${i + 1}::{value.kind}" for i, (_, value) in enumerate(arguments))
    try:
        async with connection.statement(writes=True, waited=block.waits):
            prepared = await connection.prepared(f"SELECT * FROM public.{name}({call})")
            row = await prepared.fetchrow(*[value.value for _, value in arguments])
    except oracledb.Error as error:
        if block.undoes and not getattr(error.args[0], "is_session_dead", False):
            await connection.ended("ROLLBACK", within=True)
        raise
    if row["o_ending"] == "COMMIT":
        await connection.ended("COMMIT", within=True)
    elif row["o_ending"] == "ROLLBACK":
        await connection.ended("ROLLBACK", within=True)
    for bind, variable in variables:
        variable.setvalue(0, await variable.convert(plain(row[f"o_{bind.lower()}"]), None))


def _bound(value: Any, kind: Any) -> Bound:
    found = bound(value, kind, limit=IN_BLOCK)
    if found.kind in (LONG_RAW, LONG_TEXT):
        raise ora(6502, "PL/SQL: numeric or value error: a bind longer than a variable can be")
    return found


async def _function(
    connection: StandInConnection,
    block: Block,
    arguments: list[tuple[str, Bound]],
    variables: list[tuple[str, Var]],
) -> str:
    """The name of the block's function, which is made when it is first needed; its body decides the name."""
    parameters = [f"b_{name.lower()} {value.kind}" for name, value in arguments]
    parameters += [f"OUT o_{name.lower()} {_OUT[variable.type]}" for name, variable in variables]
    text = f"({', '.join([*parameters, 'OUT o_ending text'])}) LANGUAGE plpgsql AS $block$\n{block.body}\n$block$"
    name = "block_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    if name not in connection.functions:
        # Whoever is cancelled meanwhile leaves no connection that is half open.
        await asyncio.shield(asyncio.ensure_future(_make(connection, name, text)))
        connection.functions.add(name)
    return name


async def _make(connection: StandInConnection, name: str, text: str) -> None:
    # Apart from the session's transaction, which may be undone.
    apart = await asyncpg.connect(connection.url, timeout=20)
    try:
        for attempt in range(5):
            if await apart.fetchval("SELECT to_regproc($1) IS NOT NULL", f"public.{name}"):
                return
            try:
                await apart.execute(f"CREATE FUNCTION public.{name}{text}")
            except (asyncpg.UniqueViolationError, asyncpg.DuplicateFunctionError):
                await asyncio.sleep(0.01 * attempt)
            except asyncpg.PostgresError as error:
                raise StandInError(f"{error} in the block {text}") from error
    finally:
        await apart.close(timeout=10)


@cache
def translated(sql: str, nulls: frozenset[str]) -> Block:
    """A block in PL/pgSQL; `nulls` are the binds that are NULL."""
    found = tokens(sql)
    _check(found)
    out = tuple(dict.fromkeys(t.upper for i, t in enumerate(found[:-1]) if t.kind == "bind" and found[i + 1].is_(":=")))
    text: list[str] = []
    i = 0
    waits = False
    while i < len(found):
        token = found[i]
        if token.is_("SELECT") and (end := _waiting(found, i)):
            # The time to wait is that of this statement alone.
            milliseconds = 1000 * int(found[end - 1].text)
            body = _sql(found[i : end - 2], nulls, out)
            text.append(
                f"{token.before}PERFORM set_config('lock_timeout', '{milliseconds}ms', true); {body};"
                " PERFORM set_config('lock_timeout', '0', true)"
            )
            waits = True
            i = end
        elif token.is_("VARCHAR2", "RAW", "NUMBER"):
            end = inside(found, i + 1) if found[i + 1].is_("(") else i
            text.append(token.before + {"VARCHAR2": "text", "RAW": "bytea", "NUMBER": "bigint"}[token.upper])
            i = end + 1
        else:
            text.append(_sql([token], nulls, out))
            i += 1
    return Block("".join(text), out, _undoes(found), waits)


def _waiting(found: list[Token], start: int) -> int:
    """Where a SELECT ends that waits so long for a lock, or 0."""
    end = next(k for k in range(start, len(found)) if found[k].is_(";"))
    return end if found[end - 2].is_("WAIT") else 0


def _sql(found: list[Token], nulls: frozenset[str], out: tuple[str, ...]) -> str:
    text = []
    selects = False
    for token in found:
        selects = selects or token.is_("SELECT")
        if token.kind == "bind":
            name = token.upper.lower()
            word = f"o_{name}" if token.upper in out else "NULL" if token.upper in nulls else f"b_{name}"
        elif token.kind == "quoted":
            word = '"' + token.upper.swapcase() + '"'
        elif token.is_("INTO") and selects:
            word = "INTO STRICT"
        else:
            word = _WORDS.get(token.upper, token.text) if token.kind == "word" else token.text
        text.append(token.before + word)
    return "".join(text)


def _undoes(found: list[Token]) -> bool:
    for i, token in enumerate(found[:-4]):
        if token.is_("OTHERS"):
            return found[i + 2].is_("ROLLBACK") and found[i + 4].is_("RAISE")
    return False


def _check(found: list[Token]) -> None:
    """What must hold for the translation to mean the same; see this module's docstring.

    Raises:
        StandInError: The block is of another shape.
    """
    handled = [i for i, token in enumerate(found) if token.is_("EXCEPTION")]
    for i, token in enumerate(found):
        if token.is_("SQL", "EXECUTE", "CURSOR", "PRAGMA", "SAVEPOINT", "PROCEDURE", "FUNCTION"):
            raise StandInError(f"a block with {token.text} is not translated")
        if token.is_("COMMIT"):
            end = next((k for k in handled if k > i), len(found))
            if any(t.is_(*_CHANGES) for t in found[i:end]):
                raise StandInError("a block that goes on after its COMMIT is not translated")
        if token.is_("ROLLBACK") and not (found[i + 2].is_("RETURN", "RAISE") or found[i + 2].kind == "bind"):
            raise StandInError("a block that goes on after its ROLLBACK is not translated")
        if token.is_("WHEN") and found[i + 2].is_("THEN") and not found[i + 3].is_("ROLLBACK"):
            start = max(k for k in range(i) if found[k].is_("BEGIN"))
            if any(
                t.is_("INSERT", "UPDATE", "DELETE") and not found[k - 1].is_("FOR")
                for k, t in enumerate(found[start:i], start)
            ):
                raise StandInError("a handler of a block that changed something must begin with ROLLBACK")
