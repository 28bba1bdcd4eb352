"""Our checkpointers as the locus SDK uses them.

What an agent and a graph of the SDK call, in their order, runs here with our own states and, where the package
``locus-sdk`` is installed, with the SDK's. The last tests run the SDK's own agent.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from locus_store import open_backend
from locus_store.backends.adapter import StorageBackendAdapter
from locus_store.core.backend import Backend

try:
    SDK: str | None = importlib.metadata.version("locus-sdk")
except importlib.metadata.PackageNotFoundError:
    SDK = None

needs_sdk = [
    pytest.mark.skipif(SDK is None, reason="the package locus-sdk is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:locus", "ignore::ResourceWarning:locus"),
]
LISTED = "_locus_iteration_checkpoints"
"""Where an agent's state keeps the ids of the checkpoints that it will delete at the end of the turn."""


@pytest.fixture(params=["ours", pytest.param("the SDK's", marks=needs_sdk)])
def objects(request: pytest.FixtureRequest) -> Any:
    """The classes of states and messages: ours, or the SDK's."""
    if request.param == "ours":
        from locus_store.core import messages, state
    else:
        from locus.core import messages, state
    return SimpleNamespace(**{**vars(messages), **vars(state)})


@pytest.fixture(params=["memory", "file", "sqlite", "sqlite in memory", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    urls: dict[str, Callable[[], str]] = {
        "memory": lambda: "memory://",
        "file": lambda: f"file:{tmp_path / 'saved'}",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'store.db'}",
        "sqlite in memory": lambda: "sqlite://",
        "postgresql": lambda: str(request.getfixturevalue("postgresql_url")),
    }
    return open_backend(urls[request.param]())


def step(state: Any, number: int, objects: Any) -> Any:
    """What one iteration adds: a call of a tool, and its result."""
    call = objects.ToolCall(id=f"call_{number}", name="add", arguments={"a": number, "b": [1, {"c": None}]})
    result = objects.ToolResult(tool_call_id=call.id, name="add", content=str(number + 1), duration_ms=0.5)
    done = objects.ToolExecution(
        tool_name="add", tool_call_id=call.id, arguments=call.arguments, result=str(number + 1)
    )
    return (
        state.with_message(objects.Message.assistant(f"thinking {number}", tool_calls=[call]))
        .with_message(objects.Message.tool(result))
        .with_tool_execution(done)
        .with_reasoning_step(objects.ReasoningStep(iteration=number, thought="so", tool_calls=[call]))
        .with_confidence(0.1 * number)
        .with_iteration(number)
    )


async def turn(checkpointer: Any, thread: str, question: str, objects: Any, iterations: int = 4) -> Any:
    """One turn of an agent: a load, a save for each iteration, the last save, and the iterations deleted again."""
    state = await checkpointer.load(thread)
    if state is None:
        state = objects.AgentState(agent_id="agent")
    assert type(state) is objects.AgentState
    state = state.with_message(objects.Message.user(question))
    listed: list[str] = []
    for number in range(1, iterations + 1):
        state = step(state, number, objects)
        listed.append(uuid4().hex)
        state = state.with_metadata(LISTED, list(listed))
        assert await checkpointer.save(state, thread, listed[-1]) == listed[-1]
        assert await checkpointer.load(thread) == state
    state = state.with_message(objects.Message.assistant("the answer")).with_metadata(LISTED, [])
    await checkpointer.save(state, thread)
    for one in listed:
        assert await checkpointer.delete(thread, one) is True
    return state


# --------------------------------------------------------------------------------------------------- calls in order


def test_what_an_agent_calls_on_a_fresh_loop_for_each_turn(backend: Backend, objects: Any) -> None:
    """As `Agent.run_sync` does it: every turn has an event loop of its own, and closes the checkpointer."""
    checkpointer = backend.checkpointer(objects.AgentState)
    # What the agent looks at before it saves every iteration; 1 would not do.
    assert checkpointer.deletes_single_checkpoints is True
    assert bool(checkpointer)

    async def one_turn(question: str) -> Any:
        state = await turn(checkpointer, "t", question, objects)
        await checkpointer.close()
        return state

    states = [asyncio.run(one_turn(f"question {number}")) for number in range(3)]

    async def afterwards() -> None:
        ids = await checkpointer.list_checkpoints("t", limit=100)
        assert len(ids) == 3
        for one, state in zip(ids, reversed(states), strict=True):
            loaded = await checkpointer.load("t", one)
            assert loaded == state
            assert type(loaded) is objects.AgentState
        newest = await checkpointer.load("t")
        assert len(newest.messages) == 3 * 10
        assert {type(message) for message in newest.messages} == {objects.Message}
        assert type(newest.messages[1].tool_calls[0]) is objects.ToolCall
        assert type(newest.tool_executions[0]) is objects.ToolExecution
        assert type(newest.reasoning_steps[0]) is objects.ReasoningStep
        await checkpointer.close()

    asyncio.run(afterwards())


async def test_what_comes_back_can_be_continued_with(backend: Backend, objects: Any) -> None:
    """An agent builds a new state around the messages that it loaded: they must be of its own classes."""
    checkpointer = backend.checkpointer(objects.AgentState)
    await turn(checkpointer, "t", "first", objects)
    loaded = await checkpointer.load("t")
    rebuilt = objects.AgentState(agent_id="agent", messages=loaded.messages, metadata=dict(loaded.metadata))
    await checkpointer.save(rebuilt, "t")
    assert await checkpointer.load("t") == rebuilt
    await checkpointer.close()


async def test_history_fork_and_update(backend: Backend, objects: Any) -> None:
    checkpointer = backend.checkpointer(objects.AgentState)
    for number in range(3):
        await turn(checkpointer, "t", f"question {number}", objects, iterations=1)
    ids = await checkpointer.list_checkpoints("t", limit=10)
    history = [await checkpointer.load("t", one) for one in ids]
    assert [len(state.messages) for state in history] == [12, 8, 4]

    notes = {"forked_from": "t", "parent_checkpoint_id": ids[-1]}
    fork = await checkpointer.save(history[-1], "t-fork-1", metadata=notes)
    assert await checkpointer.load("t-fork-1") == history[-1]
    row = await checkpointer.get_metadata("t-fork-1")
    assert row is not None
    assert (row["metadata"], row["checkpoint_id"]) == (notes, fork)

    changed = history[0].with_metadata("checked", True)
    await checkpointer.save(changed, "t", metadata={"source": "update_state", "parent_checkpoint_id": ids[0]})
    assert (await checkpointer.load("t")).metadata["checked"] is True
    found = await checkpointer.query_by_metadata("source", "update_state")
    assert [row["thread_id"] for row in found] == ["t"]
    assert await checkpointer.delete("t") is True
    assert await checkpointer.load("t") is None
    assert await checkpointer.delete("t") is False
    await checkpointer.close()


async def test_what_a_graph_calls(backend: Backend, objects: Any) -> None:
    """By keyword, a save for each step, and the graph's own dict inside the state's metadata."""
    checkpointer = backend.checkpointer(objects.AgentState)
    graph = {"values": {"count": 1, "names": ["a"]}, "next": ["b"]}
    for number in range(3):
        state = objects.AgentState(agent_id="graph").with_metadata("graph_state", {**graph, "step": number})
        await checkpointer.save(state=state, thread_id="g", metadata={"source": "step", "step": number})
    await checkpointer.save(state=state, thread_id="g")
    loaded = await checkpointer.load(thread_id="g")
    assert loaded.metadata["graph_state"] == {**graph, "step": 2}
    ids = await checkpointer.list_checkpoints(thread_id="g", limit=10)
    first = await checkpointer.load(thread_id="g", checkpoint_id=ids[-1])
    assert first.metadata["graph_state"]["step"] == 0
    assert await checkpointer.exists(thread_id="g") is True
    rows = await checkpointer.query_by_metadata(key={"source": "step", "step": 1}, versions="all")
    assert [row["checkpoint_id"] for row in rows] == [ids[2]]
    await checkpointer.close()


async def test_what_is_raised_comes_out(backend: Backend, objects: Any) -> None:
    checkpointer = backend.checkpointer(objects.AgentState)
    with pytest.raises(TypeError, match=r"\$\.metadata\.secret"):
        await checkpointer.save(objects.AgentState().with_metadata("secret", object()), "t")
    assert await checkpointer.load("t") is None
    await checkpointer.close()


# ------------------------------------------------------------------------------------------------- the SDK's own parts


class Model:
    """A model that calls a tool three times, then answers."""

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, messages: list[Any], tools: Any = None, **_: Any) -> Any:
        from locus.core.messages import Message, ToolCall
        from locus.models import ModelResponse

        self.calls += 1
        if self.calls % 4 == 0:
            return ModelResponse(message=Message.assistant(f"answer to {len(messages)} messages"))
        calls = [ToolCall(name="add", arguments={"a": self.calls, "b": 1})]
        return ModelResponse(message=Message.assistant("thinking", tool_calls=calls))

    async def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def agent(checkpointer: Any, **options: Any) -> Any:
    from locus.agent import Agent
    from locus.tools import tool

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return Agent(model=Model(), tools=[tool(add)], checkpointer=checkpointer, system_prompt="Be brief.", **options)


