"""Nothing is sent that MySQL 8 lacks; it is MariaDB that the tests run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mariadb.mysql8 import LACKS, dialect, lacking, overheard
from migrations.test_offline import script
from sqlalchemy.dialects.mysql.asyncmy import MySQLDialect_asyncmy
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from locus_store import Backend, MySQLBackend


async def everything(store: Backend, prefix: str) -> None:
    """Each call in each of its forms, on threads whose names begin so."""
    t, u = f"{prefix}t", f"{prefix}u"
    lines: list[str] = []
    for i in range(4):
        lines.append(f"{i}" * 400)
        await store.save(t, {"m": lines, "n": i}, metadata={"i": i, "tags": ["a", "b"]})
    await store.save(t, {"m": [*lines, "x"]}, "named", {"i": 9})
    await store.save(t, {"m": lines[:2]}, "named", if_exists="in_place")
    await store.save(t, {"m": lines}, "named")
    await store.save(t, {"m": lines}, "other", if_exists="error", expected_version=None)
    await store.save(t, {"m": []})
    assert await store.load(t) == {"m": []}
    assert await store.load(t, "named") == {"m": lines}
    assert await store.exists(t)
    found = await store.list_checkpoints(t, 3)
    assert found == (await store.list_checkpoints(t))[:3]
    assert await store.list_with_metadata(50)
    found_rows = await store.query_by_metadata({"i": 3, "tags": ["a", "b"]}, versions="all", thread_id=t)
    assert [row["thread_id"] for row in found_rows] == [t]
    assert t in await store.list_threads(pattern=f"{prefix}*")
    assert t in await store.list_threads(limit=100, offset=0)
    await store.copy_thread(t, u)
    await store.copy_thread(t, u, overwrite=True)
    await store.put_records(t, "s", {"a": 1, "b": [2]})
    await store.put_records(t, "s", {"a": 3, "c": 4}, keep=True)
    assert await store.records(t, "s") == {"a": 1, "b": [2], "c": 4}
    assert await store.delete_records(t, "s")
    await store.vacuum(older_than_days=0)
    assert await store.delete(u, [found[0]]) in (True, False)
    await store.delete(t)
    await store.delete(u)


@pytest.fixture
async def engine(mariadb_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(mariadb_url.replace("mariadb:", "mysql+asyncmy:"), isolation_level="READ COMMITTED")
    yield made
    await made.dispose()


async def on_all_ways(url: str, engine: AsyncEngine) -> None:
    """On own connections, on those of a host's engine, and in a host's transactions of both levels."""
    async with MySQLBackend(dsn=url, ttl_seconds=1000, keep_checkpoints=9) as store:
        await everything(store, "own-")
        await store.vacuum(older_than_days=1, reclaim=True)
    async with MySQLBackend(engine=engine) as store:
        await everything(store, "engine-")
        for level in ("READ COMMITTED", "REPEATABLE READ"):
            async with engine.connect() as connection:
                await connection.execution_options(isolation_level=level)
                await everything(store.bind(connection), f"bound-{level}-")
                await connection.commit()


@pytest.mark.parametrize("version", [(8, 0, 4), (8, 0, 36), (8, 4, 3)], ids=str)
async def test_nothing_is_sent_that_mysql_lacks(
    mariadb_url: str, engine: AsyncEngine, version: tuple[int, ...]
) -> None:
    with overheard(dialect(*version)) as seen:
        await on_all_ways(mariadb_url, engine)
    ours = [statement for statement in seen if "locus_store" in statement]
    kinds = {statement.split()[0].upper() for statement in ours}
    assert {"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "OPTIMIZE"} <= kinds
    assert len(ours) > 40
    assert {s: lacks for s in ours if (lacks := lacking(s))} == {}


async def test_it_works_where_sqlalchemy_takes_the_server_for_mysql(
    mariadb_url: str, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No RETURNING, and none of the forms that SQLAlchemy keeps for MariaDB; as old as both can be taken for."""

    def parse(self: Any, _text: str) -> tuple[int, ...]:
        self._set_mariadb(False, ())
        return (5, 7, 10)

    monkeypatch.setattr(MySQLDialect_asyncmy, "_parse_server_version", parse)
    await on_all_ways(mariadb_url, engine)
    assert not engine.dialect.is_mariadb  # type: ignore[attr-defined]
    assert not engine.dialect.insert_returning


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
def test_the_script_of_the_migrations(name: str, tmp_path: Any) -> None:
    text = script(name, tmp_path)
    statements = [s for s in text.split(";") if s.strip()]
    assert len(statements) > 10
    assert {s: lacks for s in statements if (lacks := lacking(s))} == {}


