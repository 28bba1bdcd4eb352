"""The lint's rules about types, times and functions: lists of what may be used."""

from __future__ import annotations

from collections.abc import Iterator

from oracle.tokens import Token, inside, parts

TYPES = frozenset({"NUMBER", "INTEGER", "VARCHAR2", "RAW", "BLOB", "CLOB", "TIMESTAMP"})
"""What a column may have. NUMBER and INTEGER are exact; there is nothing binary with a point."""
NEWER_TYPES = {"BOOLEAN": "23ai", "JSON": "21c", "VECTOR": "23ai"}
BLOCK_TYPES = frozenset({"BOOLEAN", "PLS_INTEGER", "BINARY_INTEGER", "EXCEPTION"})

FUNCTIONS = frozenset(
    """
    ABS AVG BITAND CASE CAST CEIL COALESCE CONCAT COUNT DECODE DENSE_RANK EMPTY_BLOB EMPTY_CLOB EXTRACT
    FIRST_VALUE FLOOR GREATEST HEXTORAW INSTR INSTRB JSON_TABLE JSON_VALUE LAG LAST_VALUE LEAD LEAST LENGTH
    LENGTHB LISTAGG LOWER LPAD LTRIM MAX MIN MOD NULLIF NVL NVL2 ORA_HASH POWER RANK RAWTOHEX REGEXP_INSTR
    REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR REPLACE ROUND ROW_NUMBER RPAD RTRIM SIGN STANDARD_HASH SUBSTR
    SUBSTRB SUM SYS_CONTEXT TO_BLOB TO_CHAR TO_CLOB TO_NUMBER TRANSLATE TRIM TRUNC UPPER
    """.split()  # noqa: SIM905 - easier to read
)
PACKAGES = frozenset(
    """
    DBMS_LOB.GETLENGTH DBMS_LOB.SUBSTR DBMS_LOB.APPEND DBMS_LOB.WRITEAPPEND DBMS_LOB.CREATETEMPORARY
    DBMS_LOB.FREETEMPORARY DBMS_LOB.CALL DBMS_LOB.SESSION DBMS_TRANSACTION.LOCAL_TRANSACTION_ID UTL_RAW.CONCAT
    UTL_RAW.LENGTH UTL_RAW.SUBSTR UTL_RAW.CAST_TO_RAW UTL_RAW.CAST_TO_VARCHAR2 UTL_I18N.STRING_TO_RAW
    """.split()  # noqa: SIM905 - easier to read
)
BLOCK_FUNCTIONS = frozenset({"RAISE_APPLICATION_ERROR", "SQLERRM"})

_BEFORE_A_LIST = frozenset(
    """
    ALL AND ANY AS BY CHECK COLUMNS ELSE EXISTS FROM HAVING IDENTITY IN INTO JOIN KEY NOT OF ON OR OVER
    PARTITION PRIMARY RETURN RETURNING SELECT SET SOME THEN UNION UNIQUE USING VALUES WHEN WHERE WITH WITHIN
    GROUP BETWEEN LIKE IF ELSIF
    """.split()  # noqa: SIM905 - easier to read
)


def columns(found: list[Token]) -> list[list[Token]]:
    """The definitions of the columns of a CREATE TABLE, or of what ALTER TABLE adds."""
    if not found or not found[0].is_("CREATE", "ALTER"):
        return []
    if found[0].is_("ALTER"):
        added = next((i for i, token in enumerate(found) if token.is_("ADD", "MODIFY")), None)
        if added is None or found[added + 1].is_("CONSTRAINT"):
            return []
        rest = found[added + 1 :]
        rest = rest[1:-1] if rest and rest[0].is_("(") else rest
    elif any(token.is_("TABLE") for token in found[:4]):
        opening = next((i for i, token in enumerate(found) if token.is_("(")), len(found))
        rest = found[opening + 1 : inside(found, opening)]
    else:
        return []
    outside = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN")
    return [part for part in parts(rest) if len(part) > 1 and not part[0].is_(*outside)]


def types(found: list[Token], version: str, *, block: bool) -> Iterator[str]:
    """Types that the version does not have, or that would lose something."""
    used = [part[1:] for part in columns(found)]
    for i, token in enumerate(found):
        if token.is_("CAST") and i + 1 < len(found) and found[i + 1].is_("("):
            body = found[i + 2 : inside(found, i + 1)]
            place = max((n for n, t in enumerate(body) if t.is_("AS")), default=None)
            if place is not None:
                used.append(body[place + 1 :])
        if block and token.is_("VARCHAR2", "RAW") and found[i + 1].is_("("):
            length = int(found[i + 2].text)
            if not 1 <= length <= 32767:
                yield f"{token.text}({length}): 1 to 32767 in a block"
    for part in used:
        if part:
            yield from _type(part, version, block=block)


