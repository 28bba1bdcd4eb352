"""The example that books an order and saves the agent's state, and what is left of it when the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elsewhere import ROOT, start
from embedding.hosts import Host
from sqlalchemy import text

EXAMPLE = ROOT / "examples" / "order_and_state.py"

# Stops, as the process of an app may, after the order and the state are written and before the commit.
CHILD = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from order_and_state import Base, book, async_sessionmaker, create_async_engine, open_backend

async def main(url, first):
    store = open_backend(url)
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with async_sessionmaker(engine)() as session:
        if first == "first":
            await book(session, store, "killed", "a chair")
            await session.commit()
        await book(session, store, "killed", "a table")
        print("written", flush=True)
        sys.stdin.readline()
        await session.commit()
    await engine.dispose()

asyncio.run(main(*sys.argv[2:]))
"""


@pytest.fixture
def shop(host: Host) -> Iterator[Host]:
    yield host
    with host.sync_engine().begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS shop_orders"))


def test_the_example_runs(shop: Host, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), shop.async_url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("sold out: the moon")
    assert lines[1] == "orders:  a chair, a table"
    assert lines[-1] == "checkpoints: 2"
    assert len(lines) == 7
    assert shop.place.count() == 0


def test_the_example_runs_without_a_database_of_ones_own(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "checkpoints: 2" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", ["first", "anew"])
async def test_a_kill_between_the_order_and_the_commit_leaves_neither(shop: Host, first: str):
    program = start(CHILD, str(EXAMPLE.parent), shop.async_url, first)
    with program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "written\n"
        finally:
            program.send_signal(signal.SIGKILL)
    before = 1 if first == "first" else 0
    store = shop.own()
    # A server lets go of what the dead one held as soon as it notices; until then a writer waits.
    await store.save("killed", {"n": 1}, "after")
    with shop.sync_engine().connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM shop_orders")).scalar_one() == before
    history = await store.history("killed")
    assert [info.version for info in history] == list(range(before + 1, 0, -1))
    assert history[0].checkpoint_id == "after"
    if before:
        state = await store.load("killed", history[1].checkpoint_id)
        assert state is not None
        assert state["messages"][0]["content"] == "I want a chair."


async def test_a_process_that_is_let_go_on_commits_both(shop: Host):
    program = start(CHILD, str(EXAMPLE.parent), shop.async_url, "anew")
    with program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "written\n"
            out, err = program.communicate("go on\n", timeout=60)
        finally:
            program.kill()
    assert (program.returncode, out, err) == (0, "", "")
    assert len(await shop.own().list_checkpoints("killed")) == 1
