"""Checkpointers over a foreign backend that keeps dicts under keys, in the layout of the locus SDK."""

from __future__ import annotations

import asyncio
import copy
import fnmatch
import json
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from locus_store.backends.adapter import StorageBackendAdapter
from locus_store.backends.memory import MemoryBackend, MemoryCheckpointer
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.errors import (
    CheckpointError,
    CorruptCheckpointError,
    SerializationError,
    ThreadExistsError,
    UnsupportedOperationError,
)
from locus_store.core.messages import Message
from locus_store.core.protocols import BaseCheckpointer, CheckpointerProtocol
from locus_store.core.state import AgentState


class Dicts:
    """A foreign backend: JSON under keys, last written first, with a pause in every call."""

    page = 10_000

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.closed = 0

    def keys(self) -> list[str]:
        return list(reversed(self.rows))

    async def save(self, key: str, data: dict[str, Any]) -> None:
        self.calls.append(("save", key))
        await asyncio.sleep(0)
        self.rows.pop(key, None)
        self.rows[key] = json.dumps(data)

    async def load(self, key: str) -> dict[str, Any] | None:
        self.calls.append(("load", key))
        await asyncio.sleep(0)
        found = self.rows.get(key)
        return None if found is None else json.loads(found)

    async def delete(self, key: str) -> bool:
        self.calls.append(("delete", key))
        await asyncio.sleep(0)
        return self.rows.pop(key, None) is not None

    async def exists(self, key: str) -> bool:
        return key in self.rows

    async def list_threads(self, limit: int = 100, offset: int = 0, pattern: str = "*") -> list[str]:
        found = [key for key in self.keys() if fnmatch.fnmatchcase(key, pattern)]
        return found[offset : offset + min(limit, self.page)]

    async def close(self) -> None:
        self.closed += 1


class PatternFirst(Dicts):
    async def list_threads(self, pattern: str = "%", limit: int = 100, offset: int = 0) -> list[str]:  # type: ignore[override]
        assert pattern == "%"
        return self.keys()[offset : offset + limit]


class NoOffset(Dicts):
    async def list_threads(self, limit: int = 100) -> list[str]:  # type: ignore[override]
        return self.keys()[: min(limit, self.page)]


class NoLimit(Dicts):
    async def list_threads(self) -> list[str]:  # type: ignore[override]
        return self.keys()


class Small(Dicts):
    """Gives at most 7 keys at once, whatever it is asked for."""

    page = 7


class Blind:
    """Cannot list."""

    def __init__(self) -> None:
        inner = self.inner = Dicts()
        self.save, self.load, self.delete, self.exists = inner.save, inner.load, inner.delete, inner.exists


def state(*texts: str) -> AgentState:
    made = AgentState(run_id="r", agent_id="a", started_at=datetime(2026, 1, 1, tzinfo=UTC))
    for text in texts:
        made = made.with_message(Message.user(text))
    return made


def texts(loaded: AgentState | None) -> list[str | None]:
    assert loaded is not None
    return [message.content for message in loaded.messages]


@pytest.fixture
def dicts() -> Dicts:
    return Dicts()


@pytest.fixture
def adapter(dicts: Dicts) -> StorageBackendAdapter[AgentState]:
    return StorageBackendAdapter(dicts)


# ------------------------------------------------------------------------------------------------- what can be adapted


def test_over_a_backend_of_ours_it_is_its_checkpointer() -> None:
    class Note(BaseModel):
        text: str

    backend = MemoryBackend()
    made: Any = StorageBackendAdapter(backend)
    assert type(made) is type(backend.checkpointer())
    assert made.backend is backend
    assert made.state_type is AgentState
    noted: Any = StorageBackendAdapter(backend, Note)
    assert isinstance(noted, Checkpointer)
    assert noted.state_type is Note


def test_a_checkpointer_is_refused_with_the_remedy(adapter: StorageBackendAdapter[AgentState]) -> None:
    for checkpointer in (MemoryCheckpointer(), MemoryBackend().checkpointer(AgentState), adapter):
        with pytest.raises(TypeError, match=r"is a checkpointer already: use it as it is, .*checkpointer\.backend"):
            StorageBackendAdapter(checkpointer)


