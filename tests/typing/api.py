"""The public interface as a type checker sees it; `test_public_api` runs mypy over this file, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel
from sqlalchemy import Connection, Engine, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

import locus_store
from locus_store import (
    AgentState,
    Backend,
    BackendUnavailableError,
    Capabilities,
    Checkpointer,
    CheckpointInfo,
    Codec,
    ConflictError,
    FileBackend,
    FileCheckpointer,
    LocusStoreError,
    MemoryBackend,
    MemoryCheckpointer,
    Message,
    PostgreSQLBackend,
    PostgreSQLCheckpointer,
    Role,
    SQLiteBackend,
    SQLiteCheckpointer,
    SyncBackend,
    SyncCheckpointer,
    ThreadName,
    ToolCall,
    ToolResult,
    ZlibCodec,
    open_backend,
    open_checkpointer,
)
from locus_store.core.protocols import BaseCheckpointer, CheckpointerProtocol
from locus_store.memory.backends import StorageBackendAdapter, postgresql_checkpointer, sqlite_checkpointer
from locus_store.memory.registry import get_checkpointer, list_checkpointers, register_checkpointer
from locus_store.sql.models import Checkpoint, models_in


class Note(BaseModel):
    """A state of one's own."""

    text: str


class Reversing:
    """A codec of one's own."""

    name = "reversing"
    bound = False

    def encode(self, data: bytes, thread: ThreadName) -> bytes:
        return data[::-1]

    def decode(self, data: bytes, thread: ThreadName) -> bytes:
        return data[::-1]


