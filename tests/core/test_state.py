"""The agent's state: fields, functional updates, counting, and what survives a checkpoint."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from locus_store.core.messages import Message, ToolCall, ToolResult
from locus_store.core.state import AgentState, ReasoningStep, ToolExecution

DEFAULTS = {
    "agent_id": None,
    "messages": (),
    "iteration": 0,
    "max_iterations": 20,
    "tool_executions": (),
    "reasoning_steps": (),
    "confidence": 0.0,
    "confidence_threshold": 0.85,
    "confidence_history": (),
    "tool_history": (),
    "tool_loop_threshold": 3,
    "tool_loop_read_only_threshold": None,
    "tool_loop_read_only_tools": frozenset(
        {
            "cat",
            "find_files",
            "glob",
            "grep",
            "list_dir",
            "list_directory",
            "list_files",
            "ls",
            "read",
            "read_file",
            "search_files",
            "todo_read",
            "view",
        }
    ),
    "tool_loop_warnings": (),
    "terminal_tools": frozenset({"submit", "done", "finish", "complete"}),
    "total_tokens_used": 0,
    "prompt_tokens_used": 0,
    "completion_tokens_used": 0,
    "cache_creation_tokens_used": 0,
    "cache_read_tokens_used": 0,
    "cached_tokens_used": 0,
    "cache_write_tokens_used": 0,
    "reported_cost_usd": 0.0,
    "reported_cost_calls": 0,
    "token_budget": None,
    "input_price_per_mtok": None,
    "output_price_per_mtok": None,
    "cost_usd_used": 0.0,
    "cost_budget_usd": None,
    "completion_mode": "auto",
    "errors": (),
    "provider_state": None,
    "metadata": {},
}
NEWER = {"newer": {"nested": [1, {"deep": None}]}}


def full_state() -> AgentState:
    """A state that has something in every kind of field, and an unknown key at every level."""
    call = ToolCall(name="search", arguments={"q": "é"}, **NEWER)
    execution = ToolExecution(
        tool_name="search", tool_call_id=call.id, arguments={"q": "é"}, result="found", duration_ms=1.5, **NEWER
    )
    step = ReasoningStep(iteration=1, thought="look", tool_calls=[call], tool_results=[execution], **NEWER)
    state = AgentState(
        agent_id="a", messages=[Message(role="user", content="hi", **NEWER)], tool_loop_warnings=[("sig", 2)], **NEWER
    )
    return (
        state.with_message(Message.assistant(tool_calls=[call]))
        .with_message(Message.tool(ToolResult(tool_call_id=call.id, name="search", content="found")))
        .with_tool_execution(execution)
        .with_reasoning_step(step)
        .with_confidence(0.5)
        .with_error("slow")
        .with_metadata("k", {"v": 1})
        .with_provider_state({"token": "t"})
        .with_token_usage(10, 5, reported_cost_usd=0.25)
        .next_iteration()
    )


EXECUTION = ToolExecution(tool_name="search", tool_call_id="c", arguments={})
STEP = ReasoningStep(iteration=1)
UPDATES: dict[str, Callable[[AgentState], AgentState]] = {
    "with_message": lambda state: state.with_message(Message.user("more")),
    "with_messages": lambda state: state.with_messages([Message.user("more"), Message.user("yet more")]),
    "with_iteration": lambda state: state.with_iteration(7),
    "next_iteration": lambda state: state.next_iteration(),
    "with_tool_execution": lambda state: state.with_tool_execution(EXECUTION),
    "with_reasoning_step": lambda state: state.with_reasoning_step(STEP),
    "with_confidence": lambda state: state.with_confidence(0.3),
    "adjust_confidence": lambda state: state.adjust_confidence(0.1),
    "with_error": lambda state: state.with_error("again"),
    "with_metadata": lambda state: state.with_metadata("other", 1),
    "with_token_usage": lambda state: state.with_token_usage(1, 1),
    "with_provider_state": lambda state: state.with_provider_state(None),
}
every_update = pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())


def test_fields_and_defaults() -> None:
    state = AgentState()
    own = {"run_id", "started_at", "updated_at"}
    assert state.model_dump(exclude=own) == DEFAULTS
    assert set(AgentState.model_fields) == set(DEFAULTS) | own
    assert len(state.run_id) == 32
    assert state.run_id != AgentState().run_id
    assert state.started_at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - state.updated_at) < timedelta(minutes=1)


def test_parts_and_their_defaults() -> None:
    assert EXECUTION.model_dump(exclude={"timestamp"}) == {
        "tool_name": "search",
        "tool_call_id": "c",
        "arguments": {},
        "result": None,
        "error": None,
        "duration_ms": None,
        "idempotent_cache_hit": False,
    }
    assert EXECUTION.success
    assert not EXECUTION.model_copy(update={"error": "broken"}).success
    assert STEP.model_dump(exclude={"timestamp"}) == {
        "iteration": 1,
        "thought": None,
        "tool_calls": [],
        "tool_results": [],
        "reflection": None,
        "confidence_delta": 0.0,
    }
    assert STEP.timestamp.utcoffset() == timedelta(0)


def test_collections_are_immutable_whatever_is_given() -> None:
    state = AgentState(
        messages=[Message.user("a")],
        confidence_history=[0.5],
        errors=["e"],
        terminal_tools=["x"],
        tool_loop_warnings=[["s", 1]],
    )
    assert type(state.messages) is tuple
    assert state.confidence_history == (0.5,)
    assert state.errors == ("e",)
    assert state.terminal_tools == frozenset({"x"})
    assert state.tool_loop_warnings == (("s", 1),)


@pytest.mark.parametrize("record", [AgentState(), EXECUTION, STEP], ids=lambda record: type(record).__name__)
def test_records_are_frozen(record: Any) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        record.timestamp = None
    with pytest.raises(ValidationError, match="frozen"):
        record.iteration = 3


@every_update
def test_updates_leave_the_old_state_alone_and_move_updated_at(update: Callable[[AgentState], AgentState]) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    state = full_state().model_copy(update={"started_at": past, "updated_at": past})
    before = state.model_dump()
    changed = update(state)
    assert state.model_dump() == before
    assert changed is not state
    assert changed.started_at == past
    assert abs(datetime.now(UTC) - changed.updated_at) < timedelta(minutes=1)


@every_update
def test_updates_keep_the_same_objects_and_validate_nothing_again(update: Callable[[AgentState], AgentState]) -> None:
    # Objects made without validation would not pass it, so they show that none took place.
    unchecked = tuple(Message.model_construct(role="nobody", content=number) for number in range(1_000))
    state = AgentState().model_copy(update={"messages": unchecked})
    changed = update(state)
    assert all(new is old for new, old in zip(changed.messages, unchecked, strict=False))
    assert len(changed.messages) >= 1_000


@every_update
def test_updates_keep_unknown_keys(update: Callable[[AgentState], AgentState]) -> None:
    state = full_state()
    changed = update(state)
    assert changed.model_extra == NEWER
    assert changed.messages[0].model_extra == NEWER
    assert AgentState.from_checkpoint(changed.to_checkpoint()) == changed


@every_update
def test_updates_keep_the_class(update: Callable[[AgentState], AgentState]) -> None:
    class Own(AgentState):
        favourite: str = "tea"

    changed = update(Own(favourite="coffee"))
    assert type(changed) is Own
    assert changed.favourite == "coffee"


def test_added_messages_are_the_objects_given() -> None:
    first, second, third = Message.user("a"), Message.assistant("b"), Message.user("c")
    state = AgentState(messages=[first]).with_message(second).with_messages(iter([third]))
    assert all(kept is given for kept, given in zip(state.messages, (first, second, third), strict=True))
    assert state.with_messages([]).messages == state.messages


def test_iterations() -> None:
    assert AgentState().with_iteration(4).next_iteration().iteration == 5


def test_a_tool_execution_is_named_in_the_history() -> None:
    state = AgentState().with_tool_execution(EXECUTION).with_tool_execution(EXECUTION)
    assert state.tool_executions == (EXECUTION, EXECUTION)
    assert state.tool_executions[0] is EXECUTION
    assert state.tool_history == ("search", "search")


def test_reasoning_steps_errors_provider_state() -> None:
    state = AgentState().with_reasoning_step(STEP).with_error("a").with_error("b").with_provider_state({"id": "r"})
    assert state.reasoning_steps[0] is STEP
    assert state.errors == ("a", "b")
    assert state.provider_state == {"id": "r"}
    assert state.with_provider_state(None).provider_state is None


def test_metadata_of_the_old_state_stays() -> None:
    old = AgentState(metadata={"a": 1})
    new = old.with_metadata("a", 2).with_metadata("b", 3)
    assert old.metadata == {"a": 1}
    assert new.metadata == {"a": 2, "b": 3}


def test_confidence_is_clamped_and_recorded() -> None:
    state = AgentState().with_confidence(0.4).with_confidence(1.7).with_confidence(-1).with_confidence(1)
    assert state.confidence == 1.0
    assert state.confidence_history == (0.4, 1.0, 0.0, 1.0)
    assert {type(value) for value in state.confidence_history} == {float}


def test_adjusting_confidence() -> None:
    state = AgentState().with_confidence(0.5)
    assert state.adjust_confidence(0.4).confidence == pytest.approx(0.7)
    assert state.adjust_confidence(0.4, diminishing=False).confidence == pytest.approx(0.9)
    assert state.adjust_confidence(0.4, False).confidence == pytest.approx(0.9)
    assert state.adjust_confidence(-0.4).confidence == pytest.approx(0.1)
    assert state.adjust_confidence(-0.9).confidence == 0.0
    assert state.adjust_confidence(0.9, diminishing=False).confidence == 1.0


def test_confidence_that_is_no_number_is_refused() -> None:
    for change in (AgentState().with_confidence, AgentState().adjust_confidence):
        with pytest.raises(ValueError, match="NaN"):
            change(float("nan"))


def test_token_usage_adds_up() -> None:
    state = AgentState().with_token_usage(100, 20, 7, 3)
    state = state.with_token_usage(10, 2, cached_tokens=4, cache_write_tokens=1, reported_cost_usd=0.5)
    state = state.with_token_usage(0, 0, cache_creation_tokens=1, cache_read_tokens=1, reported_cost_usd=0.0)
    assert (state.prompt_tokens_used, state.completion_tokens_used, state.total_tokens_used) == (110, 22, 132)
    assert (state.cache_creation_tokens_used, state.cache_read_tokens_used) == (8, 4)
    assert (state.cached_tokens_used, state.cache_write_tokens_used) == (4, 1)
    assert (state.reported_cost_usd, state.reported_cost_calls) == (0.5, 2)
    assert state.cost_usd_used == 0.0
    assert state.total_tokens == 132


def test_cost_is_counted_where_prices_are_known() -> None:
    state = AgentState(input_price_per_mtok=2.0, output_price_per_mtok=10.0)
    assert state.priced
    assert state.cost_of(1_000_000, 100_000) == pytest.approx(3.0)
    assert state.cost_of(0, 0, cache_creation_tokens=1_000_000, cache_read_tokens=1_000_000) == pytest.approx(2.7)
    spent = state.with_token_usage(1_000_000, 100_000).with_token_usage(0, 0, 1_000_000, 1_000_000)
    assert spent.cost_usd_used == pytest.approx(5.7)
    half = AgentState(input_price_per_mtok=2.0)
    assert not half.priced
    assert half.cost_of(1, 1) is None


def test_total_tokens_is_estimated_until_some_are_counted() -> None:
    call = ToolCall(name="t", arguments={"q": "xxxx"})  # {'q': 'xxxx'} has 13 characters
    state = AgentState(messages=[Message.user("x" * 41), Message.assistant(tool_calls=[call, call])])
    assert state.total_tokens == 10 + 26 // 4
    assert AgentState().total_tokens == 0
    assert state.with_token_usage(1, 0).total_tokens == 1


def test_last_tool_calls() -> None:
    call = ToolCall(name="t")
    state = AgentState()
    assert state.last_tool_calls == []
    state = state.with_messages([Message.user("go"), Message.assistant(tool_calls=[call])])
    assert state.last_tool_calls == [call]
    state = state.with_message(Message.tool(ToolResult(tool_call_id=call.id, name="t", content="ok")))
    assert state.with_message(Message.assistant("done")).last_tool_calls[0] is call
    assert state.with_message(Message.user("and now?")).last_tool_calls == []


def test_checkpoint_round_trip() -> None:
    state = full_state()
    data = state.to_checkpoint()
    assert data == state.model_dump(mode="json")
    assert AgentState.from_checkpoint(data) == state
    assert AgentState.from_checkpoint(json.loads(json.dumps(data))) == state
    assert AgentState.from_checkpoint(data).to_checkpoint() == data


@pytest.mark.parametrize("mode", ["python", "json"])
def test_unknown_keys_survive_at_every_level(mode: str) -> None:
    dumped = AgentState.model_validate(full_state().model_dump(mode=mode)).model_dump(mode=mode)
    places = [
        dumped,
        dumped["messages"][0],
        dumped["messages"][1]["tool_calls"][0],
        dumped["tool_executions"][0],
        dumped["reasoning_steps"][0],
        dumped["reasoning_steps"][0]["tool_calls"][0],
        dumped["reasoning_steps"][0]["tool_results"][0],
    ]
    assert [place["newer"] for place in places] == [NEWER["newer"]] * len(places)


def test_unknown_keys_named_like_methods_survive_without_hiding_them() -> None:
    names = ("with_message", "total_tokens", "has_tool_loop", "should_terminate", "model_copy", "from_checkpoint")
    data = AgentState().to_checkpoint() | dict.fromkeys(names, "kept")
    state = AgentState.from_checkpoint(data).with_message(Message.user("a"))
    assert state.total_tokens == 0
    assert {name: state.to_checkpoint()[name] for name in names} == dict.fromkeys(names, "kept")


def test_a_checkpoint_of_an_older_release_takes_defaults() -> None:
    data = AgentState(agent_id="old").to_checkpoint()
    for later in ("tool_loop_read_only_tools", "tool_loop_warnings", "cost_usd_used", "cached_tokens_used"):
        del data[later]
    state = AgentState.from_checkpoint(data)
    assert state.agent_id == "old"
    assert state.tool_loop_read_only_tools == DEFAULTS["tool_loop_read_only_tools"]


def test_fields_of_subclasses_are_dumped_and_survive_as_unknown_keys() -> None:
    class Rated(Message):
        stars: int = 0

    state = AgentState().with_message(Rated(role="user", content="a", stars=5))
    again = AgentState.from_checkpoint(state.to_checkpoint())
    assert type(again.messages[0]) is Message
    assert again.messages[0].stars == 5


def test_equal_states_give_equal_documents_in_every_process() -> None:
    program = (
        "from locus_store.core.state import AgentState\n"
        "print(AgentState(run_id='r', started_at=0, updated_at=0).model_dump_json())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
