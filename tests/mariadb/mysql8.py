"""What is sent, as it would be for MySQL 8; and what MySQL 8 lacks of MariaDB's language."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.dialects.mysql.asyncmy import MySQLDialect_asyncmy
from sqlalchemy.sql.ddl import ExecutableDDLElement

from locus_store.sql.direct import DirectConnection

LACKS = {
    "RETURNING": r"\bRETURNING\b",
    "VALUE()": r"\bVALUE\s*\(",
    "sequences": r"\b(NEXTVAL|LASTVAL|SETVAL|NEXT\s+VALUE|PREVIOUS\s+VALUE|SEQUENCE)\b",
    "FETCH": r"\bFETCH\s+(FIRST|NEXT)\b|\bOFFSET\s+\S+\s+ROWS?\b",
    "waiting so long": r"\b(WAIT|NOWAIT)\s+\d|\bSELECT\b.*\bWAIT\s+[%?]",
    "locks of the old kind before others": r"\bLOCK\s+IN\s+SHARE\s+MODE\s+(NOWAIT|SKIP)",
    "rows examined": r"\bROWS\s+EXAMINED\b",
    "set operators before 8.0.31": r"\b(EXCEPT|INTERSECT|MINUS)\b",
    "a limit in a subquery of IN": r"\bIN\s*\(\s*SELECT\b(?:(?!\bAS\b)[^()]|\([^()]*\))*\bLIMIT\b",
    "IF EXISTS of parts of a table": r"\b(INDEX|COLUMN|CONSTRAINT|KEY)\s+IF\s+(NOT\s+)?EXISTS\b",
    "OR REPLACE": r"\bCREATE\s+OR\s+REPLACE\s+TABLE\b",
    "SET STATEMENT": r"^\s*SET\s+STATEMENT\b",
    "blocks": r"\bBEGIN\s+NOT\s+ATOMIC\b|\bEXECUTE\s+IMMEDIATE\b",
    "its JSON": r"\bJSON_(EXISTS|QUERY|LOOSE|COMPACT|DETAILED|EQUALS|NORMALIZE|TABLE)\b",
    "its variables": r"\b(TX_ISOLATION|TX_READ_ONLY|MAX_STATEMENT_TIME|LAST_INSERT_UUID)\b",
    "its columns": r"\b(INVISIBLE\s+DEFAULT|PERSISTENT|COMPRESSED|WITHOUT\s+SYSTEM|SYSTEM\s+VERSIONING|INET[46]|UUID)\b",
    "names that are words of MySQL 8": r"(?<![`\w])(CUBE|CUME_DIST|DENSE_RANK|EMPTY|FIRST_VALUE|FUNCTION|GROUPING|GROUPS"
    r"|LAG|LAST_VALUE|LATERAL|LEAD|NTH_VALUE|NTILE|PERCENT_RANK|RANK|SYSTEM|MANUAL|PARALLEL|QUALIFY)(?![`\w]|\s*\()",
    "an UPDATE that reads its own table": r"^\s*UPDATE\s+(\S+)\b.*\bFROM\s+\1(?!\w)",
    "a DELETE that reads its own table": r"^\s*DELETE\s+FROM\s+(\S+)\b.*\bFROM\s+\1(?!\w)",
}


def lacking(statement: str) -> list[str]:
    """What of this statement MySQL 8.0 does not have."""
    bare = re.sub(r"'(?:[^'\\]|\\.|'')*'", "''", statement)
    return [name for name, pattern in LACKS.items() if re.search(pattern, bare, re.IGNORECASE | re.DOTALL)]


def dialect(*version: int) -> MySQLDialect_asyncmy:
    """SQLAlchemy's dialect as it is after it has looked at a MySQL of this version."""
    made = MySQLDialect_asyncmy()
    made.server_version_info = version
    made._set_mariadb(False, version)
    made._initialize_mysql(None)  # type: ignore[arg-type]
    return made


def for_mysql(statement: Any, keys: list[str] | None, many: bool, to: MySQLDialect_asyncmy) -> str:
    """The SQL of a statement that was compiled with these keys of its parameters, for a dialect."""
    if isinstance(statement, ExecutableDDLElement):
        return str(statement.compile(dialect=to))
    return str(statement.compile(dialect=to, column_keys=keys, for_executemany=many))


@contextmanager
def overheard(to: MySQLDialect_asyncmy) -> Iterator[Collection[str]]:
    """All that is sent meanwhile, by whatever engine and past SQLAlchemy, as it is for a dialect."""
    seen: dict[str, None] = {}

    def sent(_c: Any, _cursor: Any, statement: str, _p: Any, context: Any, many: bool) -> None:
        compiled = context.compiled if context is not None else None
        if compiled is None:
            seen[statement] = None
        else:
            seen[for_mysql(compiled.statement, getattr(compiled, "column_keys", None), many, to)] = None

    direct = DirectConnection.execute

    def execute(self: DirectConnection, statement: Any, parameters: Any) -> Any:
        seen[for_mysql(statement, None, False, to)] = None
        return direct(self, statement, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectConnection, "execute", execute)
        event.listen(Engine, "before_cursor_execute", sent)
        try:
            yield seen
        finally:
            event.remove(Engine, "before_cursor_execute", sent)
