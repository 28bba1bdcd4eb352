"""Ids: every one that is allowed names something of its own, every other one is refused before anything happens."""

from __future__ import annotations

import pytest
from cases import BAD_IDS, IDS


async def test_every_allowed_id_is_a_thread_of_its_own(store, other, place):
    for i, name in enumerate(IDS):
        await store.save(name, {"i": i}, metadata={"i": i})
    assert await other.list_threads(limit=None) == IDS[::-1]
    for i, name in enumerate(IDS):
        assert await other.load(name) == {"i": i}
        assert await other.exists(name) is True
        assert (await other.get_metadata(name))["metadata"] == {"i": i}
        assert [r.metadata for r in await other.history(name)] == [{"i": i}]
        assert [r["thread_id"] for r in await other.query_by_metadata({}, thread_id=name)] == [name]
        assert await other.list_threads(pattern=escaped(name)) == [name]
    for i, name in enumerate(IDS):
        assert await other.delete(name) is True
        assert await other.list_threads(limit=None) == IDS[:i:-1]
    assert place.count() == 0


def escaped(name):
    for special in ("\\", "*", "%", "?"):
        name = name.replace(special, "\\" + special)
    return name


async def test_every_allowed_id_is_a_checkpoint_of_its_own(store, other):
    for i, name in enumerate(IDS):
        assert await store.save("t", {"i": i}, name) == name
    assert await other.list_checkpoints("t", limit=None) == IDS[::-1]
    history = await other.history("t", limit=None)
    assert [i.parent for i in history] == [*IDS[-2::-1], None]
    for i, name in enumerate(IDS):
        assert await other.load("t", name) == {"i": i}
        assert await other.exists("t", name) is True
    assert [i.checkpoint_id for i in await other.history("t", 2, before=IDS[10])] == [IDS[9], IDS[8]]
    await store.delete("t", IDS[1::2])
    assert await other.list_checkpoints("t", limit=None) == IDS[::2][::-1]


async def test_every_allowed_id_can_be_copied_onto(store, other):
    await store.save("source", {"n": 1}, "c")
    for name in IDS:
        assert await store.copy_thread("source", name) is True
    for name in IDS:
        assert await other.load(name, "c") == {"n": 1}


CALLS = {
    "save": lambda s, i: s.save(i, {}),
    "save (checkpoint)": lambda s, i: s.save("t", {}, i),
    "save (parent)": lambda s, i: s.save("t", {}, parent=i),
    "load": lambda s, i: s.load(i),
    "load (checkpoint)": lambda s, i: s.load("t", i),
    "list_checkpoints": lambda s, i: s.list_checkpoints(i),
    "history": lambda s, i: s.history(i),
    "exists": lambda s, i: s.exists(i),
    "exists (checkpoint)": lambda s, i: s.exists("t", i),
    "delete": lambda s, i: s.delete(i),
    "delete (checkpoints)": lambda s, i: s.delete("t", ["c", i]),
    "copy_thread (source)": lambda s, i: s.copy_thread(i, "u"),
    "copy_thread (destination)": lambda s, i: s.copy_thread("t", i),
    "copy_thread (end)": lambda s, i: s.copy_thread("t", "u", upto=i),
    "get_metadata": lambda s, i: s.get_metadata(i),
    "get_metadata (checkpoint)": lambda s, i: s.get_metadata("t", i),
    "query_by_metadata": lambda s, i: s.query_by_metadata({}, thread_id=i),
    "put_records": lambda s, i: s.put_records(i, "s", {"k": 1}),
    "put_records (scope)": lambda s, i: s.put_records("t", i, {"k": 1}),
    "put_records (key)": lambda s, i: s.put_records("t", "s", {i: 1} if i.__hash__ else {str(i) + "\0": 1}),
    "records": lambda s, i: s.records(i, "s"),
    "records (scope)": lambda s, i: s.records("t", i),
    "delete_records": lambda s, i: s.delete_records(i),
    "delete_records (scope)": lambda s, i: s.delete_records("t", i),
    "tenant": lambda s, i: s.tenant(i).list_threads(),
}


async def test_every_other_id_is_refused_before_anything_happens(store, place):
    await store.save("t", {"n": 1}, "c", {"k": 1})
    before = place.count()
    for call, function in CALLS.items():
        for why, (bad, error) in BAD_IDS.items():
            # A key that is no text and no key either is tried as a text with a NUL.
            expected = (TypeError, ValueError) if "(key)" in call else error
            try:
                await function(store, bad)
            except expected as caught:
                assert type(caught) in (TypeError, ValueError), (call, why)
            else:
                pytest.fail(f"{call} took an id that is {why}")
    assert place.count() == before
    assert await store.list_threads() == ["t"]


async def test_a_subclass_of_str_is_taken_for_its_text(store, other):
    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

        def __eq__(self, other: object) -> bool:
            return False

        def __hash__(self) -> int:
            return 1

    assert type(await store.save(Name("t"), {"n": 1}, Name("c"))) is str
    assert await other.load("t", "c") == {"n": 1}
    assert await store.load(Name("t"), Name("c")) == {"n": 1}
    assert await store.delete(Name("t"), [Name("c")]) is True