sdk_only = pytest.mark.parametrize("objects", [pytest.param("the SDK's", marks=needs_sdk)], indirect=True)


@sdk_only
def test_the_agent_itself(backend: Backend, objects: Any) -> None:
    checkpointer = backend.checkpointer(objects.AgentState)
    for number in range(3):
        agent(checkpointer).run_sync(f"question {number}", thread_id="t")

    async def afterwards() -> None:
        newest = await checkpointer.load("t")
        assert type(newest) is objects.AgentState
        # A system message, and for each turn a question, three calls with their results, and an answer.
        assert [message.role.value for message in newest.messages[1:9]] == [
            "user",
            *["assistant", "tool"] * 3,
            "assistant",
        ]
        assert len(newest.messages) == 1 + 3 * 8
        ids = await checkpointer.list_checkpoints("t")
        assert len(ids) == 3
        other = agent(checkpointer)
        if hasattr(other, "get_state_history"):  # they came after 0.2.0b16
            assert len(await other.get_state_history("t")) == 3
            await other.fork("t", ids[-1], new_thread_id="f")
            assert len((await checkpointer.load("f")).messages) == 9
            assert await checkpointer.list_threads() == ["f", "t"]
        await checkpointer.close()

    asyncio.run(afterwards())


@sdk_only
def test_the_agent_keeps_its_iterations_when_told_to(objects: Any) -> None:
    from locus.agent import AgentConfig

    if "keep_iteration_checkpoints" not in AgentConfig.model_fields:
        pytest.skip("it came after 0.2.0b16")
    checkpointer = open_backend("memory://").checkpointer(objects.AgentState)
    agent(checkpointer, keep_iteration_checkpoints=True).run_sync("question", thread_id="t")
    assert len(asyncio.run(checkpointer.list_checkpoints("t"))) == 4


