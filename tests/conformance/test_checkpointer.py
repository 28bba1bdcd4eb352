"""The second face: the interface of the SDK's checkpointers, and states of any pydantic model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cases import assert_same
from pydantic import BaseModel, ConfigDict, Field, computed_field

from locus_store.core.errors import CheckpointError, SerializationError, UnsupportedOperationError
from locus_store.core.messages import Message, Role, ToolCall, ToolResult
from locus_store.core.state import AgentState, ReasoningStep, ToolExecution

# ------------------------------------------------------------------------------------------------ the SDK's interface

SIGNATURES = {
    "save": ["state", "thread_id", ("checkpoint_id", None), ("metadata", None)],
    "load": ["thread_id", ("checkpoint_id", None)],
    "list_checkpoints": ["thread_id", ("limit", 10)],
    "delete": ["thread_id", ("checkpoint_id", None)],
    "exists": ["thread_id", ("checkpoint_id", None)],
    "close": [],
    "search": ["query", ("limit", 10)],
    "query_by_metadata": ["key", "value", ("limit", 100)],
    "get_metadata": ["thread_id", ("checkpoint_id", None)],
    "vacuum": [("older_than_days", 30)],
    "copy_thread": ["source_thread_id", "dest_thread_id"],
    "list_with_metadata": [("limit", 100)],
}


@pytest.mark.parametrize("name", list(SIGNATURES))
def test_a_call_as_the_sdk_makes_it_fits(checkpointer, name):
    method = getattr(checkpointer, name)
    assert inspect.iscoroutinefunction(method)
    parameters = list(inspect.signature(method).parameters.values())
    for parameter, expected in zip(parameters, SIGNATURES[name], strict=False):
        wanted, default = expected if isinstance(expected, tuple) else (expected, None)
        assert parameter.name == wanted
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if isinstance(expected, tuple):
            assert parameter.default == default
    for parameter in parameters[len(SIGNATURES[name]) :]:
        assert parameter.default is not parameter.empty


async def test_its_life_in_the_hands_of_the_sdks_agent(checkpointer):
    """Every iteration saved under its own id, those deleted at the end of the turn, closed after every run."""
    state = AgentState(agent_id="a")
    for turn in range(3):
        state = state.with_message(Message.user(f"question {turn}"))
        steps = []
        for i in range(4):
            state = state.with_message(Message.assistant(f"step {turn}.{i} " * 30)).next_iteration()
            steps.append(await checkpointer.save(state, "t", checkpoint_id=f"iter_{turn}_{i}"))
        assert checkpointer.deletes_single_checkpoints is True
        for step in steps:
            assert await checkpointer.delete("t", step) is (step in steps)
            if step == steps[-2]:
                await checkpointer.save(state, "t", checkpoint_id=f"turn_{turn}", metadata={"turn": turn})
        assert await checkpointer.load("t") == state
        await checkpointer.close()
    assert await checkpointer.list_checkpoints("t") == ["turn_2", "turn_1", "turn_0"]
    assert len((await checkpointer.load("t", "turn_0")).messages) == 5
    assert await checkpointer.list_threads(limit=100, pattern="*") == ["t"]
    assert [r["metadata"] for r in await checkpointer.query_by_metadata("turn", 2, limit=100)] == [{"turn": 2}]


async def test_what_is_missing(checkpointer):
    assert await checkpointer.load("nobody") is None
    assert await checkpointer.load("nobody", "c") is None
    assert await checkpointer.list_checkpoints("nobody") == []
    assert await checkpointer.delete("nobody") is False
    assert await checkpointer.exists("nobody") is False
    assert await checkpointer.get_metadata("nobody") is None
    assert await checkpointer.copy_thread("nobody", "t") is False


async def test_searching_says_that_it_cannot(checkpointer):
    if checkpointer.capabilities.search:
        pytest.skip("it can")
    with pytest.raises(NotImplementedError, match="does not support search"):
        await checkpointer.search("words", limit=5)
    with pytest.raises(UnsupportedOperationError):
        checkpointer._require_capability("search")


async def test_an_id_counts_within_its_thread_only(checkpointer):
    a, b = AgentState(agent_id="a"), AgentState(agent_id="b")
    await checkpointer.save(a, "t1", "same")
    await checkpointer.save(b, "t2", "same")
    assert await checkpointer.load("t1", "same") == a
    assert await checkpointer.load("t2", "same") == b


async def test_the_other_options_of_a_save(checkpointer):
    state = AgentState(agent_id="a")
    await checkpointer.save(state, "t", "c", expected_version=0)
    with pytest.raises(CheckpointError):
        await checkpointer.save(state, "t", "c", if_exists="error")
    await checkpointer.save(state, "t", "d", parent="c", expected_version=1)
    assert [i.parent for i in await checkpointer.history("t")] == ["c", None]


# ------------------------------------------------------------------------------------------------------- agent states


def full_state() -> AgentState:
    newer = {"newer": {"nested": [1, {"deep": None}]}}
    call = ToolCall(name="search", arguments={"q": "é", "n": 1}, **newer)
    execution = ToolExecution(
        tool_name="search", tool_call_id=call.id, arguments={}, result="x", duration_ms=1.5, **newer
    )
    step = ReasoningStep(iteration=1, thought="look", tool_calls=[call], tool_results=[execution], **newer)
    return (
        AgentState(
            agent_id="a",
            messages=[Message(role="user", content="hi", metadata={"k": [1]}, **newer)],
            tool_loop_warnings=[("signature", 2)],
            **newer,
        )
        .with_message(Message.assistant(tool_calls=[call]))
        .with_message(Message.tool(ToolResult(tool_call_id=call.id, name="search", content="found")))
        .with_tool_execution(execution)
        .with_reasoning_step(step)
        .with_confidence(0.5)
        .with_error("slow")
        .with_metadata("k", {"v": 1})
        .with_token_usage(10, 5, reported_cost_usd=0.25)
        .next_iteration()
    )


async def test_a_state_comes_back_equal_with_what_a_newer_release_added(checkpointer, other):
    state = full_state()
    await checkpointer.save(state, "t")
    for face in (checkpointer, other.checkpointer()):
        found = await face.load("t")
        assert found == state
        assert type(found) is AgentState
        assert found.model_extra == {"newer": {"nested": [1, {"deep": None}]}}
        assert found.messages[0].model_extra == found.model_extra
        assert isinstance(found.messages[0].role, Role)
        assert found.started_at == state.started_at
        assert_same(found.model_dump(), state.model_dump())


async def test_every_state_of_a_growing_conversation(checkpointer, other):
    states, state = {}, AgentState(agent_id="a")
    for i in range(30):
        state = state.with_message(Message.user(f"question {i} " * 20)).next_iteration()
        state = state.with_tool_execution(ToolExecution(tool_name="t", tool_call_id=str(i), arguments={"i": i}))
        state = state.with_confidence(i / 30).with_error(f"error {i}")
        if i == 20:
            state = state.model_copy(update={"messages": state.messages[-3:]})
        states[await checkpointer.save(state, "t")] = state
    for name, expected in states.items():
        assert await checkpointer.load("t", name) == expected
        assert await other.checkpointer().load("t", name) == expected


async def test_going_on_from_what_was_loaded(checkpointer, other):
    state = full_state()
    await checkpointer.save(state, "t")
    for i in range(5):
        face = (checkpointer, other.checkpointer())[i % 2]
        state = (await face.load("t")).with_message(Message.user(f"more {i}" * 50))
        await face.save(state, "t")
    assert await checkpointer.load("t") == state
    assert len(state.messages) == 8


async def test_a_message_of_a_class_of_ones_own_is_refused_by_name(checkpointer):
    """It would come back as a plain message."""

    class Special(Message):
        extra_field: str = "x"

    state = AgentState(agent_id="a", messages=[Message.user("hi"), Special(role="user", content="hi")])
    with pytest.raises(SerializationError) as caught:
        await checkpointer.save(state, "t")
    assert caught.value.path.startswith("$.messages[")
    assert await checkpointer.exists("t") is False


async def test_a_class_of_the_sdk_comes_back_as_that_class(store):
    """The SDK's own state has our fields, is frozen, and is asked for by its class."""

    class Theirs(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
        run_id: str = "r"
        messages: tuple[Message, ...] = ()
        confidence: float = 0.0
        metadata: dict[str, Any] = Field(default_factory=dict)

    face = store.checkpointer(Theirs)
    state = Theirs(messages=(Message.user("hi"),), metadata={"k": (1, 2)})
    await face.save(state, "t")
    found = await face.load("t")
    assert found == state
    assert type(found) is Theirs
    assert_same(found.metadata, {"k": (1, 2)})


# ---------------------------------------------------------------------------------------------------------- any model


class Colour(Enum):
    RED = "red"


class Part(BaseModel):
    name: str
    weight: Decimal = Decimal("1.10")
    children: list[Part] = []


class Everything(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")

    number: int = 2**80
    ratio: float = float("inf")
    blob: bytes = b"\x00\xff"
    text: str = "a\x00b"
    when: datetime = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    long: timedelta = timedelta(microseconds=-1)
    unique: UUID = UUID(int=7)
    colour: Colour = Colour.RED
    path: Path = Path("/tmp")
    parts: list[Part] = Field(default_factory=lambda: [Part(name="a", children=[Part(name="b")])])
    by_name: dict[str, Part] = Field(default_factory=lambda: {"x": Part(name="x")})
    pair: tuple[int, Part] = (1, Part(name="p"))
    tags: set[str] = {"a", "b"}
    frozen: frozenset[int] = frozenset({1})
    anything: Any = (1, {2: [None]})
    maybe: Part | None = None
    sequence: Sequence[int] = [1, 2]

    @computed_field
    @property
    def total(self) -> int:
        return len(self.parts)


class Renamed(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    inner_name: str = Field(alias="outerName")
    hidden: str = Field(default="default", exclude=True)


class Keeping(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


async def test_any_model_comes_back_equal(store, other):
    face = store.checkpointer(Everything)
    state = Everything(parts=[Part(name=f"part {i}" * 20, weight=Decimal(i)) for i in range(10)])
    await face.save(state, "t")
    await face.save(state.model_copy(update={"parts": [*state.parts, Part(name="new")]}), "t")
    found = await other.checkpointer(Everything).load("t")
    assert len(found.parts) == 11
    assert found.model_copy(update={"parts": state.parts}) == state
    assert_same(found.anything, (1, {2: [None]}))
    assert found.colour is Colour.RED
    assert isinstance(found.path, Path)


async def test_aliases_and_excluded_fields(store):
    face = store.checkpointer(Renamed)
    await face.save(Renamed(outerName="x", hidden="not stored"), "t")
    found = await face.load("t")
    assert (found.inner_name, found.hidden) == ("x", "default")
    assert await store.load("t") == {"inner_name": "x"}


async def test_unknown_keys_survive_where_the_model_keeps_them(store):
    await store.save("t", {"a": 2, "later": [1, (2,)]})
    face = store.checkpointer(Keeping)
    found = await face.load("t")
    await face.save(found, "t")
    assert_same(await store.load("t"), {"a": 2, "later": [1, (2,)]})


async def test_a_model_that_changes_is_saved_as_it_is_now(store, other):
    """Models need not be frozen, and the same objects are saved again and again."""

    class Note(BaseModel):
        text: str

    class Book(BaseModel):
        notes: list[Note] = []
        by_key: dict[str, list[Note]] = {}

    face = store.checkpointer(Book)
    book = Book(notes=[Note(text=f"{i}" * 200) for i in range(5)], by_key={"k": [Note(text="x" * 300)]})
    expected = {}
    for i in range(6):
        book.notes[i % 5].text = f"changed {i}" * 20
        book.by_key["k"][0].text += str(i)
        if i == 3:
            book.notes.reverse()
        expected[str(i)] = book.model_copy(deep=True)
        await face.save(book, "t", str(i))
    for name, wanted in expected.items():
        assert await other.checkpointer(Book).load("t", name) == wanted


async def test_what_would_not_come_back_is_refused_by_name(store, place):
    class Loose(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        value: Any = None
        values: list[Any] = []

    face = store.checkpointer(Loose)
    for bad in (Colour.RED, Part(name="a"), Path("/x"), object(), len):
        with pytest.raises(SerializationError) as caught:
            await face.save(Loose(value=bad), "t")
        assert caught.value.path.startswith("$.value")
        with pytest.raises(SerializationError) as caught:
            await face.save(Loose(values=[1, {"x": bad}]), "t")
        assert caught.value.path.startswith("$.values")
    assert place.count() == 0
    await face.save(Loose(value=1), "t")
    assert await face.load("t") == Loose(value=1)


async def test_a_document_that_does_not_fit_says_so_and_is_to_be_had_as_plain_data(store):
    await store.save("t", {"number": "no number"}, "c")
    with pytest.raises(CheckpointError, match="does not fit Everything") as caught:
        await store.checkpointer(Everything).load("t")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "c")
    assert await store.load("t") == {"number": "no number"}


async def test_a_model_whose_class_is_gone_is_plain_data(store):
    class Gone(BaseModel):
        a: int = 1
        inner: Part = Part(name="p")

    await store.checkpointer(Gone).save(Gone(), "t")
    assert await store.load("t") == {"a": 1, "inner": {"name": "p", "weight": Decimal("1.10"), "children": []}}


async def test_an_unchanged_message_is_stored_once(checkpointer, place):
    state = AgentState(agent_id="a")
    for i in range(10):
        state = state.with_message(Message.user(f"{i}" * 3000))
        await checkpointer.save(state, "t")
    assert place.size() < 10 * 3000 + 10 * 3000
