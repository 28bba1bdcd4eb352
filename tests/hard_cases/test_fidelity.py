"""Cases 1 to 13: what goes in must come out."""

from __future__ import annotations

import math
import re
import sys
from collections import deque
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from cases import assert_same
from histories import message
from store_fixtures import only

from locus_store.core.errors import CorruptCheckpointError, SerializationError, UnsupportedFormatError


async def test_case_01_a_nul_character(store, other):
    document = {"m": "a\x00b", "lit": "\\u0000"}
    await store.save("t1", document, metadata=document)
    assert_same(await other.load("t1"), document)
    assert_same((await other.get_metadata("t1"))["metadata"], document)
    assert len(await other.query_by_metadata({"m": "a\x00b"})) == 1
    assert await other.query_by_metadata({"m": "ab"}) == []
    await store.save("t1", {"n": 1})
    assert await other.list_threads() == ["t1"]
    assert await other.query_by_metadata({"k": 1}, versions="all") == []


async def test_case_02_a_lone_surrogate(store, other):
    await store.save("t1", {"out": "x\ud800y"})
    assert_same(await other.load("t1"), {"out": "x\ud800y"})
    await store.save("t1", {"out": "next"})
    assert await other.load("t1") == {"out": "next"}


async def test_case_03_not_a_number(store, other, place):
    await store.save("t1", {"loss": math.nan, "hi": math.inf, "z": -0.0})
    assert_same(await other.load("t1"), {"loss": math.nan, "hi": math.inf, "z": -0.0})
    before = place.count()
    for bad in (math.nan, math.inf):
        with pytest.raises(SerializationError) as caught:
            await store.save("t1", {}, metadata={"ok": 1, "loss": bad})
        assert caught.value.path == "$.loss"
    assert place.count() == before
    await store.save("t1", {}, metadata={"z": -0.0})
    assert_same((await other.get_metadata("t1"))["metadata"], {"z": -0.0})


async def test_case_04_raw_bytes_and_a_dict_that_looks_like_them(store, other):
    document = {"img": b"\x89PNG\x00\xff", "theirs": {"__bytes__": "aGk="}, "ours": {"$bytes": "aGk="}}
    await store.save("t1", document, metadata=document)
    assert_same(await other.load("t1"), document)
    assert_same((await other.get_metadata("t1"))["metadata"], document)


async def test_case_05_dates_sets_and_bounded_deques(store, other, place):
    zone = timezone(timedelta(hours=5, minutes=30))
    document = {
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=zone),
        "s": {"a"},
        "t": (1, 2),
        "d": Decimal("1.10"),
        7: "int key",
    }
    await store.save("t1", document, metadata=document)
    assert_same(await other.load("t1"), document)
    assert_same((await other.get_metadata("t1"))["metadata"], document)
    for bad in (deque([1], maxlen=3), message):
        for arguments in (({"x": [bad]},), ({}, None, {"x": [bad]})):
            with pytest.raises(SerializationError) as caught:
                await store.save("t2", *arguments)
            assert caught.value.path == "$.x[0]"
    assert await store.exists("t2") is False


async def test_case_07_the_same_is_refused_everywhere(store, place):
    with pytest.raises(SerializationError) as caught:
        await store.save("t1", {"f": lambda: 1})
    assert caught.value.path == "$.f"
    assert str(caught.value) == "$.f: values of type function cannot be stored; convert it to plain data first"
    assert place.count() == 0


async def test_case_08_changing_a_dict_after_saving_or_loading_it(store, other):
    s = {"items": [1]}
    metadata = {"tags": ["a"]}
    await store.save("t", s, metadata=metadata)
    s["items"].append(2)
    metadata["tags"].append("b")
    a = await store.load("t")
    a["items"].append(3)
    (await store.history("t"))[0].metadata["tags"].append("c")
    for who in (store, other):
        assert await who.load("t") == {"items": [1]}
        assert (await who.history("t"))[0].metadata == {"tags": ["a"]}


async def test_case_09_a_recipe_for_an_object_is_a_plain_dict(store, other):
    recipes = [
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}},
        {"py/object": "os.system", "py/reduce": [{"py/type": "os.system"}, {"py/tuple": ["true"]}]},
        {"__class__": "os.system", "__reduce__": "cos\nsystem\n(S'true'\ntR."},
        {"$object": ["antigravity", "Antigravity"]},
    ]
    sys.modules.pop("antigravity", None)
    for recipe in recipes:
        await store.save("t", {"r": recipe, **recipe})
        assert_same(await other.load("t"), {"r": recipe, **recipe})
    assert "antigravity" not in sys.modules


NEWER = {"payload": (rb"^\d ", b"9 "), "block": (rb"^(\d+) \d ", rb"\1 9 ")}


@pytest.mark.parametrize("what", list(NEWER))
async def test_case_10_what_a_newer_release_wrote_says_so(store, open_store, place, what):
    pattern, newer = NEWER[what]
    document = {"messages": [message(i) for i in range(3)]}
    await store.save("t", document, "old")
    await store.save("t", {"messages": [message("other")] * 2}, "new")
    place.damage("new", lambda data: re.sub(pattern, newer, data, count=1), what)
    reader = open_store()
    with pytest.raises(UnsupportedFormatError, match="format 9") as caught:
        await reader.load("t")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "new")
    assert await reader.list_checkpoints("t") == ["new", "old"]
    assert await reader.load("t", "old") == document
    # Somebody with an older release goes on, beside it.
    await reader.save("t", document)
    assert await reader.load("t") == document


