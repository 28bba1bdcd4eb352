"""What a process believes of a thread is wrong, on purpose: its next save is right all the same, and so is every load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil

import asyncpg
import backends
import pytest
from cases import assert_same
from histories import message
from store_fixtures import only

from locus_store.core.errors import BackendUnavailableError


def growing(mark, count):
    return {"messages": [message(f"{mark} {i}") for i in range(count)], "mark": mark, "n": count}


def more(document, mark):
    return {**document, "messages": [*document["messages"], message(f"more {mark}")], "mark": mark}


async def assert_all(expected, *stores):
    for store in stores:
        for name, document in expected.items():
            assert_same(await store.load("t", name), document, f"{name}: $")


HOW_IT_KNOWS = ["saved it", "loaded it"]


async def save_each(store, *documents):
    """Saves under fresh ids, as most do; returns what is then to be found under which id."""
    return {await store.save("t", document): document for document in documents}


@pytest.fixture(params=HOW_IT_KNOWS)
async def believer(request, open_store):
    """A store that knows the thread, of eight checkpoints, because it saved or loaded the newest one."""
    saver = open_store()
    for i in range(1, 9):
        await saver.save("t", growing("old", i), str(i))
    if request.param == "saved it":
        return saver
    store = open_store()
    assert await store.load("t") == growing("old", 8)
    return store


async def test_its_last_saves_were_undone_by_a_restore(believer, other, place):
    restore = place.back_up()
    undone = await save_each(believer, *[growing("undone", i) for i in range(9, 12)])
    restore()
    assert await other.list_checkpoints("t", 1) == ["8"]
    expected = {str(i): growing("old", i) for i in range(1, 9)}
    expected |= await save_each(believer, more(growing("undone", 11), "a"))
    await assert_all(expected, other, believer)
    for name in undone:
        assert await other.load("t", name) is None


async def test_and_others_have_written_since(believer, other, place):
    """The numbers of versions and blocks that it knows are now another writer's."""
    restore = place.back_up()
    await save_each(believer, *[growing("undone", i) for i in range(9, 12)])
    restore()
    expected = await save_each(other, *[growing("theirs", i) for i in range(9, 13)])
    mine = more(growing("undone", 11), "a")
    expected |= await save_each(believer, mine, more(mine, "b"))
    await assert_all(expected, other, believer)


async def test_a_restore_while_somebody_else_reads_and_goes_on(believer, other, place):
    restore = place.back_up()
    await believer.save("t", growing("undone", 9), "9")
    assert await other.load("t") == growing("undone", 9)
    restore()
    assert await believer.load("t") == growing("old", 8)
    expected = {"8": growing("old", 8)}
    expected |= await save_each(other, more(growing("undone", 9), "a"))
    expected |= await save_each(believer, more(growing("old", 8), "b"))
    await assert_all(expected, other)


async def test_the_thread_was_deleted_and_made_anew(believer, other):
    """With as many versions and blocks, under the same ids."""
    await other.delete("t")
    new = {str(i): growing("new", i) for i in range(1, 9)}
    for name, document in new.items():
        await other.save("t", document, name)
    assert_same(await believer.load("t", "3"), growing("new", 3))
    saved = await save_each(believer, more(growing("old", 8), "a"))
    await assert_all({**new, **saved}, other, believer)


async def test_the_thread_was_deleted(believer, other):
    await other.delete("t")
    assert await believer.load("t") is None
    saved = await save_each(believer, more(growing("old", 8), "a"))
    await assert_all({**saved}, other, believer)
    assert [i.version for i in await other.history("t")] == [1]


async def test_the_blocks_that_it_knows_were_removed(believer, other):
    """The next document consists of entries that nothing stored refers to any more."""
    await other.save("t", growing("small", 1), "small")
    await other.vacuum(older_than_days=0, keep_last=1)
    assert await other.list_checkpoints("t") == ["small"]
    saved = await save_each(believer, more(growing("old", 8), "a"))
    await assert_all({"small": growing("small", 1), **saved}, other, believer)


@pytest.mark.parametrize("gone", [["8"], ["1"], ["3", "4"], ["2", "3", "4", "5", "6", "7", "8"]])
async def test_some_of_its_checkpoints_were_deleted(believer, other, gone):
    await other.delete("t", gone)
    saved = await save_each(believer, more(growing("old", 8), "a"))
    left = {str(i): growing("old", i) for i in range(1, 9) if str(i) not in gone}
    await assert_all({**left, **saved}, other, believer)