def _type(part: list[Token], version: str, *, block: bool) -> Iterator[str]:
    name = part[0].upper
    if name in NEWER_TYPES and version == "19c" and not block:
        yield f"{name} came with {NEWER_TYPES[name]}"
    elif name not in TYPES and name not in NEWER_TYPES and not (block and name in BLOCK_TYPES):
        yield f"{name} is none of the types {', '.join(sorted(TYPES))}"
    if name == "VARCHAR2" and not block:
        if len(part) < 4 or not part[1].is_("("):
            yield "VARCHAR2 needs a length (ORA-00906)"
        elif not (part[2].text.isdigit() and 1 <= int(part[2].text) <= 4000):
            yield f"VARCHAR2({part[2].text}): 1 to 4000 bytes (ORA-00910)"
    short = len(part) < 4 or not (part[2].text.isdigit() and 1 <= int(part[2].text) <= 2000)
    if name == "RAW" and not block and short:
        yield "RAW needs a length of 1 to 2000 bytes"


def lengths(found: list[Token]) -> Iterator[str]:
    """Texts whose length does not count bytes: four times as many may not fit an index, or the 4000 bytes."""
    for part in columns(found):
        if part[1].is_("VARCHAR2") and not any(token.is_("BYTE") for token in part):
            yield f"{part[0].text}: VARCHAR2 without BYTE counts characters, or what the session's settings say"


def times(found: list[Token]) -> Iterator[str]:
    """Times that lose their zone or their fractions, or stand where zoned ones must not."""
    for i, token in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        if token.is_("SYSDATE", "CURRENT_DATE", "LOCALTIMESTAMP"):
            yield f"{token.text} has no zone"
        if token.is_("DATE") and after is not None and after.kind == "text":
            yield "a literal DATE has whole days"
        if token.is_("TO_DATE", "TO_TIMESTAMP"):
            yield f"{token.text} gives a time without a zone"
    zoned = set()
    for part in columns(found):
        kind = [token.upper for token in part[1:]]
        if kind[0] == "DATE":
            yield f"{part[0].text}: DATE has whole seconds and no zone"
        elif kind[0] == "TIMESTAMP":
            if "ZONE" not in kind or "LOCAL" in kind:
                yield f"{part[0].text}: a TIMESTAMP without its own zone"
            zoned.add(part[0].upper)
            if "(" not in kind or kind[kind.index("(") + 1] not in ("6", "9"):
                yield f"{part[0].text}: TIMESTAMP says how many digits: 6"
    for i, token in enumerate(found):
        if token.is_("KEY", "UNIQUE") and i + 1 < len(found) and found[i + 1].is_("("):
            keyed = {t.upper for t in found[i + 2 : inside(found, i + 1)]}
            for name in sorted(keyed & zoned):
                yield f"{name}: no key may have a TIMESTAMP WITH TIME ZONE (ORA-02329)"


def functions(found: list[Token], *, block: bool) -> Iterator[str]:
    """Functions that are not on the list of those that are known to be there."""
    allowed = FUNCTIONS | (BLOCK_FUNCTIONS if block else frozenset())
    ddl = bool(found) and found[0].is_("CREATE", "ALTER")
    for i, token in enumerate(found[:-1]):
        if token.kind != "word" or not found[i + 1].is_("(") or token.upper in _BEFORE_A_LIST:
            continue
        before = found[i - 1] if i else None
        if before is not None and before.is_("."):
            name = f"{found[i - 2].upper}.{token.upper}"
            if name in PACKAGES or _names_a_table(found, i - 2):
                continue
            yield f"{name} is not on the list of functions"
        elif (
            token.upper in allowed
            or token.upper in TYPES
            or token.upper in NEWER_TYPES
            or ddl
            or _names_a_table(found, i)
            or (before is not None and (before.is_("WITH", ",") and _is_named_query(found, i)))
        ):
            continue
        else:
            yield f"{token.text} is not on the list of functions"


def _names_a_table(found: list[Token], i: int) -> bool:
    return i > 0 and found[i - 1].is_("INTO", "TABLE", "FROM", "JOIN", "UPDATE")


def _is_named_query(found: list[Token], i: int) -> bool:
    end = inside(found, i + 1)
    return end + 1 < len(found) and found[end + 1].is_("AS")
