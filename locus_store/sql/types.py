"""Column types that mean the same on every database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BINARY, BigInteger, Dialect, Integer, LargeBinary, String
from sqlalchemy.dialects.mysql import LONGBLOB, VARBINARY
from sqlalchemy.dialects.oracle import RAW
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(microseconds: int) -> datetime:
    """Microseconds since 1970 as an aware UTC datetime, exactly."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970, exactly."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone: pass an aware datetime")
    return (moment - _EPOCH) // _MICROSECOND


TABLE_OPTIONS: dict[str, Any] = {
    f"{name}_{option}": value
    for name in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}
"""What each table is made with, whatever the server's defaults are: transactions, and text that is compared exactly."""


class UTCMicroseconds(TypeDecorator[datetime]):
    """An aware UTC datetime, stored as the number of microseconds since 1970.

    Databases differ in what a zoned timestamp keeps; a number of 64 bits is the same everywhere. An ``int`` is taken
    as microseconds as it is.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | int | None, dialect: Dialect) -> int | None:
        return to_microseconds(value) if isinstance(value, datetime) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else to_datetime(value)


class _OracleBytesString(UserDefinedType[str]):
    """VARCHAR2 whose length counts bytes."""

    cache_ok = True

    def __init__(self, length: int) -> None:
        self.length = length

    def get_col_spec(self, **kw: Any) -> str:
        return f"VARCHAR2({self.length} BYTE)"

    def literal_processor(self, dialect: Dialect) -> Callable[[str], str]:
        return lambda value: "'" + value.replace("'", "''") + "'"


class Identifier(TypeDecorator[str]):
    """Text that names something, compared byte by byte on every database.

    Args:
        length: The most bytes of UTF-8 it has.
    """

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(String(self.length, collation="C"))
        if dialect.name == "oracle":
            return dialect.type_descriptor(_OracleBytesString(self.length))
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(VARBINARY(self.length))
        return dialect.type_descriptor(String(self.length))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        if value is not None and dialect.name in ("mysql", "mariadb"):
            return value.encode()
        return value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return value.decode() if isinstance(value, bytes) else value


class Digest(TypeDecorator[bytes]):
    """16 bytes, in a type that can be part of a key on every database."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(16)

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "oracle":
            return dialect.type_descriptor(RAW(16))
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(BINARY(16))
        return dialect.type_descriptor(LargeBinary(16))


def ascii_name(length: int) -> TypeEngine[str]:
    """The type of a short name of this package's own, such as a revision."""
    return String(length).with_variant(_OracleBytesString(length), "oracle")


def surrogate_key() -> TypeEngine[int]:
    """The type of a surrogate key; SQLite gives out numbers only for its own INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


class OracleBytes(TypeDecorator[bytes]):
    """A BLOB for bytes that may be none at all, which Oracle takes for NULL.

    A NUL stands in front of what is empty or begins with one. No frame does, so nothing is copied for it.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        return to_oracle(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        return from_oracle(value)


def to_oracle(value: bytes | None) -> bytes | None:
    """Bytes as they are stored in an `OracleBytes`."""
    return value if value is None or (value and value[0]) else b"\0" + value


def from_oracle(value: bytes | None) -> bytes | None:
    """Bytes that `to_oracle` made fit."""
    return value[1:] if value is not None and value[:1] == b"\0" else value


def frames() -> TypeEngine[bytes]:
    """The type of stored frames and other texts of this package's own."""
    return LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb").with_variant(OracleBytes(), "oracle")
