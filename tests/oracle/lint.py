"""A lint for Oracle SQL: what is wrong in a statement and no grammar tells.

It looks at tokens, not at meaning, so it is stricter than the database: it also refuses what is right in Oracle but has
no place in this package (MERGE, plain TIMESTAMP, DATE). `FINDINGS` names its rules. It knows nothing of tables; whether
a column exists, and of which type it is, comes out when the stand-in runs the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from oracle.lint_types import functions, lengths, times, types
from oracle.reserved import IN_STATEMENTS, RESERVED
from oracle.tokens import Token, inside, parts, tokens

Version = Literal["19c", "23ai"]
VERSIONS: tuple[Version, ...] = ("19c", "23ai")

LONGEST_NAME = 30
MOST_IN_LIST = 1000


class Finding(NamedTuple):
    """What a rule found."""

    rule: str
    message: str


class Statement:
    """A statement as the rules see it.

    Attributes:
        found: Its tokens.
        version: For which version of the database it is.
        block: It is a block of PL/SQL.
        query: It reads or changes rows, and is no DDL, block or command.
    """

    def __init__(self, sql: str, version: Version) -> None:
        self.found = tokens(sql)
        self.version = version
        self._at: dict[str, list[int]] = {}
        for i, token in enumerate(self.found):
            if token.kind in ("word", "sign"):
                self._at.setdefault(token.upper, []).append(i)
        first = self.found[0] if self.found else None
        self.block = first is not None and first.is_("BEGIN", "DECLARE")
        self.query = first is not None and first.is_("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "(")

    def __getitem__(self, i: int) -> Token:
        return self.found[i] if 0 <= i < len(self.found) else _NOTHING

    def __len__(self) -> int:
        return len(self.found)

    def at(self, i: int, *words: str) -> bool:
        """Whether these words stand at a place."""
        return all(self[i + n].is_(word) for n, word in enumerate(words))

    def places(self, *words: str) -> list[int]:
        """Where these words stand."""
        return [i for i in self._at.get(words[0], []) if self.at(i, *words)]

    @property
    def old(self) -> bool:
        """Whether it must do without what came after 19c."""
        return self.version == "19c"

    def level(self, i: int) -> list[Token]:
        """The tokens of the innermost brackets around a place, those of brackets within left out."""
        depth, start = 0, i
        while start > 0:
            depth += self[start - 1].is_(")") - self[start - 1].is_("(")
            if depth < 0:
                break
            start -= 1
        kept: list[Token] = []
        depth = 0
        for token in self.found[start:]:
            depth += token.is_("(")
            if depth == 0 and not token.is_(")"):
                kept.append(token)
            depth -= token.is_(")")
            if depth < 0:
                break
        return kept


_NOTHING = Token("sign", "", "", "")
Rule = Callable[[Statement], Iterator[str]]


def lint(sql: str, version: Version) -> list[Finding]:
    """What is wrong with a statement."""
    statement = Statement(sql, version)
    return [Finding(name, message) for name, rule in RULES.items() for message in rule(statement)]


# ------------------------------------------------------------------------------------------------ what others can do


def _foreign(s: Statement) -> Iterator[str]:
    """Words and signs of other databases."""
    for words in (
        ("ON", "CONFLICT"),
        ("ON", "DUPLICATE"),
        ("FOR", "SHARE"),
        ("FOR", "NO", "KEY"),
        ("WITH", "RECURSIVE"),
        ("AS", "MATERIALIZED"),
        ("DISTINCT", "ON"),
        ("INSERT", "OR"),
        ("DELETE", "USING"),
    ):
        if s.places(*words):
            yield f"{' '.join(words)} is of another database"
    for word in ("LIMIT", "ILIKE", "ISNULL", "NOTNULL", "SIMILAR", "GLOB"):
        if s.query and any(not s[i - 1].is_(".", "AS") for i in s.places(word)):
            yield f"{word} is of another database"
    for sign in ("::", "->>", "->", "`", "?", "<@", "@>", "$", "["):
        if s.places(sign):
            yield f"{sign} is no sign of Oracle's"
    if s.old and s.places("EXCEPT"):
        yield "EXCEPT came with 21c: MINUS"
    for i in s.places("MERGE"):
        if i == 0:
            yield "MERGE raises ORA-00001 in a race and returns nothing before 23ai"


def _semicolon(s: Statement) -> Iterator[str]:
    if s.block:
        if not s[len(s) - 1].is_(";"):
            yield "a block ends with a semicolon (PLS-00103)"
    elif s.places(";"):
        yield "a semicolon is no part of a statement (ORA-00933)"


def _boolean(s: Statement) -> Iterator[str]:
    if s.old and not s.block:
        for word in ("TRUE", "FALSE"):
            if any(not s[i - 1].is_(".") and not s[i + 1].is_(".") for i in s.places(word)):
                yield f"{word} came to SQL with 23ai"


def _returning(s: Statement) -> Iterator[str]:
    for i in s.places("RETURNING"):
        if not any(token.is_("INTO") for token in s.found[i:]):
            yield "RETURNING needs INTO"
    selects, returns = s.places("SELECT"), s.places("RETURNING")
    if s.old and s[0].is_("INSERT") and selects and returns and selects[0] < returns[0]:
        yield "INSERT … SELECT has no RETURNING (ORA-00933)"


def _values(s: Statement) -> Iterator[str]:
    for i in s.places("VALUES"):
        end = inside(s.found, i + 1)
        if s.old and s[i + 1].is_("(") and s[end + 1].is_(","):
            yield "VALUES of several rows came with 23ai"


def _no_from(s: Statement) -> Iterator[str]:
    if s.old:
        for i in s.places("SELECT"):
            level = s.level(i)
            # Of a compound query each part has its own.
            selects = sum(token.is_("SELECT") for token in level)
            if sum(token.is_("FROM") for token in level) < selects and not s.block:
                yield "SELECT without FROM came with 23ai: FROM dual"
                return


def _if_exists(s: Statement) -> Iterator[str]:
    if s.old and not s.block and (s.places("IF", "EXISTS") or s.places("IF", "NOT", "EXISTS")):
        yield "IF [NOT] EXISTS came with 23ai"


# -------------------------------------------------------------------------------------------------- what Oracle forbids


def _fetch(s: Statement) -> Iterator[str]:
    pages = [*s.places("FETCH", "FIRST"), *s.places("FETCH", "NEXT")]
    pages += [i for i in s.places("OFFSET") if s[i + 2].is_("ROW", "ROWS")]
    if pages and s.places("FOR", "UPDATE"):
        yield "FETCH FIRST and OFFSET do not go with FOR UPDATE (ORA-02014)"
    for i in pages:
        level = s.level(i)
        names = _selected(level)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            yield f"FETCH FIRST over two columns of one name, {', '.join(twice)} (ORA-00918)"


def _selected(level: list[Token]) -> list[str]:
    """The names of the columns of a query, as far as they have any."""
    start = next((i for i, token in enumerate(level) if token.is_("SELECT")), None)
    if start is None:
        return []
    end = next((i for i, token in enumerate(level) if i > start and token.is_("FROM")), len(level))
    last = [part[-1] for part in parts(level[start + 1 : end]) if part]
    return [token.upper for token in last if token.kind in ("word", "quoted")]


def _for_update(s: Statement) -> Iterator[str]:
    for i in s.places("FOR", "UPDATE"):
        level = s.level(i)
        if any(token.is_("DISTINCT", "GROUP", "UNION", "MINUS", "INTERSECT") for token in level):
            yield "FOR UPDATE does not go with DISTINCT, GROUP BY or a compound query (ORA-02014)"
        if sum(token.is_("(") - token.is_(")") for token in s.found[:i]):
            yield "FOR UPDATE in a subquery (ORA-00907)"


def _row_comparison(s: Statement) -> Iterator[str]:
    for i in range(len(s)):
        if not s[i].is_("("):
            continue
        end = inside(s.found, i)
        several = len(parts(s.found[i + 1 : end])) > 1
        plain = s[i - 1].kind == "sign" or s[i - 1].is_("WHERE", "AND", "OR", "NOT", "ON", "WHEN", "HAVING")
        if several and plain and (s[end + 1].is_("<", ">", "<=", ">=") or s[i - 1].is_("<", ">", "<=", ">=")):
            yield "rows are compared by = only (ORA-01796)"


def _in_list(s: Statement) -> Iterator[str]:
    for i in s.places("IN"):
        if s[i + 1].is_("("):
            count = len(parts(s.found[i + 2 : inside(s.found, i + 1)]))
            if count > MOST_IN_LIST:
                yield f"a list of {count} values after IN: {MOST_IN_LIST} at most (ORA-01795)"


def _empty_text(s: Statement) -> Iterator[str]:
    for token in s.found:
        if token.kind == "text" and token.upper in ("''", "N''"):
            yield "'' is NULL, also in a comparison, which is then never true"


def _partial_index(s: Statement) -> Iterator[str]:
    if s.at(0, "CREATE", "INDEX") or s.at(0, "CREATE", "UNIQUE", "INDEX"):
        if s.places("WHERE"):
            yield "an index has no WHERE"
        if s.places("INCLUDE"):
            yield "an index has no INCLUDE"
        if s.places("CONCURRENTLY"):
            yield "an index is made ONLINE, not CONCURRENTLY"


def _as_alias(s: Statement) -> Iterator[str]:
    for i in s.places("AS"):
        level = s.level(i)
        place = next((n for n, token in enumerate(level) if token is s[i]), None)
        if place is None:
            continue
        for token in reversed(level[:place]):
            if token.is_("SELECT", "WITH", "CAST", ","):
                break
            if token.is_("FROM", "JOIN", "UPDATE", "INTO"):
                yield "AS before the alias of a table (ORA-00933)"
                break


# ------------------------------------------------------------------------------------------------------------- names


def _long_name(s: Statement) -> Iterator[str]:
    for token in s.found:
        if token.kind in ("word", "quoted", "bind") and len(token.upper.encode()) > LONGEST_NAME:
            yield f"{token.text} is longer than {LONGEST_NAME} bytes (ORA-00972)"
        if token.kind == "word" and not token.text[0].isascii():
            yield f"{token.text} must be quoted"
        if token.kind == "word" and token.text.startswith("_"):
            yield f"{token.text}: no name begins so unless it is quoted (ORA-00911)"


def _reserved(s: Statement) -> Iterator[str]:
    for i, token in enumerate(s.found):
        if token.upper not in RESERVED:
            continue
        if token.kind == "bind" and '"' not in token.text:
            yield f"{token.text} is a reserved word, so no bind's name (ORA-01745)"
        if token.kind != "word":
            continue
        if (
            (s.query and token.upper not in IN_STATEMENTS)
            or s[i - 1].is_(".")
            or (s[i + 1].is_(".") and token.upper != "DEFAULT")
        ):
            yield f"{token.text} is a reserved word, and not quoted"
        elif s[i - 1].is_("AS") and s.query and not _is_cast(s, i) and not token.is_("SELECT"):
            yield f"{token.text} is a reserved word, and no alias"
    yield from _reserved_in_lists(s)


def _is_cast(s: Statement, i: int) -> bool:
    depth = 0
    for k in range(i - 1, -1, -1):
        depth += s[k].is_(")") - s[k].is_("(")
        if depth < 0:
            return s[k - 1].is_("CAST")
    return False


def _reserved_in_lists(s: Statement) -> Iterator[str]:
    """Where only names can be: columns of a table, of an index, of an INSERT, and the left sides of SET."""
    named: list[Token] = []
    if s.at(0, "CREATE"):
        opening = next((i for i, token in enumerate(s.found) if token.is_("(")), len(s))
        listed = parts(s.found[opening + 1 : inside(s.found, opening)])
        named += [part[0] for part in listed if part and not part[0].is_("CHECK", "CONSTRAINT", "PRIMARY", "UNIQUE")]
        named += [s[i + 1] for word in ("TABLE", "INDEX", "CONSTRAINT") for i in s.places(word)]
    for i in s.places("INSERT", "INTO"):
        opening = next((k for k in range(i, len(s)) if s[k].is_("(", "VALUES", "SELECT")), len(s))
        if s[opening].is_("("):
            named += [part[0] for part in parts(s.found[opening + 1 : inside(s.found, opening)]) if part]
        named.append(s[i + 2])
    for i in s.places("SET"):
        if s.places("UPDATE"):
            named.append(s[i + 1])
    for token in named:
        if token.kind == "word" and token.upper in RESERVED and not token.is_("SELECT"):
            yield f"{token.text} is a reserved word, and not quoted"


RULES: dict[str, Rule] = {
    "foreign": _foreign,
    "semicolon": _semicolon,
    "boolean": _boolean,
    "returning": _returning,
    "values": _values,
    "no-from": _no_from,
    "if-exists": _if_exists,
    "fetch": _fetch,
    "for-update": _for_update,
    "row-comparison": _row_comparison,
    "in-list": _in_list,
    "empty-text": _empty_text,
    "partial-index": _partial_index,
    "as-alias": _as_alias,
    "long-name": _long_name,
    "reserved": _reserved,
    "type": lambda s: types(s.found, s.version, block=s.block),
    "length": lambda s: lengths(s.found),
    "time": lambda s: times(s.found),
    "function": lambda s: functions(s.found, block=s.block),
}