def test_what_is_no_backend_is_refused() -> None:
    with pytest.raises(
        TypeError, match="dict is no backend that can be adapted, for it lacks save, load, delete, exists"
    ):
        StorageBackendAdapter({})
    with pytest.raises(TypeError, match="lacks exists"):
        StorageBackendAdapter(SimpleNamespace(save=print, load=print, delete=print))
    with pytest.raises(TypeError, match="must be a pydantic model"):
        StorageBackendAdapter(Dicts(), dict)  # type: ignore[type-var]


def test_it_is_a_checkpointer(adapter: StorageBackendAdapter[AgentState]) -> None:
    assert isinstance(adapter, BaseCheckpointer)
    assert isinstance(adapter, CheckpointerProtocol)
    assert adapter.deletes_single_checkpoints is True
    assert bool(adapter)
    assert repr(adapter) == "StorageBackendAdapter(Dicts, AgentState)"


def test_capabilities_are_what_the_backend_allows(dicts: Dicts) -> None:
    full = StorageBackendAdapter(dicts).capabilities
    assert (full.list_threads, full.metadata_query, full.vacuum, full.list_with_metadata) == (True,) * 4
    assert (full.branching, full.persistent_checkpoint_ids) == (True, True)
    assert (full.search, full.ttl, full.records, full.incremental) == (False,) * 4
    blind = StorageBackendAdapter(Blind()).capabilities
    assert (blind.list_threads, blind.metadata_query, blind.vacuum, blind.list_with_metadata) == (False,) * 4
    dicts.config = SimpleNamespace(ttl_seconds=5)  # type: ignore[attr-defined]
    assert StorageBackendAdapter(dicts).capabilities.ttl is True


async def test_what_is_missing_says_so() -> None:
    adapter = StorageBackendAdapter(Blind())
    await adapter.save(state("a"), "t")
    for call in (adapter.list_threads(), adapter.vacuum(), adapter.query_by_metadata("a", 1), adapter.search("a")):
        with pytest.raises(UnsupportedOperationError, match="StorageBackendAdapter does not support"):
            await call
    assert await adapter.delete("t")


# ------------------------------------------------------------------------------------------------------------- layout