WRONG = [
    ("RETURNING", "INSERT INTO t (a) VALUES (%s) RETURNING t.id"),
    ("VALUE()", "INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUE(a)"),
    ("sequences", "SELECT nextval(`s`)"),
    ("sequences", "CREATE SEQUENCE s START WITH 1"),
    ("FETCH", "SELECT a FROM t ORDER BY a OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY"),
    ("waiting so long", "SELECT a FROM t WHERE id = 1 FOR UPDATE WAIT 3"),
    ("locks of the old kind before others", "SELECT a FROM t LOCK IN SHARE MODE SKIP LOCKED"),
    ("rows examined", "SELECT a FROM t LIMIT ROWS EXAMINED 9"),
    ("set operators before 8.0.31", "SELECT a FROM t EXCEPT SELECT a FROM u"),
    ("a limit in a subquery of IN", "DELETE FROM t WHERE a IN (SELECT b FROM u WHERE (c = 1) ORDER BY b LIMIT %s)"),
    ("IF EXISTS of parts of a table", "ALTER TABLE t DROP COLUMN IF EXISTS a"),
    ("OR REPLACE", "CREATE OR REPLACE TABLE t (a INTEGER)"),
    ("SET STATEMENT", "SET STATEMENT lock_wait_timeout=1 FOR SELECT a FROM t"),
    ("blocks", "BEGIN NOT ATOMIC SELECT 1; END"),
    ("its JSON", "SELECT JSON_COMPACT(a) FROM t"),
    ("its variables", "SELECT @@SESSION.tx_isolation"),
    ("its columns", "CREATE TABLE t (a UUID)"),
    ("names that are words of MySQL 8", "SELECT t.rank FROM t"),
    ("an UPDATE that reads its own table", "UPDATE t SET a = (SELECT max(a) FROM t WHERE b = 1)"),
    ("a DELETE that reads its own table", "DELETE FROM t WHERE a = (SELECT max(t.a) AS m FROM t)"),
]


@pytest.mark.parametrize(("lack", "statement"), WRONG)
def test_what_mysql_lacks_is_found(lack: str, statement: str) -> None:
    assert lack in lacking(statement)


def test_each_lack_has_an_example() -> None:
    assert {lack for lack, _ in WRONG} == set(LACKS)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (a) VALUES ('RETURNING', 'it''s VALUE(1) \\' UUID') ON DUPLICATE KEY UPDATE a = t.a",
        "SELECT a FROM t WHERE a IN (SELECT b FROM u) ORDER BY a LIMIT 1, 2",
        "SELECT a FROM t WHERE a IN (SELECT x.b FROM (SELECT b AS b FROM u LIMIT 3) AS x) LIMIT 3",
        "SELECT a FROM t FOR UPDATE SKIP LOCKED",
        "SELECT a FROM t LOCK IN SHARE MODE",
        "UPDATE t SET a = (SELECT max(a) FROM t_other)",
        "SELECT `rank`, sum(a) OVER (PARTITION BY b) FROM t",
    ],
)
def test_what_both_have_is_let_pass(statement: str) -> None:
    assert lacking(statement) == []
