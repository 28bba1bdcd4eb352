"""The grammar of another project refuses what it is asked to refuse, and takes what is right."""

from __future__ import annotations

import pytest
from oracle.grammar import complaints
from oracle.lint import VERSIONS, Version, lint
from oracle.test_lint import RIGHT, WRONG

BROKEN = [
    "SELECT a FROM",
    "SELECT a FROM t WHERE a = :a AND",
    "INSERT INTO t (a VALUES (:a)",
    "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO NOTHING",
    "INSERT INTO t (a) VALUES (:a) RETURNING id",
    "UPDATE t SET",
    "SELECT a FROM t LIMIT 10",
    "SELECT a FROM t AS x",
    "SELECT a FROM t FOR SHARE",
    "SELECT a::bigint FROM t",
    "BEGIN UPDATE t SET a = 1 END;",
    "BEGIN IF a THEN NULL; END;",
    "BEGIN NULL; END; SELECT 1 FROM dual",
    "SELECT a FROM t; SELECT b FROM t",
    "SET ECHO ON",
]

NEWER = [
    "SELECT 1",
    "CREATE TABLE IF NOT EXISTS t (a NUMBER(19))",
    "INSERT INTO t (a) VALUES (:a), (:b)",
    "SELECT a FROM t EXCEPT SELECT a FROM u",
]
"""Not yet in 19c."""

WRONGLY_TAKEN = ["SELECT a FROM t WHERE b = TRUE"]
"""Taken for 19c although they came with 23ai; the lint's affair."""

WRONGLY_REFUSED = [
    "MERGE INTO t USING (SELECT :a AS a FROM dual) s ON (t.a = s.a)"
    " WHEN MATCHED THEN UPDATE SET b = 1 RETURNING b INTO :r",
]
"""Right in 23ai, and refused. This package sends none of them."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sql", BROKEN)
def test_what_is_no_oracle_sql_is_refused(sql: str, version: Version) -> None:
    assert complaints(sql, version)


@pytest.mark.parametrize("sql", NEWER)
def test_what_is_newer_is_refused_in_the_old_version_only(sql: str) -> None:
    assert complaints(sql, "19c")
    assert not complaints(sql, "23ai")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("sql", "versions"), RIGHT, ids=range(len(RIGHT)))
def test_what_is_right_is_taken(sql: str, versions: tuple[Version, ...], version: Version) -> None:
    assert (not complaints(sql, version)) == (version in versions or sql in WRONGLY_TAKEN)


@pytest.mark.parametrize("sql", WRONGLY_REFUSED)
def test_what_it_refuses_wrongly_is_known(sql: str) -> None:
    assert complaints(sql, "23ai")


def test_grammar_and_lint_know_different_things() -> None:
    both = [sql for _, sql, _ in WRONG if complaints(sql, "19c") and lint(sql, "19c")]
    only_lint = [sql for _, sql, _ in WRONG if not complaints(sql, "19c")]
    only_grammar = [sql for sql in BROKEN if not lint(sql, "19c")]
    assert len(both) > 20
    assert len(only_lint) > 40
    assert len(only_grammar) > 5