async def test_the_keys_are_those_of_the_sdk(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    saved = state("one")
    assert await adapter.save(saved, "t", "c1", {"k": 1}) == "c1"
    assert [key for what, key in dicts.calls if what == "save"] == ["t:c1", "t:latest", "t:_checkpoints"]
    row = json.loads(dicts.rows["t:c1"])
    assert json.loads(dicts.rows["t:latest"]) == row
    time = row.pop("_checkpoint_timestamp")
    assert datetime.fromisoformat(time).utcoffset() == timedelta(0)
    assert (row.pop("_checkpoint_id"), row.pop("_metadata")) == ("c1", {"k": 1})
    assert row == saved.to_checkpoint()
    assert json.loads(dicts.rows["t:_checkpoints"]) == {
        "checkpoints": [{"checkpoint_id": "c1", "timestamp": time, "metadata": {"k": 1}}]
    }


def sdk_rows(*saves: tuple[str, str, list[str]]) -> dict[str, str]:
    """What the SDK leaves behind: (checkpoint id, time, texts of the messages), oldest first."""
    rows: dict[str, Any] = {}
    index: list[dict[str, Any]] = []
    for checkpoint_id, time, words in saves:
        document = {
            "run_id": "r",
            "agent_id": "sdk",
            "messages": [
                {"role": "user", "content": word, "tool_calls": [], "tool_call_id": None, "name": None, "metadata": {}}
                for word in words
            ],
            "iteration": 3,
            "terminal_tools": ["done", "submit"],
            "some_later_field": {"a": 1},
        }
        row = {**document, "_checkpoint_id": checkpoint_id, "_checkpoint_timestamp": time, "_metadata": {}}
        rows[f"t:{checkpoint_id}"] = rows["t:latest"] = row
        index.insert(0, {"checkpoint_id": checkpoint_id, "timestamp": time, "metadata": {}})
    rows["t:_checkpoints"] = {"checkpoints": index}
    return {key: json.dumps(row) for key, row in rows.items()}


async def test_what_the_sdk_wrote_is_read_and_continued(
    dicts: Dicts, adapter: StorageBackendAdapter[AgentState]
) -> None:
    dicts.rows = sdk_rows(
        ("c1", "2026-01-01T00:00:00+00:00", ["a"]), ("c2", "2099-01-01T00:00:00.000001+00:00", ["a", "b"])
    )
    assert await adapter.list_threads() == ["t"]
    assert await adapter.list_checkpoints("t") == ["c2", "c1"]
    loaded = await adapter.load("t")
    assert texts(loaded) == ["a", "b"]
    assert loaded is not None
    assert loaded.iteration == 3
    assert loaded.terminal_tools == {"done", "submit"}
    assert loaded.model_extra == {"some_later_field": {"a": 1}}
    assert texts(await adapter.load("t", "c1")) == ["a"]

    # Its clock was ahead; the order by time, which the SDK sorts by, must be the order of the saves all the same.
    await adapter.save(loaded.with_message(Message.user("c")), "t", "c3")
    index = json.loads(dicts.rows["t:_checkpoints"])["checkpoints"]
    assert [entry["checkpoint_id"] for entry in index] == ["c3", "c2", "c1"]
    assert sorted(index, key=lambda entry: entry["timestamp"], reverse=True) == index
    assert json.loads(dicts.rows["t:latest"])["some_later_field"] == {"a": 1}


async def test_metadata_is_handed_on_where_the_backend_takes_it() -> None:
    class Takes(Dicts):
        async def save(  # type: ignore[override]
            self,
            key: str,
            data: dict[str, Any],
            checkpoint_id: str | None = None,
            metadata: dict[str, Any] | None = None,
        ) -> str:
            seen.append((key, metadata))
            await super().save(key, data)
            return key

    seen: list[tuple[str, Any]] = []
    adapter = StorageBackendAdapter(Takes())
    await adapter.save(state(), "t", "c", {"at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert seen == [("t:c", {"at": "2026-01-01T00:00:00Z"}), ("t:latest", None), ("t:_checkpoints", None)]


# ------------------------------------------------------------------------------------------------------ save and load


async def test_save_and_load(adapter: StorageBackendAdapter[AgentState]) -> None:
    first = await adapter.save(state("a"), "t")
    saved = state("a", "b")
    second = await adapter.save(saved, "t")
    assert len(first) == 32
    assert first != second
    loaded = await adapter.load("t")
    assert loaded == saved
    assert loaded is not saved
    assert texts(await adapter.load("t", first)) == ["a"]
    assert await adapter.list_checkpoints("t") == [second, first]
    assert await adapter.list_checkpoints("t", limit=1) == [second]
    assert await adapter.exists("t")
    assert await adapter.exists("t", first)


async def test_what_is_missing(adapter: StorageBackendAdapter[AgentState]) -> None:
    await adapter.save(state("a"), "t", "c")
    assert await adapter.load("u") is None
    assert await adapter.load("t", "x") is None
    assert await adapter.list_checkpoints("u") == []
    assert not await adapter.exists("u")
    assert not await adapter.exists("t", "x")
    assert not await adapter.delete("u")
    assert not await adapter.delete("t", "x")
    assert await adapter.get_metadata("u") is None
    assert await adapter.get_metadata("t", "x") is None


async def test_a_state_of_another_type() -> None:
    class Note(BaseModel):
        text: str
        at: datetime
        tags: frozenset[str]

    class Strict(BaseModel):
        missing: int

    adapter = StorageBackendAdapter(Dicts(), Note)
    note = Note(text="x", at=datetime(2026, 1, 2, tzinfo=UTC), tags=frozenset("ab"))
    await adapter.save(note, "t")
    loaded = await adapter.load("t")
    assert loaded == note
    assert type(loaded) is Note
    other = StorageBackendAdapter(adapter.backend, AgentState)
    strict = StorageBackendAdapter(adapter.backend, Strict)
    assert await other.load("t") is not None
    with pytest.raises(CheckpointError, match="does not fit Strict"):
        await strict.load("t")


async def test_anything_with_to_checkpoint_is_saved(adapter: StorageBackendAdapter[AgentState]) -> None:
    await adapter.save(SimpleNamespace(to_checkpoint=lambda: {"agent_id": "duck"}), "t")
    loaded = await adapter.load("t")
    assert loaded is not None
    assert loaded.agent_id == "duck"


async def test_what_cannot_be_saved(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    with pytest.raises(TypeError, match="must be a pydantic model, got dict"):
        await adapter.save({"a": 1}, "t")
    with pytest.raises(SerializationError, match="no JSON form"):
        await adapter.save(state().with_metadata("f", print), "t")
    with pytest.raises(SerializationError, match="metadata has no JSON form"):
        await adapter.save(state(), "t", metadata={"f": print})
    with pytest.raises(TypeError, match="metadata must be a dict"):
        await adapter.save(state(), "t", metadata="x")  # type: ignore[arg-type]
    for wrong in ("latest", "_checkpoints", "1:c", "", "x" * 513):
        with pytest.raises(ValueError, match="checkpoint_id"):
            await adapter.save(state(), "t", wrong)
    for wrong in ("", "a\x00", "x" * 513):
        with pytest.raises(ValueError, match="thread_id"):
            await adapter.save(state(), wrong)
    assert dicts.rows == {}


async def test_threads_with_colons_are_apart(adapter: StorageBackendAdapter[AgentState]) -> None:
    for name in ("u", "u:1", "u:latest", "u:_checkpoints"):
        await adapter.save(state(name), name, "c")
    for name in ("u", "u:1", "u:latest", "u:_checkpoints"):
        assert texts(await adapter.load(name)) == [name]
        assert await adapter.list_checkpoints(name) == ["c"]
    assert await adapter.load("u", "1:c") is None
    assert await adapter.load("u", "latest") is None
    assert not await adapter.exists("u", "1:c")
    assert not await adapter.delete("u", "1:c")
    assert set(await adapter.list_threads()) == {"u", "u:1", "u:latest", "u:_checkpoints"}
    assert await adapter.delete("u")
    assert set(await adapter.list_threads()) == {"u:1", "u:latest", "u:_checkpoints"}
    assert texts(await adapter.load("u:1", "c")) == ["u:1"]


async def test_a_saved_id_is_replaced_and_becomes_the_newest(adapter: StorageBackendAdapter[AgentState]) -> None:
    await adapter.save(state("a"), "t", "c1")
    await adapter.save(state("b"), "t", "c2")
    await adapter.save(state("c"), "t", "c1")
    assert await adapter.list_checkpoints("t") == ["c1", "c2"]
    assert texts(await adapter.load("t")) == ["c"]
    assert texts(await adapter.load("t", "c1")) == ["c"]


async def test_damage_is_no_missing_thread(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    await adapter.save(state("a"), "t", "c")
    dicts.rows["t:c"] = "[]"
    with pytest.raises(CorruptCheckpointError, match="'c'"):
        await adapter.load("t", "c")
    for damaged in ("{}", "[]", '{"checkpoints": [5]}'):
        dicts.rows["t:_checkpoints"] = damaged
        with pytest.raises(CorruptCheckpointError, match="list of its checkpoints"):
            await adapter.list_checkpoints("t")


# ----------------------------------------------------------------------------------------------------------- deleting


async def test_deleting_the_newest_leaves_the_one_before(
    dicts: Dicts, adapter: StorageBackendAdapter[AgentState]
) -> None:
    words = ["a", "b", "secret"]
    for number in (1, 2, 3):
        await adapter.save(state(*words[:number]), "t", f"c{number}")
    assert await adapter.delete("t", "c3")
    assert texts(await adapter.load("t")) == ["a", "b"]
    assert await adapter.list_checkpoints("t") == ["c2", "c1"]
    assert "secret" not in str(dicts.rows)
    assert await adapter.delete("t", ["c1", "nothing"])
    assert texts(await adapter.load("t")) == ["a", "b"]
    assert not await adapter.delete("t", [])
    assert await adapter.delete("t", "c2")
    assert dicts.rows == {}
    assert not await adapter.delete("t")


async def test_deleting_a_thread_leaves_nothing(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    for number in range(5):
        await adapter.save(state("a"), "t", f"c{number}")
    await adapter.save(state("a"), "t2")
    # Another process has lost four of the entries, as the SDK does; and the backend is used for something else as well.
    index = json.loads(dicts.rows["t:_checkpoints"])
    dicts.rows["t:_checkpoints"] = json.dumps({"checkpoints": index["checkpoints"][:1]})
    dicts.rows["t:settings"] = '{"a": 1}'
    assert await adapter.delete("t")
    assert [key for key in dicts.rows if key.startswith("t:")] == ["t:settings"]
    assert await adapter.list_threads() == ["t2"]


async def test_a_checkpoint_that_is_not_listed_can_be_deleted(
    dicts: Dicts, adapter: StorageBackendAdapter[AgentState]
) -> None:
    await adapter.save(state("a"), "t", "c1")
    await adapter.save(state("b"), "t", "c2")
    index = json.loads(dicts.rows["t:_checkpoints"])
    dicts.rows["t:_checkpoints"] = json.dumps({"checkpoints": index["checkpoints"][1:]})
    assert await adapter.get_metadata("t", "c2") is not None
    assert await adapter.delete("t", "c2")
    assert texts(await adapter.load("t")) == ["a"]
    assert "t:c2" not in dicts.rows


# ------------------------------------------------------------------------------------------------------------ listing


@pytest.mark.parametrize("kind", [Dicts, PatternFirst, NoOffset, NoLimit, Small])
async def test_threads_are_listed_completely(kind: type[Dicts], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locus_store.backends.keyed_rows._PAGE", 10)
    adapter = StorageBackendAdapter(kind())
    names = [f"user_{number}" for number in range(12)] + ["userX1", "a%b"]
    for name in names:
        await adapter.save(state("a"), name)
    newest_first = names[::-1]
    assert await adapter.list_threads() == newest_first
    assert await adapter.list_threads(limit=3, offset=2) == newest_first[2:5]
    assert await adapter.list_threads(limit=None, pattern="user_*") == newest_first[2:]
    assert await adapter.list_threads(pattern="user_1%") == ["user_11", "user_10", "user_1"]
    assert await adapter.list_threads(pattern="user_?") == [f"user_{number}" for number in range(9, -1, -1)]
    assert await adapter.list_threads(pattern=r"a\%b") == ["a%b"]
    assert await adapter.list_threads(pattern="nothing*") == []


async def test_metadata(adapter: StorageBackendAdapter[AgentState]) -> None:
    await adapter.save(state("a"), "t1", "c1", {"user": "ann", "n": 1})
    await adapter.save(state("a"), "t1", "c2", {"user": "bob", "n": True})
    await adapter.save(state("a"), "t2", "c3")
    found = await adapter.get_metadata("t1", "c1")
    assert found is not None
    assert isinstance(found["created_at"], datetime)
    assert {**found, "created_at": None} == {
        "thread_id": "t1",
        "checkpoint_id": "c1",
        "created_at": None,
        "metadata": {"user": "ann", "n": 1},
    }
    assert [(row["thread_id"], row["checkpoint_id"]) for row in await adapter.list_with_metadata()] == [
        ("t2", "c3"),
        ("t1", "c2"),
    ]
    assert [row["thread_id"] for row in await adapter.query_by_metadata("user", "bob")] == ["t1"]
    assert await adapter.query_by_metadata("user", "ann") == []
    assert await adapter.query_by_metadata("n", 1) == []
    assert [row["checkpoint_id"] for row in await adapter.query_by_metadata({"n": True, "user": "bob"})] == ["c2"]
    assert len(await adapter.query_by_metadata({})) == 2
    assert len(await adapter.query_by_metadata({}, limit=1)) == 1
    with pytest.raises(TypeError, match="either a dict"):
        await adapter.query_by_metadata({"a": 1}, 1)


async def test_search_names_threads_and_each_checkpoint_once() -> None:
    class Searches(Dicts):
        async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
            found = [key for key in self.keys() if query in self.rows[key]]
            return [{"thread_id": key, "data": json.loads(self.rows[key]), "score": 1.0} for key in found][:limit]

    adapter = StorageBackendAdapter(Searches())
    await adapter.save(state("needle"), "a:b", "c1", {"note": "needle"})
    await adapter.save(state("needle", "two"), "a:b", "c2")
    assert adapter.capabilities.search
    hits = await adapter.search("needle")
    assert [(hit["thread_id"], hit["checkpoint_id"], hit["score"]) for hit in hits] == [
        ("a:b", "c2", 1.0),
        ("a:b", "c1", 1.0),
    ]
    assert len(await adapter.search("needle", limit=1)) == 1


# ------------------------------------------------------------------------------------------------ copying and clean-up


async def test_copy_thread(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    await adapter.save(state("a"), "t", "c1", {"n": 1})
    await adapter.save(state("a", "b"), "t", "c2")
    before = {key: row for key, row in dicts.rows.items() if key.startswith("t:")}
    assert await adapter.copy_thread("t", "u")
    assert await adapter.list_checkpoints("u") == ["c2", "c1"]
    assert texts(await adapter.load("u")) == ["a", "b"]
    assert [row["metadata"] for row in await adapter.list_with_metadata()] == [{}, {}]
    assert await adapter.delete("u", "c2")
    assert [row["metadata"] for row in await adapter.list_with_metadata()] == [{"n": 1}, {}]
    assert await adapter.copy_thread("t", "u", overwrite=True)
    assert {key: row for key, row in dicts.rows.items() if key.startswith("t:")} == before
    await adapter.delete("t")
    assert texts(await adapter.load("u", "c1")) == ["a"]

    await adapter.save(state("x"), "v", "old")
    with pytest.raises(ThreadExistsError):
        await adapter.copy_thread("u", "v")
    assert await adapter.copy_thread("u", "v", overwrite=True)
    assert await adapter.list_checkpoints("v") == ["c2", "c1"]
    assert not await adapter.exists("v", "old")
    assert not await adapter.copy_thread("nothing", "w")
    assert not await adapter.exists("w")
    with pytest.raises(ValueError, match="onto itself"):
        await adapter.copy_thread("u", "u")


async def test_a_copy_has_the_newest_even_where_it_is_not_listed(
    dicts: Dicts, adapter: StorageBackendAdapter[AgentState]
) -> None:
    await adapter.save(state("a"), "t", "c1")
    dicts.rows["t:_checkpoints"] = '{"checkpoints": []}'
    assert await adapter.copy_thread("t", "u")
    assert await adapter.list_checkpoints("u") == ["c1"]
    assert texts(await adapter.load("u", "c1")) == ["a"]


async def test_vacuum(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    now = datetime.now(UTC)
    dicts.rows = sdk_rows(
        *[(f"c{days}", (now - timedelta(days=days)).isoformat(), ["a"]) for days in (50, 40, 31, 29, 1)]
    )
    assert await adapter.vacuum() == 3
    assert await adapter.list_checkpoints("t") == ["c1", "c29"]
    assert await adapter.vacuum(older_than_days=0.5) == 1
    assert await adapter.list_checkpoints("t") == ["c1"]
    assert await adapter.vacuum(older_than_days=0.5, keep_last=0) == 1
    assert dicts.rows == {}


# -------------------------------------------------------------------------------------------------------- concurrency


async def test_no_entry_of_the_index_is_lost_within_a_process(dicts: Dicts) -> None:
    adapters = [StorageBackendAdapter(dicts) for _ in range(3)]
    made = await asyncio.gather(*[adapters[number % 3].save(state(str(number)), "t") for number in range(30)])
    listed = await adapters[0].list_checkpoints("t", limit=None)
    assert sorted(listed) == sorted(made)
    assert texts(await adapters[0].load("t")) == texts(await adapters[0].load("t", listed[0]))


def test_no_entry_is_lost_between_event_loops(dicts: Dicts) -> None:
    adapter = StorageBackendAdapter(dicts)

    async def saves() -> None:
        for _ in range(20):
            await adapter.save(state("a"), "t")

    threads = [threading.Thread(target=asyncio.run, args=(saves(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asyncio.run(adapter.list_checkpoints("t", limit=None))) == 60


async def test_a_cancelled_save_holds_no_lock(dicts: Dicts, adapter: StorageBackendAdapter[AgentState]) -> None:
    for steps in range(8):
        task = asyncio.create_task(adapter.save(state("a"), "t"))
        other = asyncio.create_task(adapter.save(state("b"), "t"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, other, return_exceptions=True)
        await asyncio.wait_for(adapter.save(state("c"), "t"), 30)
    assert texts(await adapter.load("t")) == ["c"]


async def test_close(dicts: Dicts) -> None:
    async with StorageBackendAdapter(dicts) as adapter:
        await adapter.save(state("a"), "t")
    assert dicts.closed == 1
    plain = Blind()
    await StorageBackendAdapter(plain).close()
    closed: list[int] = []
    plain.close = lambda: closed.append(1)  # type: ignore[attr-defined]
    await StorageBackendAdapter(plain).close()
    assert closed == [1]


async def test_what_a_backend_keeps_by_reference_is_nobody_elses() -> None:
    class Keeps(Dicts):
        """Does not copy."""

        async def save(self, key: str, data: dict[str, Any]) -> None:
            self.kept = getattr(self, "kept", {})
            self.kept[key] = data

        async def load(self, key: str) -> dict[str, Any] | None:
            return getattr(self, "kept", {}).get(key)

    backend = Keeps()
    adapter = StorageBackendAdapter(backend)
    await adapter.save(state("a"), "t", "c", {"a": 1})
    before = copy.deepcopy(backend.kept)
    loaded = await adapter.load("t", "c")
    assert loaded is not None
    loaded.metadata["changed"] = True
    await adapter.save(state("b"), "t", "d")
    await adapter.list_checkpoints("t")
    assert backend.kept["t:c"] == before["t:c"]
