"""A host's foreign keys to our rows: what forbids a removal says so and names the thread; the rest just works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from migrations.conftest import Database
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from locus_store import Backend, ReferencedError, open_backend

KEYS = {
    "forbids": "",
    "forbids at once": "ON DELETE RESTRICT",
    "cascades": "ON DELETE CASCADE",
    "forgets": "ON DELETE SET NULL",
}


def note(database: Database, points_at: str = "threads", how: str = "", when: str = "") -> None:
    """A table of the host's with one row for each thread, or checkpoint, that is there."""
    ours = f"locus_store_{points_at}"
    database.execute(
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, ref BIGINT NULL,"
        f" CONSTRAINT notes_ref FOREIGN KEY (ref) REFERENCES {ours} (id) {how} {when})",
        f"INSERT INTO notes SELECT id, id FROM {ours}",
    )


def notes(database: Database) -> list[Any]:
    return [row[0] for row in database.execute("SELECT ref FROM notes ORDER BY id")]


def everything(database: Database) -> dict[str, int]:
    """How many rows each table has."""
    return {table: database.execute(f"SELECT count(*) FROM {table}")[0][0] for table in database.tables()}


class Clock:
    now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(database: Database, clock: Clock) -> AsyncIterator[Backend]:
    async with open_backend(database.url, clock=clock) as opened:
        yield opened


async def fill(store: Backend, *threads: str, checkpoints: int = 3) -> None:
    for thread in threads:
        for i in range(checkpoints):
            document = {"l": [f"{thread} {n}" for n in range(i + 1)]}
            await store.save(thread, document, f"c{i}", {"i": i})
        await store.put_records(thread, "scope", {"k": thread})


# --- what forbids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points_at", ["threads", "checkpoints"])
@pytest.mark.parametrize("how", ["forbids", "forbids at once"])
async def test_deleting_a_thread(database: Database, store: Backend, how: str, points_at: str) -> None:
    await fill(store, "t", "u")
    note(database, points_at, KEYS[how])
    before = everything(database)
    with pytest.raises(ReferencedError, match="thread 't'") as caught:
        await store.delete("t")
    assert caught.value.thread_id == "t"
    assert caught.value.__cause__ is not None
    assert everything(database) == before
    assert await store.load("t") == {"l": ["t 0", "t 1", "t 2"]}
    await store.save("t", {"l": ["new"]})

    database.execute("DELETE FROM notes")
    assert await store.delete("t") is True
    assert await store.load("t") is None
    assert await store.load("u") == {"l": ["u 0", "u 1", "u 2"]}


async def test_deleting_checkpoints(database: Database, store: Backend) -> None:
    await fill(store, "t")
    note(database, "checkpoints")
    database.execute("DELETE FROM notes WHERE id = 1")
    before = everything(database)
    for ids in ("c2", ["c0", "c1"], ["c0", "c1", "c2"]):
        with pytest.raises(ReferencedError, match="thread 't'"):
            await store.delete("t", ids)
        assert everything(database) == before
    assert await store.delete("t", "c0") is True
    assert await store.list_checkpoints("t") == ["c2", "c1"]


async def test_trimming_after_a_save(database: Database, store: Backend, clock: Clock) -> None:
    await fill(store, "t")
    note(database, "checkpoints")
    before = everything(database)
    async with open_backend(database.url, clock=clock, keep_checkpoints=2) as keeps:
        with pytest.raises(ReferencedError, match="thread 't'"):
            await keeps.save("t", {"l": ["new"]}, "c3")
        assert everything(database) == before
        assert await store.list_checkpoints("t") == ["c2", "c1", "c0"]
        database.execute("DELETE FROM notes")
        await keeps.save("t", {"l": ["new"]}, "c3")
    assert await store.list_checkpoints("t") == ["c3", "c2"]


