"""Several processes that fill one index, some of which are killed while they do."""

from __future__ import annotations

import random
import time

import pytest
from search.conftest import indexed, said, words
from store_fixtures import only

pytestmark = only("sqlite", "postgresql")

THREADS, SAVES = 6, 6

DRAIN = """
    import asyncio, sys
    from elsewhere import connect
    from locus_store.sql.search.postgresql import POSTGRESQL_INDEX
    from locus_store.sql.search.sqlite import SQLITE_INDEX

    POSTGRESQL_INDEX.page = SQLITE_INDEX.page = 1

    async def main():
        async with connect(sys.argv[1]) as store:
            await store.exists("t")
            print("ready", flush=True)
            sys.stdin.readline()
            hits = await store.search("needle", limit=None)
            print(len(hits), flush=True)

    asyncio.run(main())
"""

SAVE = """
    import asyncio, sys
    from elsewhere import connect

    async def main():
        async with connect(sys.argv[1]) as store:
            print("ready", flush=True)
            sys.stdin.readline()
            for n in range(60):
                text = f"needle from {sys.argv[2]} number {n} " + "filler " * 50
                await store.save(f"{sys.argv[2]}-{n % 3}", {"messages": [text]}, f"c{n % 4}", if_exists="in_place")
                if n % 10 == 0:
                    await store.search("needle", limit=5)

    asyncio.run(main())
"""


async def fill(store):
    for thread in range(THREADS):
        messages = []
        for n in range(SAVES):
            messages.append({"role": "user", "content": f"needle {thread}x{n} " + "filler " * 50})
            await store.save(f"t{thread}", {"messages": messages}, f"c{n}")


async def threads_with(store, query):
    return [hit["thread_id"] for hit in await store.search(query, limit=None)]


async def test_two_processes_fill_it_at_once(place, store, run_program):
    await store.enable_search()
    await fill(store)
    both = [run_program(DRAIN, place.address) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        out, err = process.communicate(timeout=120)
        assert out == f"{THREADS * SAVES}\n", err
    # What the other one was busy with, each has read as it is.
    assert len(await threads_with(store, "needle")) == THREADS * SAVES
    assert indexed(place)[0] == 0
    assert words(place).count("needle") == THREADS * SAVES
    for thread in range(THREADS):
        assert await threads_with(store, f"{thread}x{SAVES - 1}") == [f"t{thread}"]


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.endurance)])
async def test_killed_while_it_fills(place, store, run_program, kills):
    rng = random.Random(kills)
    await store.enable_search()
    killed_within = 0
    for kill in range(kills):
        if indexed(place)[0] < 30:
            for thread in range(THREADS):
                await store.delete(f"t{thread}")
            await fill(store)
        waiting = indexed(place)[0]
        process = run_program(DRAIN, place.address)
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        process.stdin.write("go\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while indexed(place)[0] >= waiting - kill % 3:
            assert time.monotonic() < deadline
        time.sleep(rng.random() * 0.01)  # anywhere within a transaction
        process.kill()
        process.communicate()
        killed_within += indexed(place)[0] > 0
    assert killed_within > 0
    hits = await store.search("needle", limit=None)
    assert len(hits) == THREADS * SAVES
    assert indexed(place)[0] == 0
    assert words(place).count("needle") == THREADS * SAVES


@pytest.mark.endurance
async def test_filled_while_others_save_and_write_anew(place, store, run_program):
    await store.enable_search()
    savers = [run_program(SAVE, place.address, f"p{n}") for n in range(3)]
    for process in savers:
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in savers:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in savers:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    expected = set()
    for name in await store.list_threads(limit=None):
        for checkpoint in await store.list_checkpoints(name, limit=None):
            expected.update((name, text) for text in (await store.load(name, checkpoint))["messages"])
    await store.save("mine", said("needle"))
    hits = await store.search("needle", limit=None)
    assert len(hits) == len(expected) + 1
    assert indexed(place)[0] == 0
    assert words(place).count("needle") == len(expected) + 1
