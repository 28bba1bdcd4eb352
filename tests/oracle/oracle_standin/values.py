"""What goes in and comes out: variables, LOBs, and the types of columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import oracledb
from oracle.oracle_standin.errors import StandInError, dpy, ora
from oracle.oracle_standin.journal import JOURNAL

IN_SQL = 4000
"""So many bytes a bind has that is no LOB's."""
IN_BLOCK = 32767
"""So many bytes a variable of PL/SQL has."""


class Var:
    """A variable as `cursor.var` makes it."""

    def __init__(
        self,
        typ: Any,
        size: int = 0,
        arraysize: int = 1,
        inconverter: Callable[[Any], Any] | None = None,
        outconverter: Callable[[Any], Any] | None = None,
        convert_nulls: bool = False,
        **_: Any,
    ) -> None:
        self.type = _PYTHON.get(typ, typ)
        self.decimal = typ is Decimal
        self.size = size
        self.num_elements = arraysize
        self.inconverter = inconverter
        self.outconverter = outconverter
        self.convert_nulls = convert_nulls
        self.values: list[Any] = [None] * arraysize

    def getvalue(self, pos: int = 0) -> Any:
        return self.values[pos]

    def setvalue(self, pos: int, value: Any) -> None:
        self.values[pos] = value

    async def convert(self, value: Any, kind: Any) -> Any:
        """A value of the database's, as this variable gives it out."""
        if value is not None:
            if self.type in (oracledb.DB_TYPE_BLOB, oracledb.DB_TYPE_CLOB, oracledb.DB_TYPE_NCLOB):
                value = LOB(value, self.type)
            elif self.type in _TEXTS and not isinstance(value, str | bytes):
                value = str(value)
            elif self.type is oracledb.DB_TYPE_BINARY_DOUBLE:
                value = float(value)
            elif self.decimal:
                value = Decimal(value)
            elif self.type is oracledb.DB_TYPE_RAW and not isinstance(value, bytes):
                raise StandInError(f"a {kind} read as RAW")
        if self.outconverter is not None and (value is not None or self.convert_nulls):
            value = self.outconverter(value)
            if inspect.isawaitable(value):
                value = await value
        return value


_TEXTS = (oracledb.DB_TYPE_VARCHAR, oracledb.DB_TYPE_NVARCHAR, oracledb.DB_TYPE_CHAR, oracledb.DB_TYPE_LONG)
_PYTHON: dict[Any, Any] = {
    int: oracledb.DB_TYPE_NUMBER,
    float: oracledb.DB_TYPE_NUMBER,
    Decimal: oracledb.DB_TYPE_NUMBER,
    str: oracledb.DB_TYPE_VARCHAR,
    bytes: oracledb.DB_TYPE_RAW,
    datetime: oracledb.DB_TYPE_TIMESTAMP_TZ,
}


class LOB:
    """A LOB of an asynchronous connection; reading it is a call of its own."""

    def __init__(self, value: str | bytes, typ: Any) -> None:
        self._value = value
        self.type = typ
        JOURNAL.lobs += 1

    async def read(self, offset: int = 1, amount: int | None = None) -> str | bytes:
        end = None if amount is None else offset - 1 + amount
        return self._value[offset - 1 : end]

    async def size(self) -> int:
        return len(self._value)


class Column(NamedTuple):
    """One entry of ``cursor.description``, which is also a `FetchInfo` for a handler that takes one."""

    name: str
    type_code: Any
    display_size: int | None
    internal_size: int | None
    precision: int | None
    scale: int | None
    null_ok: bool

    @property
    def type(self) -> Any:
        return self.type_code


def column(name: str, kind: str) -> Column:
    """The description of a column of this type of PostgreSQL's."""
    name = name.swapcase()
    if kind in ("int8", "int4", "int2"):
        return Column(name, oracledb.DB_TYPE_NUMBER, 20, None, 19, 0, True)
    if kind == "numeric":
        return Column(name, oracledb.DB_TYPE_NUMBER, 127, None, 0, -127, True)
    if kind in ("text", "varchar", "name", "bpchar", "unknown"):
        return Column(name, oracledb.DB_TYPE_VARCHAR, IN_SQL, IN_SQL, None, None, True)
    found = {
        "bytea": oracledb.DB_TYPE_RAW,
        "blob": oracledb.DB_TYPE_BLOB,
        "clob": oracledb.DB_TYPE_CLOB,
        "timestamptz": oracledb.DB_TYPE_TIMESTAMP_TZ,
        "timestamp": oracledb.DB_TYPE_TIMESTAMP,
        "float8": oracledb.DB_TYPE_BINARY_DOUBLE,
    }.get(kind)
    if found is None:
        raise StandInError(f"a column {name} of type {kind}")
    return Column(name, found, None, None, None, None, True)


def plain(value: Any) -> Any:
    """A value of PostgreSQL's as the driver would give it out."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value


LONG_RAW = "bytea::long_raw"
LONG_TEXT = "text::long_text"
"""Binds that may go into a LOB column and nowhere else."""


class Bound(NamedTuple):
    """A bind as PostgreSQL gets it: of which type, or a NULL, which has none."""

    kind: str | None
    value: Any


def bound(value: Any, kind: Any = None, *, limit: int = IN_SQL) -> Bound:
    """What a value given for a bind becomes.

    Args:
        value: The value.
        kind: What `setinputsizes` said of it, or None.
        limit: From how many bytes on it is a LOB's.
    """
    if isinstance(value, Var):
        value = value.inconverter(value.getvalue()) if value.inconverter else value.getvalue()
    if value is None or value in ("", b""):
        return Bound(None, None)
    if isinstance(value, bool):
        raise ora(932, "inconsistent datatypes: a boolean is no bind of SQL in 19c")
    if isinstance(value, int):
        return Bound("bigint", value) if -(2**63) <= value < 2**63 else Bound("numeric", Decimal(value))
    if isinstance(value, str):
        if kind in (oracledb.DB_TYPE_RAW, oracledb.DB_TYPE_BLOB):
            raise ora(932, "inconsistent datatypes: a text bound as bytes")
        if kind in (oracledb.DB_TYPE_CLOB, oracledb.DB_TYPE_NCLOB):
            return Bound("text::clob", value)
        return Bound(LONG_TEXT if len(value.encode()) > limit else "text", value)
    if isinstance(value, bytes | bytearray | memoryview):
        if kind is oracledb.DB_TYPE_BLOB:
            return Bound("bytea::blob", bytes(value))
        return Bound(LONG_RAW if len(value) > limit else "bytea", bytes(value))
    if isinstance(value, datetime):
        return Bound("timestamptz" if value.tzinfo else "timestamp", value)
    if isinstance(value, Decimal | float):
        return Bound("numeric", Decimal(value))
    if isinstance(value, LOB):
        return Bound("bytea::blob" if isinstance(value._value, bytes) else "text::clob", value._value)
    raise dpy(3002, f"Python value of type {type(value).__name__!r} is not supported")