async def test_copying_over_a_thread(database: Database, store: Backend) -> None:
    await fill(store, "t", "u")
    note(database)
    before = everything(database)
    with pytest.raises(ReferencedError, match="thread 'u'"):
        await store.copy_thread("t", "u", overwrite=True)
    assert everything(database) == before
    assert await store.load("u") == {"l": ["u 0", "u 1", "u 2"]}
    database.execute("DELETE FROM notes")
    assert await store.copy_thread("t", "u", overwrite=True) is True
    assert await store.load("u") == {"l": ["t 0", "t 1", "t 2"]}


async def test_a_thread_that_has_expired(database: Database, store: Backend, clock: Clock) -> None:
    async with open_backend(database.url, clock=clock, ttl_seconds=1) as short:
        await short.save("t", {"n": 1})
        await short.save("u", {"n": 1})
    note(database)
    clock.now += 2_000_000
    for call in (
        lambda: store.save("t", {"n": 2}),
        lambda: store.delete("t"),
        lambda: store.put_records("t", "scope", {"k": 1}),
    ):
        with pytest.raises(ReferencedError, match="thread 't'"):
            await call()
    assert await store.load("t") is None
    database.execute("DELETE FROM notes")
    await store.save("t", {"n": 2})
    assert await store.load("t") == {"n": 2}


@pytest.mark.parametrize("points_at", ["threads", "checkpoints"])
async def test_vacuum_passes_over_it_and_says_so(
    database: Database, store: Backend, clock: Clock, points_at: str
) -> None:
    async with open_backend(database.url, clock=clock, ttl_seconds=1) as short:
        await fill(short, "expired", "expired too")
    await fill(store, "old", "old too", "young")
    note(database, points_at)
    # Of what is pointed at: all but the second ones.
    database.execute(
        "DELETE FROM notes WHERE id IN (SELECT c.id FROM locus_store_checkpoints c JOIN locus_store_threads t ON t.id = c.thread"
        " WHERE t.thread_id LIKE '%too')"
        if points_at == "checkpoints"
        else "DELETE FROM notes WHERE id IN (SELECT id FROM locus_store_threads WHERE thread_id LIKE '%too')"
    )
    clock.now += 40 * 86_400_000_000
    await store.save("young", {"l": ["new"]}, "c3")
    done = await store.vacuum()
    kept = {"expired", "old"} if points_at == "checkpoints" else {"expired"}
    if points_at == "checkpoints":
        kept.add("young")
    assert set(done.skipped) == kept
    assert len(await store.list_checkpoints("old", None)) == (3 if "old" in kept else 1)
    assert await store.list_checkpoints("old too", None) == ["c2"]
    assert await store.load("old") == {"l": ["old 0", "old 1", "old 2"]}

    database.execute("DELETE FROM notes")
    again = await store.vacuum()
    assert again.skipped == ()
    assert int(done) + int(again) == 3 + 3 + 2 + 2 + 3
    assert await store.vacuum() == 0


async def test_a_key_that_is_checked_at_the_commit(database: Database, store: Backend) -> None:
    if database.name in ("mysql", "mariadb"):
        pytest.skip("MariaDB checks every foreign key at once")
    await fill(store, "t", "u")
    note(database, when="DEFERRABLE INITIALLY DEFERRED")
    calls = [store.save("v", {"n": i}, f"c{i}") for i in range(5)]
    calls.insert(2, store.delete("t"))
    calls.append(store.delete("u"))
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert [type(error) for error in refused] == [ReferencedError] * 2
    assert {error.thread_id for error in refused} == {"t", "u"}
    assert len(await store.list_checkpoints("v")) == 5
    assert len(await store.list_checkpoints("t")) == 3
    assert (await store.vacuum(older_than_days=0)).skipped == ()


# --- what does not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points_at", ["threads", "checkpoints"])
async def test_rows_that_go_with_ours(database: Database, store: Backend, points_at: str) -> None:
    await fill(store, "t", "u")
    note(database, points_at, KEYS["cascades"])
    count = len(notes(database))
    assert await store.delete("t") is True
    assert len(notes(database)) == count / 2
    assert await store.copy_thread("u", "t") is True
    assert await store.copy_thread("t", "u", overwrite=True) is True
    assert notes(database) == []