def half(data):
    return data[: len(data) // 2]


DAMAGES = {
    "null": lambda _: b"null",
    "half of it": half,
    "nothing": lambda _: b"",
    "one bit": lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
    "something else": lambda data: b'{"messages": []}',
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("what", ["payload", "block"])
async def test_case_11_a_damaged_row_is_neither_hidden_nor_contagious(store, open_store, place, what):
    for name, change in DAMAGES.items():
        documents = {
            f"{name} {i}": {"messages": [message(f"{name}{i}")] * 2, "i": i, "pad": "x" * 200} for i in range(3)
        }
        for checkpoint_id, document in documents.items():
            await store.save(name, document, checkpoint_id, {"i": document["i"]})
        first, middle, newest = documents
        place.damage(middle, change, what)
        reader = open_store()
        with pytest.raises(CorruptCheckpointError) as caught:
            await reader.load(name, middle)
        assert (caught.value.thread_id, caught.value.checkpoint_id) == (name, middle)
        assert await reader.load(name) == documents[newest]
        assert await reader.load(name, first) == documents[first]
        place.damage(newest, change, what)
        with pytest.raises(CorruptCheckpointError) as caught:
            await reader.load(name)
        assert (caught.value.thread_id, caught.value.checkpoint_id) == (name, newest)
        assert await reader.list_checkpoints(name) == [newest, middle, first]
        assert [i.metadata for i in await reader.history(name)] == [{"i": 2}, {"i": 1}, {"i": 0}]
        assert name in await reader.list_threads()
        # The next save stands by itself, and destroys nothing.
        await reader.save(name, documents[newest], "again")
        assert await reader.load(name) == documents[newest]
        assert await reader.load(name, first) == documents[first]
        # What is damaged can be thrown away.
        assert await reader.delete(name, middle) is True
        assert await reader.load(name) == documents[newest]
        assert await reader.delete(name) is True
    assert place.count() == 0


async def test_case_11_who_knows_the_thread_is_not_deceived(store, place):
    """The writer's own memory of what it saved must not build upon what is damaged now without anybody noticing."""
    messages = [message(i) for i in range(5)]
    await store.save("t", {"messages": messages[:4]}, "a")
    place.damage("a", half, "block")
    await store.save("t", {"messages": messages}, "b")
    try:
        assert await store.load("t") == {"messages": messages}
    except CorruptCheckpointError as e:
        assert e.checkpoint_id == "b"


async def test_case_11_damage_does_not_spread_to_the_blocks_that_are_joined_with_the_damaged_one(
    store, open_store, place
):
    document = {"messages": []}
    for i in range(1, 102):
        document["messages"] += [message(i), message(-i)]
        await store.save("t", document, f"c{i}")
        if i == 30:
            place.damage("c30", half, "block")
    reader = open_store()
    for i in range(1, 30):
        assert await reader.load("t", f"c{i}") == {"messages": document["messages"][: 2 * i]}
    for i in (30, 50, 101):
        if i == 30 or store.capabilities.incremental:
            with pytest.raises(CorruptCheckpointError):
                await reader.load("t", f"c{i}")
        else:
            assert await reader.load("t", f"c{i}") == {"messages": document["messages"][: 2 * i]}


@pytest.mark.parametrize("what", ["payload", "block"])
async def test_case_11_a_damaged_row_does_not_stop_a_vacuum(open_store, clock, place, what):
    store = open_store(clock=clock)
    for name in "abc":
        for i in range(3):
            await store.save(
                name, {"of": f"{name}{i}", "l": [message(f"{name} {i} {j}") for j in range(2)]}, f"{name}{i}"
            )
    place.damage("b1", half, what)
    clock.advance(days=100)
    assert await store.vacuum() == 6
    for name in "abc":
        assert await store.list_checkpoints(name) == [f"{name}2"]
        assert await store.load(name) == {"of": f"{name}2", "l": [message(f"{name} 2 {j}") for j in range(2)]}


@only("file")
async def test_case_11_whole_files_damaged(store, open_store, place):
    await store.save("t", {"n": 1}, "old")
    await store.save("t", {"n": 2}, "new", {"k": 1})
    path, _ = place._find("new")
    for damage in (b"null", half(path.read_bytes()), b""):
        path.write_bytes(damage)
        reader = open_store()
        for arguments in (("t",), ("t", "new")):
            with pytest.raises(CorruptCheckpointError) as caught:
                await reader.load(*arguments)
            assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "new")
        assert await reader.list_checkpoints("t") == ["new", "old"]
        assert await reader.list_threads() == ["t"]
        assert await reader.load("t", "old") == {"n": 1}


@only("sqlite", "postgresql", "mariadb", "oracle-standin")
async def test_case_13_payloads_are_binary_columns(open_store, place):
    class NoText:
        name = "notext"
        bound = False

        def encode(self, data, thread):
            return b"\xff\xfe\x00\x80" + data[::-1]

        def decode(self, data, thread):
            return data[4:][::-1]

    store = open_store(codec=NoText())
    document = {"messages": [message(i) for i in range(3)]}
    await store.save("t", document, "c", {"k": 1})
    await store.put_records("t", "s", {"k": document})
    assert await store.load("t") == document
    assert await store.records("t", "s") == {"k": document}
    for stored in place.payloads("c"):
        with pytest.raises(UnicodeDecodeError):
            stored.decode()
