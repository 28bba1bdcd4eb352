"""Cases 69, 72 and 74, as a store meets them; the migrations themselves are tested in tests/migrations."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from elsewhere import run, start
from store_fixtures import only

from locus_store.core.errors import SchemaIncompleteError, SchemaNotReadyError

ROLE = "locus_store_rows_only"


@pytest.fixture
def rows_only(place):
    """Options under which a backend may read and write rows, and nothing else."""
    with contextlib.suppress(Exception):
        place.execute(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")
    place.execute(
        f"CREATE ROLE {ROLE}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE}",
        f"GRANT USAGE ON SCHEMA public TO {ROLE}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {ROLE}",
    )
    yield {"connect_args": {"server_settings": {"role": ROLE}}}
    place.throw_out()
    place.execute(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


@only("postgresql")
async def test_case_69_a_role_that_may_only_use_rows(open_store, place, rows_only):
    store = open_store(**rows_only)
    place.execute(
        "CREATE OR REPLACE FUNCTION no_ddl() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'DDL was sent: %', tg_tag; END $$",
        "CREATE EVENT TRIGGER no_ddl ON ddl_command_start EXECUTE FUNCTION no_ddl()",
    )
    try:
        await store.setup()
        for i in range(60):
            await store.save("t", {"l": ["x" * 300] * i}, str(i), {"i": i})
        assert len((await store.load("t"))["l"]) == 59
        assert len(await store.list_checkpoints("t", None)) == 60
        assert await store.list_threads() == ["t"]
        assert len(await store.query_by_metadata({"i": 3}, versions="all")) == 1
        assert await store.copy_thread("t", "u", upto="30") is True
        assert await store.delete("t", ["1", "2"]) is True
        await store.put_records("t", "s", {"k": 1})
        assert await store.vacuum(older_than_days=0) > 50
        assert await store.delete("t") is True
        await store.close()
    finally:
        place.execute("DROP EVENT TRIGGER no_ddl", "DROP FUNCTION no_ddl()")


@pytest.mark.parametrize("new_database", ["sqlite", "postgresql", "mariadb", "oracle-standin"], indirect=True)
async def test_case_69_missing_tables_are_named(new_database):
    store = new_database.open(create_schema=False)
    try:
        for call in (
            lambda: store.save("t", {}),
            lambda: store.load("t"),
            lambda: store.list_threads(),
            lambda: store.setup(),
        ):
            with pytest.raises(SchemaNotReadyError, match="upgrade") as caught:
                await call()
            assert caught.value.current is None
            assert caught.value.wanted
        # Once somebody else has made them, the same object goes on.
        async with new_database.open() as maker:
            await maker.setup()
        await store.save("t", {"n": 1})
        assert await store.load("t") == {"n": 1}
    finally:
        await store.close()


@pytest.mark.parametrize("new_database", ["sqlite", "postgresql", "mariadb", "oracle-standin"], indirect=True)
async def test_case_69_tables_of_which_some_are_gone(new_database):
    async with new_database.open() as store:
        await store.save("t", {"n": 1})
    new_database.execute("DROP TABLE locus_store_terms")
    async with new_database.open() as store:
        with pytest.raises(SchemaIncompleteError, match="locus_store_terms"):
            await store.save("t", {"n": 2})
        with pytest.raises(SchemaIncompleteError, match="locus_store_terms"):
            await store.load("t")


def test_case_72_five_processes_meet_a_new_database(new_database):
    program = """
        import asyncio, sys
        from elsewhere import connect

        async def main(name):
            async with connect(sys.argv[1]) as store:
                print("ready", flush=True)
                sys.stdin.readline()
                await store.save("t", {"by": name}, name)
                await store.save(name, {})

        asyncio.run(main(sys.argv[2]))
        """
    processes = [start(program, new_database.address, f"p{i}") for i in range(5)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")

    async def look():
        async with new_database.open() as store:
            assert set(await store.list_checkpoints("t")) == {f"p{i}" for i in range(5)}
            assert len(await store.list_threads()) == 6

    asyncio.run(look())
    assert new_database.execute("SELECT count(*) FROM locus_store_schema")[0][0] == 1


async def test_case_74_setting_up_within_a_running_loop(new_database):
    async with new_database.open() as store:
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.ensure_future(tick())
        await asyncio.gather(store.setup(), store.setup())
        ticking.cancel()
        assert ticks > 1
        await store.save("t", {"n": 1})
        assert await store.load("t") == {"n": 1}


def test_case_74_setting_up_in_another_kind_of_loop(new_database):
    program = """
        import asyncio, sys
        import uvloop
        from elsewhere import connect

        async def main():
            assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
            async with connect(sys.argv[1]) as store:
                await store.setup()
                await asyncio.gather(*(store.save(f"t{i}", {"n": i}) for i in range(20)))
                assert await store.load("t7") == {"n": 7}

        for _ in range(2):
            uvloop.run(main())
        """
    done = run(program, new_database.address, options=("-W", "error"))
    assert (done.returncode, done.stderr) == (0, "")
    assert new_database.execute("SELECT count(*) FROM locus_store_threads")[0][0] == 20