@pytest.mark.parametrize("how", ["by a restore", "by a copy"])
async def test_what_had_been_removed_is_back(open_store, place, how):
    """It knows that nothing of its list lies between two blocks, which is no longer so; its checkpoint is the same."""
    believer, other = open_store(), open_store()
    start = {"messages": [message("start")] * 2}
    between = {"messages": [*start["messages"], message("between 1"), message("between 2")]}
    end = {"messages": [*start["messages"], message("end 1"), message("end 2")]}
    for name, document in (("start", start), ("between", between), ("end", end)):
        await other.save("t", document, name)
    if how == "by a restore":
        bring_back = place.back_up()
        await other.delete("t", "between")
    else:
        await other.copy_thread("t", "whole")
        await other.delete("t", "between")
        await other.copy_thread("t", "other")
        await other.copy_thread("other", "t", overwrite=True)
    assert await believer.load("t") == end
    if how == "by a restore":
        bring_back()
    else:
        await other.copy_thread("whole", "t", overwrite=True)
    saved = await save_each(believer, more(end, "a"))
    await assert_all({"start": start, "between": between, "end": end, **saved}, other, believer)


@pytest.mark.parametrize("how", ["newest", "in_place"])
async def test_its_checkpoint_was_replaced(believer, other, how):
    await other.save("t", growing("theirs", 3), "8", if_exists=how)
    saved = await save_each(believer, more(growing("old", 8), "a"))
    await assert_all({"8": growing("theirs", 3), "7": growing("old", 7), **saved}, other, believer)


async def test_another_thread_was_copied_onto_it(believer, other):
    for i in range(1, 9):
        await other.save("u", growing("copied", i), str(i))
    await other.copy_thread("u", "t", overwrite=True)
    saved = await save_each(believer, more(growing("old", 8), "a"))
    await assert_all({"8": growing("copied", 8), **saved}, other, believer)


async def test_it_expired_and_was_made_anew(open_store, clock):
    believer, other = open_store(clock=clock, ttl_seconds=60), open_store(clock=clock, ttl_seconds=60)
    for i in range(1, 9):
        await believer.save("t", growing("old", i), str(i))
    clock.advance(seconds=61)
    for i in range(1, 9):
        await other.save("t", growing("new", i), str(i))
    saved = await save_each(believer, more(growing("old", 8), "a"))
    await assert_all({"8": growing("new", 8), **saved}, other, believer)


async def test_its_checkpoint_is_deleted_at_the_same_moment(open_store):
    """Whoever comes second must see what the first one did, and not what was there when it began to wait."""
    believer, other = open_store(), open_store()
    rng = random.Random(4)
    current = growing("start", 3)

    async def late(call, delay):
        if delay:
            await asyncio.sleep(delay)
        return await call

    for n in range(20):
        current = more(current, f"base {n}")  # which only this checkpoint has, and the next save builds upon it
        (name,) = await save_each(believer, current)
        current = more(current, n)
        before, after = rng.choice([(0, 0), (0, 0.0005), (0.0005, 0), (0, 0.001), (0.001, 0)])
        saved, _ = await asyncio.gather(late(believer.save("t", current), before), late(other.delete("t", name), after))
        for who in (other, believer):
            assert_same(await who.load("t", saved), current, f"{n}: $")
            assert await who.load("t", name) is None
        if n % 7 == 0:
            current = growing(n, 4)


@only("postgresql")
async def test_its_checkpoint_is_replaced_while_it_waits_for_the_thread(believer, other, open_store, place):
    """The save's statement began while the checkpoint was there; what it sees is from that moment, but for the thread."""
    holder, watcher = await asyncpg.connect(place.url), await asyncpg.connect(place.url)
    try:
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM locus_store_threads WHERE thread_id = 't' FOR UPDATE")
            keeper = open_store(keep_checkpoints=1)
            theirs = asyncio.ensure_future(keeper.save("t", growing("theirs", 2)))
            await waiting(watcher, 1)
            saving = asyncio.ensure_future(believer.save("t", more(growing("old", 8), "a")))
            await waiting(watcher, 2)
        expected = {await theirs: growing("theirs", 2), await saving: more(growing("old", 8), "a")}
        assert await other.list_checkpoints("t") == list(expected)[::-1]
        await assert_all(expected, other, believer)
    finally:
        await holder.close()
        await watcher.close()


@only("postgresql")
@pytest.mark.parametrize("gone", ["8", "1", None], ids=["its checkpoint", "another one", "the thread"])
async def test_a_deletion_comes_first_while_it_waits_for_the_thread(believer, other, place, gone):
    """The save was planned on what goes, and its statement began before that went."""
    holder, watcher = await asyncpg.connect(place.url), await asyncpg.connect(place.url)
    try:
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM locus_store_threads WHERE thread_id = 't' FOR UPDATE")
            deleting = asyncio.ensure_future(other.delete("t", gone))
            await waiting(watcher, 1)
            saving = asyncio.ensure_future(believer.save("t", more(growing("old", 8), "a")))
            await waiting(watcher, 2)
        assert await deleting
        left = [str(i) for i in range(1, 9) if gone is not None and str(i) != gone]
        expected = {name: growing("old", int(name)) for name in left}
        saved = await saving
        assert await other.list_checkpoints("t") == [saved, *left[::-1]]
        (newest,) = await other.history("t", limit=1)
        assert newest.parent == (left[-1] if left else None)
        await assert_all({**expected, saved: more(growing("old", 8), "a")}, other, believer)
    finally:
        await holder.close()
        await watcher.close()


