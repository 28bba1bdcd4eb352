"""What was handed over is the store's, and what was handed out is the caller's: neither changes the other."""

from __future__ import annotations

import asyncio
import copy

from cases import assert_same
from histories import message


def document():
    return {"items": [message(i) for i in range(3)], "deep": {"a": [{"b": [1]}]}, "s": {1}, "t": ([1],)}


def change(found):
    found["items"].append("more")
    found["items"][0]["content"] = "changed"
    found["deep"]["a"][0]["b"].append(2)
    found["s"].add(2)
    found["t"][0].append(2)
    found["new"] = True
    del found["items"][1]


async def test_changing_a_document_after_saving_it(store, other):
    given = document()
    await store.save("t", given)
    change(given)
    assert_same(await store.load("t"), document())
    assert_same(await other.load("t"), document())


async def test_changing_a_document_after_loading_it(store, other):
    await store.save("t", document())
    for who in (store, other, store):
        change(await who.load("t"))
    assert_same(await store.load("t"), document())
    assert_same(await other.load("t"), document())


async def test_saving_changes_nothing_of_what_was_given(store):
    given, metadata = document(), {"l": [1], "d": {"x": None}}
    await store.save("t", given, metadata=metadata)
    assert_same(given, document())
    assert_same(metadata, {"l": [1], "d": {"x": None}})


async def test_changing_in_place_between_saves_gives_both(store, other):
    """The list that is saved again and again is the same object, changed in ways that leave its length alone."""
    given = document()
    expected = {}
    for i in range(8):
        given["items"][i % 3]["content"] = f"changed {i}" * 30
        given["deep"]["a"][0]["b"][0] = float(i) if i % 2 else i
        if i == 4:
            given["items"].reverse()
        expected[str(i)] = copy.deepcopy(given)
        await store.save("t", given, str(i))
    for name, wanted in expected.items():
        assert_same(await store.load("t", name), wanted)
        assert_same(await other.load("t", name), wanted)


async def test_changing_in_place_to_what_is_equal_and_yet_not_the_same(store, other):
    pad = [message(1), message(2)]
    given = {"items": [*pad, {"f": 0.0, "n": 1, "deep": [{"b": True}]}, 0.0, 1]}
    expected = {}
    for i, step in enumerate(
        (
            lambda: None,
            lambda: given["items"][2].update(f=-0.0),
            lambda: given["items"][2].update(n=1.0),
            lambda: given["items"][2]["deep"][0].update(b=1),
            lambda: given["items"].__setitem__(3, -0.0),
            lambda: given["items"].__setitem__(4, True),
            lambda: given["items"][2].update(f=given["items"][2].pop("f")),
            lambda: given["items"][2].update(same=None, as_this=None),
            lambda: given["items"][2].update(same=given["items"][2].pop("same")),
            lambda: given["items"][2].update(deep=tuple(given["items"][2]["deep"])),
        )
    ):
        step()
        expected[str(i)] = copy.deepcopy(given)
        await store.save("t", given, str(i))
    for name, wanted in expected.items():
        assert_same(await other.load("t", name), wanted, f"{name}: $")


async def test_saving_what_was_loaded_and_changed(store, other):
    await store.save("t", document())
    found = await store.load("t")
    change(found)
    expected = copy.deepcopy(found)
    await store.save("t", found)
    found["items"].clear()
    assert_same(await other.load("t"), expected)
    assert_same(await store.load("t"), expected)


async def test_changing_while_the_save_is_under_way(store, other):
    """What is stored is what the document was at some moment, and later saves are right whatever it was."""
    given = {"items": [message(i) for i in range(20)]}
    await store.save("t", given)
    for i in range(20, 30):
        given["items"].append(message(i))
        wanted = copy.deepcopy(given)
        task = asyncio.ensure_future(store.save("t", given, str(i)))
        await asyncio.sleep(0)
        given["items"][3]["content"] = f"changed {i}" * 20
        given["items"][-1] = message(f"replaced {i}")
        await task
        found = await other.load("t")
        assert found in (wanted, given)
        await store.save("t", given)
        assert_same(await other.load("t"), given)


async def test_changing_metadata(store):
    given = {"l": [1], "d": {"x": [1]}}
    await store.save("t", {}, "c", given)
    given["l"].append(2)
    for get in (
        lambda: store.history("t"),
        lambda: store.list_with_metadata(),
        lambda: store.query_by_metadata({}),
        lambda: store.get_metadata("t"),
    ):
        for _ in range(2):
            found = await get()
            found = found[0] if isinstance(found, list) else found
            metadata = found["metadata"] if isinstance(found, dict) else found.metadata
            assert_same(metadata, {"l": [1], "d": {"x": [1]}})
            metadata["l"].append(3)
            metadata["d"]["x"].clear()


async def test_changing_lists_of_ids(store):
    await store.save("t", {}, "c")
    (await store.list_checkpoints("t")).clear()
    (await store.list_threads()).clear()
    assert await store.list_checkpoints("t") == ["c"]
    assert await store.list_threads() == ["t"]


async def test_documents_that_share_parts(store):
    shared = [message(1), message(2)]
    await store.save("t", {"a": shared, "b": shared})
    found = await store.load("t")
    assert_same(found, {"a": shared, "b": shared})
    found["a"][0]["content"] = "changed"
    assert found["b"][0] == message(1)


async def test_states_are_the_callers_own(checkpointer):
    state = checkpointer.state_type(agent_id="a", metadata={"k": [1]})
    await checkpointer.save(state, "t")
    state.metadata["k"].append(2)
    found = await checkpointer.load("t")
    assert found.metadata == {"k": [1]}
    found.metadata["k"].append(3)
    assert (await checkpointer.load("t")).metadata == {"k": [1]}
    await checkpointer.save(state, "t")
    assert (await checkpointer.load("t")).metadata == {"k": [1, 2]}
