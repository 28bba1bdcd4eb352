"""Blocks of PL/SQL on the stand-in: what they answer, how they end, and what is not translated."""

from __future__ import annotations

from typing import Any

import oracledb
import pytest
from oracle.oracle_standin import StandInConnection
from oracle.oracle_standin.blocks import translated
from oracle.oracle_standin.errors import StandInError
from oracle.test_standin import Connect, fails, names, one, row

__all__ = ["one"]

INSERT = "INSERT INTO things (name) VALUES (:name);"
BLOCK = """DECLARE
  v_name VARCHAR2(10 BYTE) := :name;
  v_id NUMBER(19);
BEGIN
  :saved := 0;
  BEGIN
    SELECT id INTO v_id FROM things WHERE name = v_name FOR UPDATE WAIT 1;
  EXCEPTION WHEN NO_DATA_FOUND THEN
    v_id := NULL;
  END;
  IF v_id IS NULL THEN
    INSERT INTO things (name, body) VALUES (v_name, :body) RETURNING id INTO v_id;
  ELSE
    ROLLBACK; RETURN;
  END IF;
  FOR i IN 1 .. :more LOOP
    INSERT INTO things (name) VALUES (v_name || TO_CHAR(i));
  END LOOP;
  COMMIT;
  :saved := 1;
  :made := v_id;
EXCEPTION
  WHEN DUP_VAL_ON_INDEX THEN
    ROLLBACK;
    :saved := 0;
  WHEN OTHERS THEN
    ROLLBACK;
    RAISE;
END;"""


async def run(connection: StandInConnection, name: str, *, body: bytes | None = None, more: int = 0) -> tuple[Any, Any]:
    cursor = connection.cursor()
    saved, made = cursor.var(int), cursor.var(int)
    values = {"name": name, "body": body, "more": more, "saved": saved, "made": made}
    await cursor.execute(BLOCK, values)
    return saved.getvalue(), made.getvalue()


async def test_a_block_answers_and_commits(one: StandInConnection, connect: Connect) -> None:
    assert await run(one, "a", body=b"x" * 32_767, more=2) == (1, 1)
    await one.rollback()
    assert await names(await connect()) == ["a", "a1", "a2"]


async def test_a_block_that_gives_up_undoes_the_transaction(one: StandInConnection) -> None:
    await run(one, "a")
    await one.execute("INSERT INTO things (name) VALUES (:name)", {"name": "before"})
    assert await run(one, "a") == (0, None)
    assert await names(one) == ["a"]


async def test_a_duplicate_is_handled_and_undoes_all(one: StandInConnection) -> None:
    await run(one, "a2")
    assert await run(one, "a", more=3) == (0, None)
    assert await names(one) == ["a2"]


async def test_an_error_that_is_raised_again_undoes_the_transaction(one: StandInConnection) -> None:
    await one.execute("INSERT INTO things (name) VALUES (:name)", {"name": "before"})
    await fails(run(one, "too long for it"), "ORA-12899")
    assert await names(one) == []


async def test_a_block_waits_as_long_as_it_says(one: StandInConnection, connect: Connect) -> None:
    await run(one, "a")
    await one.execute("UPDATE things SET digest = NULL")
    await fails(run(await connect(), "a"), "ORA-30006")


async def test_a_bind_is_no_longer_than_a_variable(one: StandInConnection) -> None:
    with pytest.raises(oracledb.DatabaseError, match="ORA-06502"):
        await run(one, "a", body=b"x" * 32_768)
    await one.execute("INSERT INTO things (name, body) VALUES (:name, :body)", {"name": "b", "body": b"x" * 32_768})
    assert row("b")["name"] in await names(one)


@pytest.mark.parametrize(
    "block",
    [
        f"BEGIN {INSERT} COMMIT; {INSERT} END;",
        f"BEGIN {INSERT} ROLLBACK; {INSERT} END;",
        f"BEGIN {INSERT} {INSERT} EXCEPTION WHEN DUP_VAL_ON_INDEX THEN NULL; END;",
        "BEGIN EXECUTE IMMEDIATE 'COMMIT'; END;",
        "BEGIN UPDATE things SET name = :name; :n := SQL%ROWCOUNT; END;",
    ],
)
def test_what_would_mean_something_else_is_not_translated(block: str) -> None:
    with pytest.raises(StandInError):
        translated(block, frozenset())
