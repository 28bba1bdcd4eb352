"""locus_store, through its public interface: documents on each backend, and states made of messages."""

from __future__ import annotations

from typing import Any

from base import Adapter, Env, Handle, Message


def _scalars(h: Handle) -> dict[str, Any]:
    """The same fields beside the messages as the floors and the other adapters have."""
    return {
        "run_id": h.thread_id,
        "agent_id": "bench",
        "iteration": h.step,
        "max_iterations": 1000,
        "confidence": 0.0,
        "total_tokens_used": 512 * h.count,
        "errors": [],
        "metadata": {"step": h.step},
    }


class _Documents(Adapter):
    """Plain dicts, as an application has them that is no user of the SDK."""

    def make(self) -> Any:
        raise NotImplementedError

    async def open(self, fresh: bool) -> None:
        self.store = self.make()
        if fresh:
            await self.store.setup()

    async def close(self) -> None:
        await self.store.close()

    def append(self, h: Handle, messages: list[Message]) -> None:
        h.state = [*h.state, *messages]
        h.count += len(messages)

    async def save(self, h: Handle) -> str:
        checkpoint_id: str = await self.store.save(h.thread_id, {**_scalars(h), "messages": h.state})
        self.saved(h)
        return checkpoint_id

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Any:
        return await self.store.load(thread_id, checkpoint_id)

    async def list_checkpoints(self, thread_id: str, limit: int) -> list[str]:
        found: list[str] = await self.store.list_checkpoints(thread_id, limit)
        return found

    async def list_threads(self, limit: int) -> list[str]:
        found: list[str] = await self.store.list_threads(limit)
        return found

    def contents(self, loaded: Any) -> list[str]:
        return [m["content"] for m in loaded["messages"]]


class _States(_Documents):
    """An ``AgentState`` of frozen messages, as an agent has it."""

    async def start(self, thread_id: str) -> Handle:
        from locus_store import AgentState

        return Handle(thread_id, state=AgentState(agent_id="bench", max_iterations=1000))

    def append(self, h: Handle, messages: list[Message]) -> None:
        from locus_store import Message as StateMessage
        from locus_store import ToolCall

        made = [
            StateMessage(
                role=m["role"],
                content=m["content"],
                tool_calls=[ToolCall(**c) for c in m.get("tool_calls", ())],
                tool_call_id=m.get("tool_call_id"),
                name=m.get("name"),
            )
            for m in messages
        ]
        h.state = h.state.with_messages(made).with_iteration(h.step)
        h.count += len(messages)

    async def open(self, fresh: bool) -> None:
        self.store = self.make().checkpointer()
        if fresh:
            await self.store.setup()

    async def save(self, h: Handle) -> str:
        checkpoint_id: str = await self.store.save(h.state, h.thread_id)
        self.saved(h)
        return checkpoint_id

    def contents(self, loaded: Any) -> list[str]:
        return [m.content for m in loaded.messages]


class _PostgreSQL:
    kind = "pg"
    env: Env

    def make(self) -> Any:
        from locus_store import PostgreSQLBackend

        return PostgreSQLBackend(dsn=self.env.pg_dsn, max_pool_size=self.env.pool_size)


class _SQLite:
    kind = "sqlite"
    env: Env

    def make(self) -> Any:
        from locus_store import SQLiteBackend

        return SQLiteBackend(path=self.env.dir / "db.sqlite")


class _File:
    kind = "file"
    env: Env

    def make(self) -> Any:
        from locus_store import FileBackend

        return FileBackend(base_dir=self.env.dir / "data")


class _Redis:
    kind = "redis"
    env: Env

    def make(self) -> Any:
        from locus_store import RedisBackend

        return RedisBackend(self.env.redis_url, max_connections=self.env.pool_size * 2)


class _Memory:
    kind = "memory"
    shared = False
    env: Env

    def make(self) -> Any:
        from locus_store import MemoryBackend

        return MemoryBackend()


_STORAGES = {"pg": _PostgreSQL, "sqlite": _SQLite, "file": _File, "redis": _Redis, "memory": _Memory}

ADAPTERS: dict[str, type[Adapter]] = {
    f"locus-store-{name}{suffix}": type(f"{storage.__name__}{face.__name__}", (storage, face), {})
    for name, storage in _STORAGES.items()
    for suffix, face in {"": _Documents, "-states": _States}.items()
}