class Own(BaseCheckpointer):
    """A checkpointer of one's own, with the SDK's signatures."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(list_threads=True)

    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        return "c"

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        return None

    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        return []

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        return False

    async def list_threads(self, limit: int = 100, pattern: str = "*") -> list[str]:
        return []


async def documents() -> None:
    assert_type(open_backend(), Backend)
    assert_type(open_backend("memory://", tenant="acme"), Backend)
    async with open_backend("memory://") as backend:
        assert_type(backend, Backend)
        assert_type(backend.tenant("acme"), Backend)
        assert_type(await backend.save("t", {"a": 1}, metadata={"k": 1}, if_exists="error"), str)
        assert_type(await backend.load("t"), dict[Any, Any] | None)
        assert_type(await backend.history("t", before=3), list[CheckpointInfo])
        assert_type(await backend.list_threads(limit=None, pattern="a*"), list[str])
        assert_type(await backend.delete("t", ["c1", "c2"]), bool)
        assert_type(backend.capabilities, Capabilities)
        vacuumed = await backend.vacuum()
        assert_type(vacuumed + vacuumed.blocks, int)
        row = await backend.get_metadata("t")
        if row is not None:
            assert_type(row["version"], int)
            assert_type(row["parent"], str | None)
        await backend.save("t", {}, if_exists="sometimes")  # type: ignore[arg-type]
        await backend.save({"a": 1}, "t")  # type: ignore[arg-type]


async def states() -> None:
    assert_type(open_checkpointer(), Checkpointer[AgentState])
    assert_type(open_checkpointer("memory://", tenant="acme"), Checkpointer[AgentState])
    assert_type(open_checkpointer("memory://", Note), Checkpointer[Note])
    assert_type(open_checkpointer(state_type=Note), Checkpointer[Note])
    async with open_checkpointer("memory://", Note) as checkpointer:
        assert_type(checkpointer, Checkpointer[Note])
        assert_type(await checkpointer.load("t"), Note | None)
        assert_type(await checkpointer.save(Note(text="x"), "t"), str)
        await checkpointer.save({"text": "x"}, "t")  # type: ignore[arg-type]
    assert_type(MemoryBackend().checkpointer(Note), Checkpointer[Note])
    loaded = await SQLiteCheckpointer("agents.db").load("t")
    assert_type(loaded, AgentState | None)
    open_checkpointer("memory://", dict)  # type: ignore[type-var]


async def bound(
    session: AsyncSession, connection: AsyncConnection, plain_session: Session, plain_connection: Connection
) -> None:
    backend = SQLiteBackend("agents.db")
    for target in (session, connection):
        joined = backend.bind(target)
        assert_type(joined, SQLiteBackend)
        assert_type(await joined.save("t", {"a": 1}), str)
        assert_type(joined.checkpointer(Note).bind(session), Checkpointer[Note])
    for plain in (plain_session, plain_connection):
        store = open_backend().bind(plain)
        assert_type(store, SyncBackend)
        assert_type(store.save("t", {"a": 1}, metadata={"k": 1}, if_exists="in_place"), str)
        assert_type(store.load("t"), dict[Any, Any] | None)
        assert_type(store.history("t", before=3), list[CheckpointInfo])
        assert_type(store.delete("t", ["c1", "c2"]), bool)
        assert_type(store.tenant("acme"), SyncBackend)
        assert_type(store.checkpointer(), SyncCheckpointer[AgentState])
        store.save("t", {}, if_exists="sometimes")  # type: ignore[arg-type]
        store.save({"a": 1}, "t")  # type: ignore[arg-type]
        store.load("t", version=1)  # type: ignore[call-arg]
        checkpointer = open_checkpointer(state_type=Note).bind(plain)
        assert_type(checkpointer, SyncCheckpointer[Note])
        assert_type(checkpointer.load("t"), Note | None)
        assert_type(checkpointer.save(Note(text="x"), "t"), str)
        assert_type(checkpointer.list_threads(limit=None), list[str])
        assert_type(checkpointer.tenant("acme"), SyncCheckpointer[Note])
        checkpointer.save(AgentState(), "t")  # type: ignore[arg-type]
    backend.bind("session")  # type: ignore[call-overload]


def engines(engine: AsyncEngine, plain_engine: Engine) -> list[Backend]:
    SQLiteBackend(engine=plain_engine)  # type: ignore[arg-type]
    return [SQLiteBackend(engine=engine), PostgreSQLBackend(engine=engine)]


def classes(codec: Codec) -> list[Backend]:
    made: list[Backend] = [
        MemoryBackend(tenant="a", ttl_seconds=1.5, codec=codec),
        FileBackend(base_dir="a", pretty=True, max_checkpoints_per_thread=3),
        SQLiteBackend(path="a.db", codec=ZlibCodec(level=9)),
        PostgreSQLBackend("localhost", 5432, database="d", user="u", password="p", min_pool_size=0),
        PostgreSQLBackend(dsn="postgresql://h/d", schema_name="agents", codec=Reversing()),
    ]
    MemoryBackend(codec=object())  # type: ignore[arg-type]
    checkpointers: list[Checkpointer[AgentState]] = [
        MemoryCheckpointer(),
        FileCheckpointer(base_dir="a"),
        SQLiteCheckpointer(path="a.db"),
        PostgreSQLCheckpointer(dsn="postgresql://h/d"),
        sqlite_checkpointer("a.db", tenant="a"),
        postgresql_checkpointer(host="h", password="p"),
    ]
    anybodys: list[BaseCheckpointer] = [*checkpointers, Own(), StorageBackendAdapter(object())]
    least: list[CheckpointerProtocol] = [*anybodys]
    register_checkpointer("own", lambda **_: Own())
    register_checkpointer("memory", MemoryCheckpointer)
    get_checkpointer("own:hint", x=least)
    assert_type(list_checkpointers(), list[str])
    return made


async def foreign(backend: object) -> None:
    assert_type(StorageBackendAdapter(backend), StorageBackendAdapter[AgentState])
    assert_type(StorageBackendAdapter(backend, Note), StorageBackendAdapter[Note])
    assert_type(StorageBackendAdapter(backend, state_type=Note), StorageBackendAdapter[Note])
    assert_type(await StorageBackendAdapter(backend, Note).load("t"), Note | None)


def objects() -> AgentState:
    state = AgentState(agent_id="a")
    assert_type(state.with_message(Message.user("hello")), AgentState)
    assert_type(state.messages[0].role, Role)
    call = ToolCall(name="add", arguments={"a": 1})
    Message.tool(ToolResult(tool_call_id=call.id, name=call.name, content="1"))
    return state


async def rows(backend: Backend, session: AsyncSession) -> None:
    checkpoint = (await session.scalars(select(Checkpoint))).one()
    assert_type(checkpoint.checkpoint_id, str)
    assert_type(checkpoint.document, dict[Any, Any])
    assert_type(await session.run_sync(lambda _: checkpoint.read(ZlibCodec())), dict[Any, Any])
    thread = (await session.scalars(select(models_in("agents").Thread))).one()
    assert_type(thread.head_id, str | None)
    assert_type((await backend.vacuum()).skipped, tuple[str, ...])


async def errors(backend: Backend) -> None:
    try:
        await backend.save("t", {}, expected_version=1)
    except ConflictError as error:
        assert_type(error.actual, int)
    except BackendUnavailableError as error:
        outage: ConnectionError = error
        raise LocusStoreError from outage


assert_type(locus_store.__version__, str)
locus_store.open_backends()  # type: ignore[attr-defined]
