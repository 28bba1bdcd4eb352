"""The lint catches what it is there for, and lets pass what is right."""

from __future__ import annotations

import pytest
from oracle.lint import RULES, VERSIONS, Version, lint

BOTH: tuple[Version, ...] = VERSIONS
OLD: tuple[Version, ...] = ("19c",)
NAME_OF_30 = "n" * 30
ZONED = "TIMESTAMP(6) WITH TIME ZONE"


def _in(count: int) -> str:
    return f"SELECT a FROM t WHERE a IN ({', '.join(f':p{i}' for i in range(count))})"


# Rule, statement, and for which versions it is wrong.
WRONG: list[tuple[str, str, tuple[Version, ...]]] = [
    ("foreign", "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO NOTHING", BOTH),
    ("foreign", "INSERT INTO t (a) VALUES (:a) ON DUPLICATE KEY UPDATE a = :a", BOTH),
    ("foreign", "SELECT a FROM t LIMIT 10", BOTH),
    ("foreign", "SELECT a FROM t LIMIT :n OFFSET :m", BOTH),
    ("foreign", "SELECT a FROM t WHERE a ILIKE :p", BOTH),
    ("foreign", "SELECT a::bigint FROM t", BOTH),
    ("foreign", "SELECT a->>'x' FROM t", BOTH),
    ("foreign", "SELECT a FROM t WHERE a = ?", BOTH),
    ("foreign", "SELECT a FROM t WHERE a = $1", BOTH),
    ("foreign", "SELECT `a` FROM t", BOTH),
    ("foreign", "SELECT a FROM t FOR SHARE", BOTH),
    ("foreign", "SELECT a FROM t EXCEPT SELECT a FROM u", OLD),
    ("foreign", "WITH RECURSIVE x AS (SELECT 1 AS n FROM dual) SELECT n FROM x", BOTH),
    (
        "foreign",
        "MERGE INTO t USING (SELECT :a AS a FROM dual) s ON (t.a = s.a) WHEN MATCHED THEN UPDATE SET b = 1",
        BOTH,
    ),
    ("semicolon", "SELECT a FROM t;", BOTH),
    ("semicolon", "BEGIN NULL; END", BOTH),
    ("boolean", "SELECT a FROM t WHERE b = TRUE", OLD),
    ("boolean", "UPDATE t SET b = false", OLD),
    ("returning", "INSERT INTO t (a) VALUES (:a) RETURNING id", BOTH),
    ("returning", "UPDATE t SET a = :a RETURNING id, b", BOTH),
    ("returning", "INSERT INTO t (a) SELECT :a FROM dual RETURNING id INTO :r", OLD),
    ("values", "INSERT INTO t (a) VALUES (:a), (:b)", OLD),
    ("no-from", "SELECT 1", OLD),
    ("no-from", "SELECT a FROM t WHERE EXISTS (SELECT 1)", OLD),
    ("no-from", "SELECT a FROM t UNION ALL SELECT :a", OLD),
    ("if-exists", "CREATE TABLE IF NOT EXISTS t (a NUMBER(19))", OLD),
    ("if-exists", "DROP TABLE IF EXISTS t", OLD),
    ("fetch", "SELECT a FROM t FETCH FIRST 1 ROWS ONLY FOR UPDATE", BOTH),
    ("fetch", "SELECT a FROM t ORDER BY a FETCH NEXT :n ROWS ONLY FOR UPDATE SKIP LOCKED", BOTH),
    ("fetch", "SELECT a FROM t OFFSET :n ROWS FOR UPDATE", BOTH),
    ("fetch", "SELECT t.id, u.id FROM t JOIN u ON u.t = t.id FETCH FIRST 5 ROWS ONLY", BOTH),
    ("fetch", "SELECT x.a FROM (SELECT t.a, u.a FROM t, u FETCH FIRST :n ROWS ONLY) x", BOTH),
    ("for-update", "SELECT DISTINCT a FROM t FOR UPDATE", BOTH),
    ("for-update", "SELECT a FROM t WHERE a IN (SELECT b FROM u FOR UPDATE)", BOTH),
    ("row-comparison", "SELECT a FROM t WHERE (a, b) < (:a, :b)", BOTH),
    ("row-comparison", "SELECT a FROM t WHERE c = :c AND (a, b) >= (:a, :b)", BOTH),
    ("in-list", _in(1001), BOTH),
    ("empty-text", "SELECT a FROM t WHERE a = ''", BOTH),
    ("empty-text", "INSERT INTO t (a) VALUES ('')", BOTH),
    ("partial-index", "CREATE INDEX ix ON t (a) WHERE a > 0", BOTH),
    ("partial-index", "CREATE UNIQUE INDEX ix ON t (a) INCLUDE (b)", BOTH),
    ("as-alias", "SELECT x.a FROM t AS x", BOTH),
    ("as-alias", "SELECT x.a FROM t JOIN u AS x ON x.b = t.b", BOTH),
    ("as-alias", "SELECT x.a FROM (SELECT a FROM t) AS x", BOTH),
    ("long-name", f"CREATE TABLE {NAME_OF_30}n (a NUMBER(19))", BOTH),
    ("long-name", f"SELECT a AS {NAME_OF_30}n FROM t", BOTH),
    ("long-name", f"SELECT a FROM t WHERE a = :{NAME_OF_30}n", BOTH),
    ("long-name", f'SELECT "{"é" * 16}" FROM t', BOTH),
    ("long-name", "SELECT _a FROM t", BOTH),
    ("reserved", "SELECT t.level FROM t", BOTH),
    ("reserved", "SELECT size FROM t", BOTH),
    ("reserved", "SELECT a AS size FROM t", BOTH),
    ("reserved", "SELECT a AS number FROM t", BOTH),
    ("reserved", "SELECT a FROM t WHERE a = :row", BOTH),
    ("reserved", "SELECT a FROM t WHERE a = :number", BOTH),
    ("reserved", "INSERT INTO t (comment) VALUES (:c)", BOTH),
    ("reserved", "INSERT INTO t (date) VALUES (:c)", BOTH),
    ("reserved", "UPDATE t SET mode = :m", BOTH),
    ("reserved", "UPDATE t SET number = :m", BOTH),
    ("reserved", "CREATE TABLE t (uid NUMBER(19))", BOTH),
    ("reserved", "CREATE INDEX ix ON t (level)", BOTH),
    ("type", "CREATE TABLE t (a TEXT)", BOTH),
    ("type", "CREATE TABLE t (a BIGINT)", BOTH),
    ("type", "CREATE TABLE t (id SERIAL, b NUMBER(19))", BOTH),
    ("type", "CREATE TABLE t (a BYTEA)", BOTH),
    ("type", "CREATE TABLE t (a JSONB)", BOTH),
    ("type", "CREATE TABLE t (a BOOLEAN)", OLD),
    ("type", "CREATE TABLE t (a JSON)", OLD),
    ("type", "CREATE TABLE t (a VARCHAR(10))", BOTH),
    ("type", "CREATE TABLE t (a VARCHAR2)", BOTH),
    ("type", "CREATE TABLE t (a VARCHAR2(4001 BYTE))", BOTH),
    ("type", "CREATE TABLE t (a VARCHAR2(0 BYTE))", BOTH),
    ("length", "CREATE TABLE t (a VARCHAR2(512 CHAR))", BOTH),
    ("length", "CREATE TABLE t (a VARCHAR2(512))", BOTH),
    ("type", "CREATE TABLE t (a RAW(2001))", BOTH),
    ("type", "CREATE TABLE t (a DATE)", BOTH),
    ("type", "ALTER TABLE t ADD (a TEXT)", BOTH),
    ("type", "ALTER TABLE t ADD a BIGINT", BOTH),
    ("type", "SELECT CAST(a AS TEXT) FROM t", BOTH),
    ("type", "BEGIN NULL; v := CAST(a AS VARCHAR2(32768)); END;", BOTH),
    ("time", "CREATE TABLE t (created_at DATE)", BOTH),
    ("time", "CREATE TABLE t (created_at TIMESTAMP(6))", BOTH),
    ("time", "CREATE TABLE t (created_at TIMESTAMP WITH TIME ZONE)", BOTH),
    ("time", "CREATE TABLE t (created_at TIMESTAMP(6) WITH LOCAL TIME ZONE)", BOTH),
    ("time", f"CREATE TABLE t (at_ {ZONED}, CONSTRAINT pk PRIMARY KEY (at_))", BOTH),
    ("time", f"CREATE TABLE t (a NUMBER(19), at_ {ZONED}, CONSTRAINT uq UNIQUE (a, at_))", BOTH),
    ("time", "UPDATE t SET updated_at = SYSDATE", BOTH),
    ("time", "SELECT a FROM t WHERE at_ > DATE '2026-01-01'", BOTH),
    ("time", "SELECT a FROM t WHERE at_ > TO_DATE(:at)", BOTH),
    ("function", "SELECT char_length(a) FROM t", BOTH),
    ("function", "SELECT now() FROM dual", BOTH),
    ("function", "SELECT octet_length(a) FROM t", BOTH),
    ("function", "SELECT string_agg(a, ',') FROM t", BOTH),
    ("function", "SELECT json_extract(a, '$.x') FROM t", BOTH),
    ("function", "SELECT dbms_lob.getsize(a) FROM t", BOTH),
    ("function", "UPDATE t SET a = ifnull(:a, b)", BOTH),
]