@sdk_only
async def test_the_wrapper_that_forgets_old_messages(backend: Backend, objects: Any) -> None:
    retention = pytest.importorskip("locus.memory.retention", reason="it came after 0.2.0b16")
    inner = backend.checkpointer(objects.AgentState)
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    wrapped = retention.RetainedCheckpointer(inner, max_age=timedelta(days=7), clock=lambda: now[0])
    assert wrapped.deletes_single_checkpoints is True
    assert wrapped.capabilities.list_threads is True
    old = objects.AgentState().with_message(objects.Message.user("old")).with_message(objects.Message.assistant("yes"))
    await wrapped.save(old, "t")
    stored = await inner.load("t")
    assert stored is not None
    assert all("locus_at" in message.metadata for message in stored.messages)
    now[0] += timedelta(days=30)
    continued = (await wrapped.load("t")).with_message(objects.Message.user("new"))
    await wrapped.save(continued, "t", checkpoint_id="c")
    assert [message.content for message in (await inner.load("t")).messages] == ["new"]
    assert await wrapped.list_checkpoints("t", limit=5) == await inner.list_checkpoints("t")
    assert await wrapped.list_threads(limit=5, pattern="t*") == ["t"]
    assert await wrapped.exists("t", "c")
    assert await wrapped.delete("t", "c")
    await wrapped.close()


