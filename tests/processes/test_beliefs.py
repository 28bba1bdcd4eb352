"""What a process believes of a thread is wrong, on purpose: its next save is right all the same, and so is every load."""

from __future__ import annotations

import contextlib
import os
import random
import shutil

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
    for i in range(9, 12):
        await believer.save("t", growing("undone", i), str(i))
    restore()
    assert await other.list_checkpoints("t", 1) == ["8"]
    await believer.save("t", more(growing("undone", 11), "a"), "a")
    expected = {str(i): growing("old", i) for i in range(1, 9)} | {"a": more(growing("undone", 11), "a")}
    await assert_all(expected, other, believer)
    assert await other.load("t", "9") is None


async def test_and_others_have_written_since(believer, other, place):
    """The numbers of versions and blocks that it knows are now another writer's."""
    restore = place.back_up()
    for i in range(9, 12):
        await believer.save("t", growing("undone", i), str(i))
    restore()
    theirs = {str(i): growing("theirs", i) for i in range(9, 13)}
    for name, document in theirs.items():
        await other.save("t", document, name)
    await believer.save("t", more(growing("undone", 11), "a"), "a")
    await believer.save("t", more(more(growing("undone", 11), "a"), "b"), "b")
    await assert_all(
        {**theirs, "a": more(growing("undone", 11), "a"), "b": more(more(growing("undone", 11), "a"), "b")},
        other,
        believer,
    )


async def test_a_restore_while_somebody_else_reads_and_goes_on(believer, other, place):
    restore = place.back_up()
    await believer.save("t", growing("undone", 9), "9")
    assert await other.load("t") == growing("undone", 9)
    restore()
    assert await believer.load("t") == growing("old", 8)
    await other.save("t", more(growing("undone", 9), "a"), "a")
    await believer.save("t", more(growing("old", 8), "b"), "b")
    await assert_all(
        {"8": growing("old", 8), "a": more(growing("undone", 9), "a"), "b": more(growing("old", 8), "b")}, other
    )


async def test_the_thread_was_deleted_and_made_anew(believer, other):
    """With as many versions and blocks, under the same ids."""
    await other.delete("t")
    new = {str(i): growing("new", i) for i in range(1, 9)}
    for name, document in new.items():
        await other.save("t", document, name)
    assert_same(await believer.load("t", "3"), growing("new", 3))
    await believer.save("t", more(growing("old", 8), "a"), "a")
    await assert_all({**new, "a": more(growing("old", 8), "a")}, other, believer)


async def test_the_thread_was_deleted(believer, other):
    await other.delete("t")
    assert await believer.load("t") is None
    await believer.save("t", more(growing("old", 8), "a"), "a")
    await assert_all({"a": more(growing("old", 8), "a")}, other, believer)
    assert [i.version for i in await other.history("t")] == [1]


async def test_the_blocks_that_it_knows_were_removed(believer, other):
    """The next document consists of entries that nothing stored refers to any more."""
    await other.save("t", growing("small", 1), "small")
    await other.vacuum(older_than_days=0, keep_last=1)
    assert await other.list_checkpoints("t") == ["small"]
    await believer.save("t", more(growing("old", 8), "a"), "a")
    await assert_all({"small": growing("small", 1), "a": more(growing("old", 8), "a")}, other, believer)


@pytest.mark.parametrize("gone", [["8"], ["1"], ["3", "4"], ["2", "3", "4", "5", "6", "7", "8"]])
async def test_some_of_its_checkpoints_were_deleted(believer, other, gone):
    await other.delete("t", gone)
    await believer.save("t", more(growing("old", 8), "a"), "a")
    left = {str(i): growing("old", i) for i in range(1, 9) if str(i) not in gone}
    await assert_all({**left, "a": more(growing("old", 8), "a")}, other, believer)


@pytest.mark.parametrize("how", ["newest", "in_place"])
async def test_its_checkpoint_was_replaced(believer, other, how):
    await other.save("t", growing("theirs", 3), "8", if_exists=how)
    await believer.save("t", more(growing("old", 8), "a"), "a")
    await assert_all(
        {"8": growing("theirs", 3), "7": growing("old", 7), "a": more(growing("old", 8), "a")}, other, believer
    )


async def test_another_thread_was_copied_onto_it(believer, other):
    for i in range(1, 9):
        await other.save("u", growing("copied", i), str(i))
    await other.copy_thread("u", "t", overwrite=True)
    await believer.save("t", more(growing("old", 8), "a"), "a")
    await assert_all({"8": growing("copied", 8), "a": more(growing("old", 8), "a")}, other, believer)


async def test_it_expired_and_was_made_anew(open_store, clock):
    believer, other = open_store(clock=clock, ttl_seconds=60), open_store(clock=clock, ttl_seconds=60)
    for i in range(1, 9):
        await believer.save("t", growing("old", i), str(i))
    clock.advance(seconds=61)
    for i in range(1, 9):
        await other.save("t", growing("new", i), str(i))
    await believer.save("t", more(growing("old", 8), "a"), "a")
    await assert_all({"8": growing("new", 8), "a": more(growing("old", 8), "a")}, other, believer)


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
    for i in range(9, 12):
        await believer.save("t", growing("undone", i), str(i))
    server.drop_database(url)
    server.create_database("restored", template="kept")
    other = place.open()
    for i in range(9, 12):
        await other.save("t", growing("theirs", i), str(i))
    await believer.save("t", more(growing("undone", 11), "a"), "a")
    await assert_all({"11": growing("theirs", 11), "a": more(growing("undone", 11), "a")}, believer, other)
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
                    saved[f"o{n}"] = more(found, f"o{n}")
                    await other.save("t", saved[f"o{n}"], f"o{n}")
        current = more(current, f"b{n}")
        if rng.random() < 0.2:
            current = {**current, "messages": current["messages"][rng.randrange(3) :]}
        saved[f"b{n}"] = current
        await believer.save("t", current, f"b{n}")
        who = rng.choice([believer, other])
        assert_same(await who.load("t"), current)
        for name in rng.sample(await other.list_checkpoints("t", None), 1):
            assert_same(await who.load("t", name), saved[name], f"{name}: $")
    for name in await other.list_checkpoints("t", None):
        assert_same(await believer.load("t", name), saved[name], f"{name}: $")
