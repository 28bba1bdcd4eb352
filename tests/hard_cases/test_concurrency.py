"""Cases 47 to 50, 59, 62 to 64: at the same time, over and over, and when connections are lost."""

from __future__ import annotations

import ast
import asyncio
import threading
import time
import tomllib
from pathlib import Path

import backends
import pytest
from elsewhere import ROOT, run
from store_fixtures import only


async def test_case_47_fifty_saves_at_once(store, other):
    ids = await asyncio.gather(*[(store, other)[i % 2].save("t", {"i": i}) for i in range(50)])
    assert len(set(ids)) == 50
    assert set(await store.list_checkpoints("t", None)) == set(ids)
    for i, name in enumerate(ids):
        assert await other.load("t", name) == {"i": i}
    assert [i.version for i in await store.history("t", None)] == list(range(50, 0, -1))


async def test_case_47_fifty_threads_at_once(store, other):
    await asyncio.gather(*[(store, other)[i % 2].save(f"t{i}", {"i": i}) for i in range(50)])
    assert set(await store.list_threads()) == {f"t{i}" for i in range(50)}
    assert set(await other.list_threads()) == {f"t{i}" for i in range(50)}


@pytest.mark.parametrize("new_database", ["sqlite", "postgresql", "mariadb", "oracle-standin"], indirect=True)
async def test_case_48_the_first_burst_on_a_new_database(new_database):
    a, b = new_database.open(), new_database.open()
    doomed = new_database.open()
    try:
        initialiser = asyncio.ensure_future(doomed.save("doomed", {}))
        tasks = [asyncio.ensure_future((a, b)[i % 2].save(f"t{i % 5}", {"i": i})) for i in range(25)]
        await asyncio.sleep(0)
        initialiser.cancel()
        ids = await asyncio.gather(*tasks)
        assert len(set(ids)) == 25
        assert sum([len(await a.list_checkpoints(f"t{i}", None)) for i in range(5)]) == 25
        with pytest.raises(asyncio.CancelledError):
            await initialiser
        await doomed.save("doomed", {})
        assert await b.exists("doomed")
    finally:
        for store in (a, b, doomed):
            await store.close()


@only("sqlite", "postgresql", "mariadb", "oracle-standin")
async def test_case_49_twenty_saves_under_one_id(store, other):
    returned = await asyncio.gather(*[(store, other)[i % 2].save("t", {"i": i}, "same") for i in range(20)])
    assert returned == ["same"] * 20
    assert await store.list_checkpoints("t") == ["same"]
    assert (await other.load("t"))["i"] in range(20)


async def test_case_50_nobody_is_told_to_be_late_who_is_not(open_store, clock):
    store = open_store(clock=clock)
    elsewhere = open_store(clock=clock)
    await store.save("t", {"n": 1}, expected_version=0)
    await elsewhere.save("t", {"n": 2}, expected_version=1)
    await store.save("t", {"n": 3}, expected_version=2)
    assert await elsewhere.load("t") == {"n": 3}


@only("postgresql", "mariadb")
async def test_case_59_the_first_call_after_an_idle_night(open_store, place):
    store = open_store()
    for call in (
        lambda: store.load("t"),
        lambda: store.save("t", {"n": 2}),
        lambda: store.list_threads(),
        lambda: store.history("t"),
        lambda: store.query_by_metadata({}),
        lambda: store.copy_thread("t", "u", overwrite=True),
        lambda: store.delete("u"),
        lambda: store.vacuum(),
        lambda: store.put_records("t", "s", {"k": 1}),
        lambda: store.records("t", "s"),
    ):
        await store.save("t", {"n": 1})
        await asyncio.gather(*[store.load("t") for _ in range(8)])
        place.throw_out()
        await call()
    assert len(await store.list_checkpoints("t", None)) == 11
    place.throw_out()
    ids = await asyncio.gather(*[store.save("t", {"i": i}) for i in range(20)])
    assert len(set(ids)) == 20
    assert len(await store.list_checkpoints("t", None)) == 31


@only("sqlite", "postgresql", "mariadb")
def test_case_62_one_store_in_fifty_event_loops(place):
    store = place.open()
    left = backends.Left()
    counts = []

    async def main(i):
        await store.save("t", {"i": i})
        assert await store.load("t") == {"i": i}

    for i in range(50):
        asyncio.run(main(i))
        counts.append(len(left.now()))
    assert counts[-1] - counts[2] < 23
    asyncio.run(store.close())
    assert left.now() == []


@only("sqlite")
def test_case_63_a_script_that_forgets_to_close_ends(place):
    script = """
        import asyncio, sys, time
        from elsewhere import connect

        async def main():
            store = connect(sys.argv[1])
            await asyncio.gather(*[store.save("t", {"i": i}) for i in range(20)])
            await asyncio.gather(*[store.load("t") for _ in range(20)])
            print(time.time(), flush=True)

        asyncio.run(main())
        """
    done = run(script, place.address)
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ended - float(done.stdout) < 10  # 2 s where nothing else runs: it waits for nothing


@only("sqlite")
async def test_case_63_closing_ends_the_threads(place):
    before = set(threading.enumerate())
    async with place.open() as store:
        await asyncio.gather(*[store.save("t", {"i": i}) for i in range(20)], *[store.load("t") for _ in range(20)])
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) <= before


ALLOWED = {"_replace", "_asdict", "_fields", "_make"}  # named tuples
# Alembic has no other way to run its commands on a connection of ours; its own commands do the same.
ALLOWED |= {"_upgrade_revs", "_install_proxy"}
FOREIGN = {"asyncpg", "sqlite3", "sqlalchemy", "alembic", "pydantic", "pydantic_core"}


def test_case_64_no_private_attribute_of_a_driver_is_used():
    """Such a one may be gone in the next minor release."""
    used = []
    for path in sorted(Path(ROOT, "locus_store").rglob("*.py")):
        tree = ast.parse(path.read_text())
        ours = _names_given_here(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("_"):
                if node.attr not in ours | _ALL | ALLOWED:
                    used.append(f"{path.relative_to(ROOT)}:{node.lineno}: .{node.attr}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOREIGN:
                parts = [*(node.module or "").split("."), *[a.name for a in node.names]]
                used += [f"{path.relative_to(ROOT)}:{node.lineno}: {p}" for p in parts if p.startswith("_")]
    assert used == []


def _names_given_here(tree: ast.AST) -> set[str]:
    """Names of attributes, methods and functions that a module of ours defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # __slots__
    return names


_ALL = {
    name for path in Path(ROOT, "locus_store").rglob("*.py") for name in _names_given_here(ast.parse(path.read_text()))
}


def test_case_64_the_lowest_versions_are_named():
    """What they are is found by running the suite at them, which the CI does."""
    project = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["postgresql"]
    assert not [n for n in needed if ">=" not in n]


@only("postgresql", "mariadb", "oracle-standin")
async def test_two_first_saves_at_once_a_hundred_times(store, other):
    for i in range(100):
        ids = await asyncio.gather(
            store.save(f"t{i}", {"by": "store", "list": [1, 2]}), other.save(f"t{i}", {"by": "other", "list": [1, 3]})
        )
        assert sorted(await store.list_checkpoints(f"t{i}")) == sorted(ids)
        found = [await store.load(f"t{i}", checkpoint_id) for checkpoint_id in ids]
        assert found == [{"by": "store", "list": [1, 2]}, {"by": "other", "list": [1, 3]}]
    assert len(await store.list_threads(limit=None)) == 100
