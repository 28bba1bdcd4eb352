"""PostgreSQL's errors as python-oracledb would have raised Oracle's."""

from __future__ import annotations

import re

import asyncpg
import oracledb

_INTEGRITY = {1, 1400, 1407, 1438, 2290, 2291, 2292}
_OPERATIONAL = {1013, 1033, 1034, 1089, 3113, 12541}
_DRIVER = {1: oracledb.InterfaceError, 2: oracledb.ProgrammingError, 3: oracledb.NotSupportedError,
           4: oracledb.DatabaseError, 6: oracledb.OperationalError}  # fmt: skip


class StandInError(Exception):
    """The stand-in cannot do what it was asked for. No error of a database: the tests fail."""


class Said:
    """What an exception of python-oracledb holds: ``error.args[0]``."""

    def __init__(self, full_code: str, message: str, *, dead: bool = False) -> None:
        self.full_code = full_code
        self.code = int(full_code[4:]) if full_code.startswith("ORA-") else 0
        self.message = f"{full_code}: {message}"
        self.offset = 0
        self.context = None
        self.isrecoverable = self.is_session_dead = dead

    def __str__(self) -> str:
        return self.message


def ora(code: int, message: str) -> oracledb.DatabaseError:
    """An error of the database."""
    made: type[oracledb.DatabaseError] = oracledb.DatabaseError
    if code in _INTEGRITY:
        made = oracledb.IntegrityError
    elif code in _OPERATIONAL:
        made = oracledb.OperationalError
    return made(Said(f"ORA-{code:05}", message))


def dpy(code: int, message: str) -> oracledb.Error:
    """An error of the driver."""
    found: oracledb.Error = _DRIVER[code // 1000](Said(f"DPY-{code:04}", message, dead=code == 4011))
    return found


def lost() -> oracledb.Error:
    """What the driver says when the connection has gone."""
    return dpy(4011, "the database or network closed the connection")


def is_loss(error: BaseException) -> bool:
    """Whether an error of asyncpg's means that the connection has gone."""
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "57P05")
    return isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError)


def translated(error: asyncpg.PostgresError, *, waited: bool = False, ddl: bool = False) -> Exception:
    """The error of Oracle's for one of PostgreSQL's.

    Args:
        error: What the server said.
        waited: The statement named a time to wait.
        ddl: It was DDL.
    """
    state = error.sqlstate
    table, column = (error.table_name or "?").upper(), (error.column_name or "?").upper()
    found: Exception
    if state == "23505":
        if ddl:  # two sessions made the same object at once
            return ora(955, "name is already used by an existing object")
        found = ora(1, f"unique constraint (LOCUS.{(error.constraint_name or '?').upper()}) violated")
    elif state == "23502":
        found = ora(1400, f'cannot insert NULL into ("LOCUS"."{table}"."{column}")')
    elif state == "23514" and error.data_type_name:
        found = ora(12899, f"value too large for a column of type {error.data_type_name}")
    elif state == "23514":
        found = ora(2290, f"check constraint (LOCUS.{(error.constraint_name or '?').upper()}) violated")
    elif state == "23503":
        removing = str(error).startswith("update or delete")
        name = (error.constraint_name or "?").upper()
        what = "child record found" if removing else "parent key not found"
        found = ora(2292 if removing else 2291, f"integrity constraint (LOCUS.{name}) violated - {what}")
    elif state == "55P03":
        found = (
            ora(30006, "resource busy; acquire with WAIT timeout expired")
            if waited
            else ora(54, "resource busy and acquire with NOWAIT specified or timeout expired")
        )
    elif state in _PLAIN:
        found = ora(*_PLAIN[state])
    elif state == "42883" and "operator" in str(error):
        found = ora(932, f"inconsistent datatypes: {error}")
    elif raised := re.match(r"ORA-(20\d{3}): (.*)", str(error)):
        found = ora(int(raised[1]), raised[2])
    else:
        found = StandInError(f"{state}: {error}")
    found.__cause__ = error
    return found


_PLAIN: dict[str, tuple[int, str]] = {
    "22001": (12899, "value too large for column"),
    "22003": (1438, "value larger than specified precision allowed for this column"),
    "25006": (1456, "may not perform insert, delete, update operation inside a READ ONLY transaction"),
    "3F000": (942, "table or view does not exist"),
    "40001": (8177, "can't serialize access for this transaction"),
    "40P01": (60, "deadlock detected while waiting for resource"),
    "42501": (1031, "insufficient privileges"),
    "42703": (904, "invalid identifier"),
    "42804": (932, "inconsistent datatypes"),
    "42P01": (942, "table or view does not exist"),
    # A table's row type has its name, and of two sessions that make one table the second may meet either.
    "42710": (955, "name is already used by an existing object"),
    "42P07": (955, "name is already used by an existing object"),
    "42701": (957, "duplicate column name"),
    "57014": (1013, "user requested cancel of current operation"),
}
