"""The two faces: each, handed what the other one expects, says so at once and names the remedy."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.messages import Message
from locus_store.core.state import AgentState


class Note(BaseModel):
    text: str = ""


async def test_a_backend_handed_a_state_names_the_checkpointer(store, place):
    for call in (
        lambda: store.save(AgentState(), "t"),
        lambda: store.save(Note(), "t"),
        lambda: store.save("t", AgentState()),
        lambda: store.save("t", Note()),
    ):
        with pytest.raises(TypeError, match=r"backend\.checkpointer\("):
            await call()
    assert place.count() == 0


async def test_a_checkpointer_handed_a_document_names_the_backend(checkpointer, place):
    for call in (
        lambda: checkpointer.save("t", {"a": 1}),
        lambda: checkpointer.save({"a": 1}, "t"),
        lambda: checkpointer.save("t", AgentState()),
        lambda: checkpointer.save(None, "t"),
    ):
        with pytest.raises(TypeError, match=r"checkpointer\.backend\.save\("):
            await call()
    assert place.count() == 0


async def test_a_class_in_place_of_a_state_is_refused(checkpointer):
    with pytest.raises(TypeError, match="must be a pydantic model"):
        await checkpointer.save(AgentState, "t")


@pytest.mark.parametrize("wrong", [dict, "AgentState", None, AgentState()])
def test_a_checkpointer_is_for_a_type_of_state(store, wrong):
    with pytest.raises(TypeError, match="pydantic model"):
        store.checkpointer(wrong)


def test_a_checkpointer_is_over_a_backend(checkpointer):
    for wrong in (None, "sqlite://", {}):
        with pytest.raises(TypeError, match="over a backend"):
            Checkpointer(wrong, AgentState)


async def test_both_see_the_same(store, checkpointer):
    state = AgentState(agent_id="a").with_message(Message.user("hi"))
    await checkpointer.save(state, "t", "c", {"k": 1})
    document = await store.load("t")
    assert document["agent_id"] == "a"
    assert [m["content"] for m in document["messages"]] == ["hi"]
    document["agent_id"] = "b"
    await store.save("t", document)
    assert await checkpointer.load("t") == state.model_copy(update={"agent_id": "b"})
    assert await checkpointer.load("t", "c") == state
    for face in (store, checkpointer):
        assert len(await face.list_checkpoints("t")) == 2
        assert [r["metadata"] for r in await face.query_by_metadata({"k": 1}, versions="all")] == [{"k": 1}]
        assert [i.version for i in await face.history("t")] == [2, 1]


def test_everything_but_saving_and_loading_is_the_same_method():
    different = {n for n in vars(Backend) | vars(Checkpointer) if not n.startswith("_")}
    both = {n for n in dir(Backend) if not n.startswith("_")} & {n for n in dir(Checkpointer) if not n.startswith("_")}
    assert different & both == {"save", "load", "tenant", "bind"}
    assert {n for n in dir(Backend) if not n.startswith("_")} - both == {"checkpointer"}


def test_the_way_back(store, checkpointer):
    assert checkpointer.backend is store
    assert checkpointer.state_type is AgentState
    assert store.checkpointer(Note).state_type is Note