RIGHT: list[tuple[str, tuple[Version, ...]]] = [
    ("SELECT t.id, t.version FROM t WHERE t.tenant = :tenant AND t.thread_id = :name FOR UPDATE WAIT 10", BOTH),
    ("SELECT a FROM t WHERE b = :b FOR UPDATE OF t.a SKIP LOCKED", BOTH),
    ("SELECT a FROM t ORDER BY b DESC OFFSET :skipped ROWS FETCH NEXT :n ROWS ONLY", BOTH),
    ("SELECT a FROM t x JOIN (SELECT b FROM u FETCH FIRST 1 ROWS ONLY) y ON y.b = x.b", BOTH),
    ("SELECT t.id, u.id AS other FROM t JOIN u ON u.t = t.id FETCH FIRST 5 ROWS ONLY", BOTH),
    ("SELECT t.id, u.id FROM t JOIN u ON u.t = t.id", BOTH),
    (_in(1000), BOTH),
    ("INSERT INTO t (a, b) VALUES (:a, :b) RETURNING id INTO :ret_0", BOTH),
    ("UPDATE t SET a = :a, b = b + 1 WHERE id = :id RETURNING a, b INTO :r0, :r1", BOTH),
    ("INSERT INTO t (a, b) SELECT :d AS anon_1, t.b FROM t WHERE t.a = :s ORDER BY t.id", BOTH),
    ("INSERT INTO t (a) VALUES (:a), (:b)", ("23ai",)),
    ("SELECT 1", ("23ai",)),
    ("SELECT a FROM t WHERE b = TRUE", ("23ai",)),
    ("CREATE TABLE IF NOT EXISTS t (a BOOLEAN, b JSON)", ("23ai",)),
    ("SELECT a FROM t EXCEPT SELECT a FROM u", ("23ai",)),
    ("SELECT a FROM t MINUS SELECT a FROM u", BOTH),
    ("SELECT sys_context('userenv', 'current_schema') FROM dual", BOTH),
    ('DELETE FROM t WHERE a = :"number" AND b IN (SELECT b FROM u WHERE (u.a, u.b) IN ((:a, :b), (:c, :d)))', BOTH),
    ("SELECT a FROM t WHERE (a, b) = ((:a, :b))", BOTH),
    ("SELECT a FROM t WHERE a < coalesce(:a, :b) AND (b < :b OR (b = :b AND c < :c))", BOTH),
    ("SELECT CAST(a AS NUMBER(19)) AS n, dbms_lob.getlength(b) AS size_ FROM t", BOTH),
    ('SELECT "size", "LEVEL" FROM t WHERE t."comment" IS NULL', BOTH),
    ("WITH x AS (SELECT a FROM t), y (b) AS (SELECT a FROM x) SELECT x.a, y.b FROM x JOIN y ON y.b = x.a", BOTH),
    ("SELECT a FROM t WHERE a LIKE :p ESCAPE '\\' AND b <> ' '", BOTH),
    (
        f"CREATE TABLE {NAME_OF_30} (id NUMBER(19) GENERATED BY DEFAULT AS IDENTITY, a VARCHAR2(512 BYTE) NOT NULL,"
        f" b RAW(16), c BLOB, d INTEGER, at_ {ZONED}, CONSTRAINT pk PRIMARY KEY (id), CONSTRAINT uq UNIQUE (a, b))",
        BOTH,
    ),
    ("CREATE UNIQUE INDEX ix ON t (a, b)", BOTH),
    ("ALTER TABLE t ADD (a VARCHAR2(4000 BYTE))", BOTH),
    ("ALTER TABLE t ADD CONSTRAINT uq UNIQUE (a)", BOTH),
    ("LOCK TABLE t IN EXCLUSIVE MODE WAIT 10", BOTH),
    ("SET TRANSACTION READ ONLY", BOTH),
    ("ALTER SESSION SET ISOLATION_LEVEL=READ COMMITTED", BOTH),
    (
        "DECLARE v_id NUMBER(19); b BOOLEAN := TRUE; BEGIN UPDATE t SET a = :a WHERE b = :b RETURNING id INTO v_id;"
        " IF SQL%ROWCOUNT = 0 THEN RAISE_APPLICATION_ERROR(-20001, 'gone'); END IF; :out := v_id; COMMIT;"
        " EXCEPTION WHEN DUP_VAL_ON_INDEX THEN ROLLBACK; END;",
        BOTH,
    ),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("rule", "sql", "versions"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_caught_by_its_rule(
    rule: str, sql: str, versions: tuple[Version, ...], version: Version
) -> None:
    found = {finding.rule for finding in lint(sql, version)}
    assert (rule in found) == (version in versions), found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("sql", "versions"), RIGHT, ids=range(len(RIGHT)))
def test_what_is_right_passes(sql: str, versions: tuple[Version, ...], version: Version) -> None:
    assert (lint(sql, version) == []) == (version in versions), lint(sql, version)


def test_every_rule_has_caught_something() -> None:
    assert {rule for rule, _, _ in WRONG} == set(RULES)