class Dicts:
    """A dict backend as the SDK's adapter takes it."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}

    async def save(self, key: str, data: dict[str, Any]) -> None:
        self.rows.pop(key, None)
        self.rows[key] = json.dumps(data)

    async def load(self, key: str) -> dict[str, Any] | None:
        return json.loads(self.rows[key]) if key in self.rows else None

    async def delete(self, key: str) -> bool:
        return self.rows.pop(key, None) is not None

    async def exists(self, key: str) -> bool:
        return key in self.rows

    async def list_threads(self, limit: int = 100, offset: int = 0) -> list[str]:
        return list(reversed(self.rows))[offset : offset + limit]


@sdk_only
async def test_either_adapter_reads_what_the_other_wrote(objects: Any) -> None:
    from locus.memory.backends import StorageBackendAdapter as SDKAdapter

    dicts = Dicts()
    theirs, ours = SDKAdapter(dicts), StorageBackendAdapter(dicts, objects.AgentState)
    states = {}
    for number in range(6):
        adapter = (theirs, ours)[number % 2]
        states[f"c{number}"] = state = step(await adapter.load("t") or objects.AgentState(), number, objects)
        await adapter.save(state, "t", f"c{number}", {"number": number})
    for adapter in (theirs, ours):
        assert await adapter.list_checkpoints("t") == ["c5", "c4", "c3", "c2", "c1", "c0"]
        assert await adapter.load("t") == states["c5"]
        for one, state in states.items():
            assert await adapter.load("t", one) == state
    assert [row["checkpoint_id"] for row in await ours.query_by_metadata("number", 5)] == ["c5"]
    assert await ours.delete("t", "c5")
    assert await theirs.load("t") == states["c4"]
    assert await theirs.list_checkpoints("t") == ["c4", "c3", "c2", "c1", "c0"]
    assert await theirs.delete("t", "c0")
    assert await ours.list_checkpoints("t") == ["c4", "c3", "c2", "c1"]
    # Ours reads the same data as our own states, too.
    from locus_store.core.state import AgentState

    own = await StorageBackendAdapter(dicts).load("t")
    assert type(own) is AgentState
    assert own.to_checkpoint().items() >= {"iteration": 4, "agent_id": None}.items()
    assert await ours.delete("t")
    assert dicts.rows == {}


@sdk_only
async def test_a_dict_backend_of_the_sdk_under_our_adapter(objects: Any, tmp_path: Path) -> None:
    backends = pytest.importorskip("locus.memory.backends")
    made = getattr(backends, "SQLiteBackend", None)
    if made is None:
        pytest.skip("it went after 0.2.0b16")
    adapter = StorageBackendAdapter(made(path=str(tmp_path / "theirs.db")), objects.AgentState)
    for name in ("a", "b"):
        await turn(adapter, name, "question", objects, iterations=2)
    assert await adapter.list_threads() == ["b", "a"]
    assert len(await adapter.list_checkpoints("a")) == 1
    assert await adapter.delete("a")
    assert await adapter.list_threads() == ["b"]
    await adapter.close()