async def waiting(connection, count):
    """Waits until so many sessions wait for a lock."""
    for _ in range(1000):
        if count == await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"there are no {count} sessions that wait")


@only("sqlite")
async def test_the_file_was_replaced_under_it(believer, place, open_store):
    """Which one does not do. The first call may say so; nothing is written into the file that is gone, or in part."""
    copy = place.path.with_name("copy.db")
    backends._copy_sqlite(place.path, copy)
    await believer.save("t", growing("undone", 9), "9")
    for side in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{place.path}{side}")
    os.replace(copy, place.path)
    try:
        await believer.save("t", more(growing("undone", 9), "a"), "a")
    except BackendUnavailableError:
        await believer.save("t", more(growing("undone", 9), "a"), "a")
    fresh = open_store()
    await assert_all({"8": growing("old", 8), "a": more(growing("undone", 9), "a")}, believer, fresh)
    assert await fresh.load("t", "9") is None


@only("file")
async def test_the_folder_was_moved_away_and_another_put_there(believer, place, open_store):
    restore = place.back_up()
    await believer.save("t", growing("undone", 9), "9")
    shutil.move(place.path, place.path.with_name("away"))
    restore_into = place.path
    restore_into.mkdir()
    restore()
    await believer.save("t", more(growing("undone", 9), "a"), "a")
    await assert_all({"8": growing("old", 8), "a": more(growing("undone", 9), "a")}, believer, open_store())


async def test_the_database_was_dropped_and_made_from_a_copy(new_postgresql, tmp_path):
    server = new_postgresql()
    url = server.create_database("restored")
    place = backends.PostgreSQLPlace(server=server, url=url, empty=True)
    believer = place.open()
    for i in range(1, 9):
        await believer.save("t", growing("old", i), str(i))
    place.throw_out()
    server.create_database("kept", template="restored")
    await save_each(believer, *[growing("undone", i) for i in range(9, 12)])
    server.drop_database(url)
    server.create_database("restored", template="kept")
    other = place.open()
    for i in range(9, 12):
        await other.save("t", growing("theirs", i), str(i))
    saved = await save_each(believer, more(growing("undone", 11), "a"))
    await assert_all({"11": growing("theirs", 11), **saved}, believer, other)
    await believer.close()
    await other.close()


@pytest.mark.parametrize("seed", range(3))
async def test_anything_happens_between_its_saves(open_store, place, seed):
    """Whatever others do at random, every checkpoint that is there is what was saved under its id."""
    rng = random.Random(seed)
    believer, other = open_store(), open_store()
    saved: dict[str, dict] = {}
    current = growing("start", 3)
    restores = []
    for n in range(60):
        for _ in range(rng.randrange(3)):
            names = await other.list_checkpoints("t", None)
            match rng.randrange(8):
                case 0:
                    await other.delete("t")
                case 1 if names:
                    await other.delete("t", rng.sample(names, rng.randrange(len(names)) + 1))
                case 2:
                    await other.vacuum(older_than_days=0, keep_last=rng.randrange(3))
                case 3 if len(restores) < 3:
                    restores.append(place.back_up())
                case 4 if restores:
                    rng.choice(restores)()
                case 5 if names:
                    name = rng.choice(names)
                    saved[name] = growing(f"replaced {n}", rng.randrange(9))
                    # Of the restored ones, some hold what was there before.
                    restores.clear()
                    await other.save("t", saved[name], name, if_exists=rng.choice(["newest", "in_place"]))
                case _:
                    found = await other.load("t") or growing("new", 2)
                    saved |= await save_each(other, more(found, f"o{n}"))
        current = more(current, f"b{n}")
        if rng.random() < 0.2:
            current = {**current, "messages": current["messages"][rng.randrange(3) :]}
        saved |= await save_each(believer, current)
        who = rng.choice([believer, other])
        assert_same(await who.load("t"), current)
        for name in rng.sample(await other.list_checkpoints("t", None), 1):
            assert_same(await who.load("t", name), saved[name], f"{name}: $")
    for name in await other.list_checkpoints("t", None):
        assert_same(await believer.load("t", name), saved[name], f"{name}: $")