@pytest.mark.parametrize("points_at", ["threads", "checkpoints"])
async def test_rows_that_forget_ours(database: Database, store: Backend, points_at: str) -> None:
    await fill(store, "t", "u")
    note(database, points_at, KEYS["forgets"])
    refs = notes(database)
    assert await store.delete("t", ["c0", "c1", "c2"]) is True
    half = len(refs) // 2
    assert notes(database) == [None] * half + refs[half:]


async def test_a_row_keeps_its_id_as_long_as_what_it_names(database: Database, store: Backend) -> None:
    await fill(store, "t")
    note(database, "checkpoints")
    await store.save("t", {"l": ["again"]}, "c0")
    await store.save("t", {"l": ["and again"]}, "c1", if_exists="in_place")
    named = (
        "SELECT n.id, c.checkpoint_id FROM notes n JOIN locus_store_checkpoints c ON c.id = n.ref ORDER BY c.version"
    )
    assert [name for _, name in database.execute(named)] in (["c1", "c2", "c0"], [b"c1", b"c2", b"c0"])
    first = notes(database)
    database.execute("DELETE FROM notes")
    await store.delete("t")
    await fill(store, "t")
    database.execute("INSERT INTO notes SELECT id, id FROM locus_store_checkpoints")
    # No id comes back: a row of a host that forgot its key cannot point at somebody else's thread.
    assert min(notes(database)) > max(first)


async def test_the_error_shows_no_row_of_the_hosts(database: Database, store: Backend) -> None:
    await store.save("t", {"n": 1})
    database.execute(
        "CREATE TABLE secrets (word VARCHAR(40), ref BIGINT, FOREIGN KEY (ref) REFERENCES locus_store_threads (id))",
        "INSERT INTO secrets SELECT 'hush', id FROM locus_store_threads",
    )
    with pytest.raises(ReferencedError) as caught:
        await store.delete("t")
    assert "hush" not in str(caught.value)
    assert "rows of other tables" in str(caught.value)
    assert caught.value.thread_id == "t"


# --- in a transaction of the host's -----------------------------------------------------------------------------------


@pytest.mark.parametrize("points_at", ["threads", "checkpoints"])
async def test_a_refusal_in_a_transaction_of_the_hosts(
    database: Database, store: Backend, clock: Clock, points_at: str
) -> None:
    await fill(store, "t", "u")
    note(database, points_at)
    before = everything(database)
    engine = database.async_engine()
    async with open_backend(database.url, clock=clock, keep_checkpoints=1) as keeps, AsyncSession(engine) as session:
        calls = {
            "delete": lambda: store.bind(session).delete("t"),
            "overwrite": lambda: store.bind(session).copy_thread("u", "t", overwrite=True),
        }
        if points_at == "checkpoints":
            calls["delete some"] = lambda: store.bind(session).delete("t", ["c0", "c1"])
            calls["trim"] = lambda: keeps.bind(session).save("t", {"n": 1}, "c9")
            calls["vacuum"] = lambda: store.bind(session).vacuum(older_than_days=0)
        for name, call in calls.items():
            if database.name == "sqlite":
                await session.execute(text("PRAGMA foreign_keys=ON"))
            with pytest.raises(ReferencedError, match=r"thread '[tu]'"):
                await call()
            # What refuses a call comes first in it, so even a commit after all would keep the thread whole. (Where a
            # statement that failed ends the transaction there is nothing to commit.)
            whole = points_at == "threads" or name in ("delete some", "trim", "vacuum")
            if database.name != "postgresql" and whole:
                await session.commit()
            else:
                await session.rollback()
            assert everything(database) == before, name
    await engine.dispose()
    assert await store.load("t") == {"l": ["t 0", "t 1", "t 2"]}
