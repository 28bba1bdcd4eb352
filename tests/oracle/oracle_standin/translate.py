"""From Oracle's SQL to PostgreSQL's, token by token.

Only what differs is changed, and what this package sends: names in capitals become small letters, binds get the type of
their value, types get other names, RETURNING loses its INTO, FOR UPDATE its WAIT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from oracle.oracle_standin.errors import StandInError, dpy, ora
from oracle.oracle_standin.values import LONG_RAW, LONG_TEXT, Bound
from oracle.tokens import Token, inside, tokens

Kind = Literal["query", "dml", "ddl", "lock", "block", "command"]

_FIRST: dict[str, Kind] = {
    **dict.fromkeys(("SELECT", "WITH", "("), "query"),
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE"), "dml"),
    **dict.fromkeys(("CREATE", "DROP", "ALTER", "TRUNCATE"), "ddl"),
    **dict.fromkeys(("BEGIN", "DECLARE"), "block"),
    **dict.fromkeys(("COMMIT", "ROLLBACK", "SAVEPOINT", "SET"), "command"),
    "LOCK": "lock",
}  # fmt: skip
_FUNCTIONS = {"NVL": "coalesce", "GREATEST": "oracle_greatest", "LEAST": "oracle_least"}
_WORDS = {"MINUS": "EXCEPT", "SYSTIMESTAMP": "statement_timestamp()"}


@dataclass
class Translation:
    """A statement, ready for the types of its binds.

    Attributes:
        kind: What it is.
        parts: Text of PostgreSQL's, and the names of binds in between.
        binds: The names of all binds, in order of first appearance.
        out: The binds that RETURNING … INTO names.
        writes: It changes or locks something.
        wait: Seconds it waits for a lock, 0 for NOWAIT, or None.
        domains: The domains that its types need, with what makes them.
        inserts_rows: It is INSERT … SELECT.
    """

    kind: Kind
    parts: list[str | Token] = field(default_factory=list)
    binds: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    writes: bool = False
    wait: int | None = None
    domains: dict[str, str] = field(default_factory=dict)
    inserts_rows: bool = False

    def text(self, values: Mapping[str, Bound]) -> tuple[str, list[object]]:
        """The statement with its binds numbered, and their values in that order."""
        direct = self.kind == "dml" and not self.inserts_rows
        numbers: dict[str, int] = {}
        arguments: list[object] = []
        text: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                text.append(part)
                continue
            kind, value = values[part.upper]
            if kind in (LONG_RAW, LONG_TEXT) and not direct:
                raise ora(1461, "can bind a LONG value only for insert into a LONG column")
            if kind is None:
                text.append(f"{part.before}NULL")
                continue
            if part.upper not in numbers:
                arguments.append(value)
                numbers[part.upper] = len(arguments)
            text.append(f"{part.before}(${numbers[part.upper]}::{kind})")
        return "".join(text), arguments


@cache
def translate(sql: str) -> Translation:
    """Translate a statement that is no block."""
    found = tokens(sql)
    if not found or found[0].upper not in _FIRST:
        raise ora(900, "invalid SQL statement")
    kind = _FIRST[found[0].upper]
    if kind == "ddl" and found[0].is_("ALTER") and found[1].is_("SESSION"):
        kind = "command"
    done = Translation(kind, writes=kind in ("dml", "lock"))
    done.binds = list(dict.fromkeys(token.upper for token in found if token.kind == "bind"))
    if kind in ("block", "command"):
        return done
    done.inserts_rows = found[0].is_("INSERT") and any(token.is_("SELECT") for token in found)
    found = _without_returning(found, done)
    found = _without_wait(found, done)
    _Writer(found, done).write()
    return done


def _without_returning(found: list[Token], done: Translation) -> list[Token]:
    for i, token in enumerate(found):
        if token.is_("RETURNING", "RETURN"):
            into = next((k for k in range(i, len(found)) if found[k].is_("INTO")), None)
            if into is None:
                raise ora(925, "missing INTO keyword")
            done.out = [t.upper for t in found[into:] if t.kind == "bind"]
            return found[:into]
    return found


def _without_wait(found: list[Token], done: Translation) -> list[Token]:
    for i, token in enumerate(found):
        locks = (token.is_("FOR") and i + 1 < len(found) and found[i + 1].is_("UPDATE")) or done.kind == "lock"
        if not locks:
            continue
        done.writes = True
        rest = found[i:]
        for k, word in enumerate(rest):
            if word.is_("WAIT"):
                done.wait = int(rest[k + 1].text)
                return [*found[:i], *rest[:k], *rest[k + 2 :]]
            if word.is_("NOWAIT"):
                done.wait = 0
        return found
    return found


class _Writer:
    """Writes PostgreSQL's text, one token after the other."""

    def __init__(self, found: Sequence[Token], done: Translation) -> None:
        self._found = list(found)
        self._done = done
        self._i = 0

    def write(self) -> None:
        while self._i < len(self._found):
            self._one()

    def _next(self, ahead: int = 1) -> Token:
        place = self._i + ahead
        return self._found[place] if place < len(self._found) else Token("sign", "", "", "")

    def _put(self, text: str, count: int = 1) -> None:
        self._done.parts.append(self._found[self._i].before + text)
        self._i += count

    def _one(self) -> None:
        token = self._found[self._i]
        if token.kind == "bind":
            self._done.parts.append(token)
            self._i += 1
        elif token.kind == "text":
            self._put("NULL" if token.text == "''" else token.text)
        elif token.kind == "quoted":
            self._put('"' + token.upper.swapcase() + '"')
        elif token.is_("||", "::", "?", "->", "->>"):
            raise StandInError(f"{token.text} is not translated")
        elif token.kind != "word":
            self._put(token.text)
        elif token.upper in _FUNCTIONS and self._next().is_("("):
            self._put(_FUNCTIONS[token.upper])
        elif token.upper in _WORDS:
            self._put(_WORDS[token.upper])
        elif token.is_("NUMBER", "VARCHAR2", "RAW", "INTEGER"):
            self._type(token)
        elif self._done.kind == "ddl" and token.is_("GENERATED"):
            self._identity()
        elif self._done.kind == "ddl" and token.is_("PURGE", "CONSTRAINTS"):
            self._put("")
        else:
            self._put(token.text)

    def _type(self, token: Token) -> None:
        length: list[Token] = []
        count = 1
        if self._next().is_("("):
            end = inside(self._found, self._i + 1)
            length = self._found[self._i + 2 : end]
            count = end - self._i + 1
        number = int(length[0].text) if length else 0
        if token.is_("INTEGER"):
            self._put("bigint")
        elif token.is_("NUMBER"):
            whole = length and (len(length) == 1 or length[2].text == "0")
            self._put("bigint" if whole and number <= 19 else "numeric", count)
        elif self._done.kind != "ddl":
            self._put("text" if token.is_("VARCHAR2") else "bytea", count)
        else:
            self._put(self._domain(token, number, characters=any(t.is_("CHAR") for t in length)), count)

    def _domain(self, token: Token, length: int, *, characters: bool) -> str:
        if token.is_("RAW"):
            name, base, limit = f"raw_{length}", "bytea", f"octet_length(VALUE) <= {length}"
        else:
            measure = "char_length" if characters else "octet_length"
            name = f"varchar2_{length}_{'char' if characters else 'byte'}"
            base, limit = 'text COLLATE "C"', f"{measure}(VALUE) <= {length} AND octet_length(VALUE) <= 4000"
        self._done.domains[name] = f"CREATE DOMAIN public.{name} AS {base} CHECK ({limit})"
        return name

    def _identity(self) -> None:
        end = next(k for k in range(self._i, len(self._found)) if self._found[k].is_("IDENTITY"))
        if end + 1 < len(self._found) and self._found[end + 1].is_("("):
            end = inside(self._found, end + 1)
        always = self._next().is_("ALWAYS")
        self._put(f"GENERATED {'ALWAYS' if always else 'BY DEFAULT'} AS IDENTITY", end - self._i + 1)


@cache
def names_of_binds(sql: str) -> list[str]:
    """The binds of a statement, one for each place where they stand."""
    return [token.upper for token in tokens(sql) if token.kind == "bind"]


def by_name(sql: str, done: Translation, given: object) -> dict[str, object]:
    """The values of the binds by their names, however they were passed."""
    if given is None:
        found: dict[str, object] = {}
    elif isinstance(given, Mapping):
        found = {}
        for name, value in given.items():
            plain = re.sub(r'^:|"', "", name) if '"' in name else name.removeprefix(":").upper()
            if plain not in done.binds:
                raise dpy(4008, f'no bind placeholder named ":{name}" was found in the SQL text')
            found[plain] = value
    else:
        places = done.binds if done.kind == "block" else names_of_binds(sql)
        values = list(given)  # type: ignore[call-overload]
        if len(values) != len(places):
            raise dpy(4009, f"{len(places)} positional bind values are required but {len(values)} were provided")
        found = dict(zip(places, values, strict=True))
    for name in done.binds:
        if name not in found:
            raise dpy(4010, f'a bind variable replacement value for placeholder ":{name}" was not provided')
    return found
