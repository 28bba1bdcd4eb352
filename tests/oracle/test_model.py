"""The model's statements, as SQLAlchemy compiles them for Oracle, before any server sees them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from oracle.checks import complaints
from sqlalchemy.dialects.oracle.oracledb import OracleDialectAsync_oracledb
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.base import Executable

from locus_store.sql import copying, reading, records, removal, schema, sealing, statements, sweeping, writing
from locus_store.sql.models import metadata

MODULES = (copying, reading, records, removal, schema, sealing, statements, sweeping, writing)


def _dialect() -> Any:
    dialect = OracleDialectAsync_oracledb()
    dialect.server_version_info = (19, 0, 0)
    dialect._supports_offset_fetch = True
    return dialect


def _statements(value: Any) -> list[Executable]:
    if isinstance(value, Executable):
        return [value]
    return [found for part in value for found in _statements(part)] if isinstance(value, list | tuple) else []


def _text(statement: Any) -> str:
    # What is filled in for each execution looks like one bind here.
    return re.sub(r"__\[POSTCOMPILE_(\w+)\]", r":\1_1", str(statement.compile(dialect=_dialect())))


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=str)
def test_a_table_and_its_indexes_are_oracles(table: Any) -> None:
    for made in [CreateTable(table), *map(CreateIndex, table.indexes)]:
        assert complaints(_text(made)) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_statement_of_a_module_is_oracles(module: Any) -> None:
    found = [statement for value in vars(module).values() for statement in _statements(value)]
    assert found
    for statement in found:
        assert complaints(_text(statement)) == []
