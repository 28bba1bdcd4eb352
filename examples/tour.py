"""A tour of locus_store: read it from top to bottom, then run it with ``make demo``.

It runs on a SQLite file in a temporary folder. With LOCUS_STORE_URL set (or ``make demo URL=postgresql://…``) it runs
on that backend, inside a tenant of its own which it empties at the end, however it ends.
"""

import asyncio
import json
import os
import secrets
import tempfile
from pathlib import Path

from locus_store import (
    AgentState,
    ConflictError,
    FileCheckpointer,
    MemoryCheckpointer,
    Message,
    SerializationError,
    ToolCall,
    open_backend,
    open_checkpointer,
)


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


async def documents(url: str, tenant: str) -> None:
    title("1. A backend stores documents: plain dicts, in threads")
    async with open_backend(url, tenant=tenant) as backend:
        first = await backend.save("trip", {"messages": [{"role": "user", "content": "Plan a trip"}], "step": 1})
        document = await backend.load("trip")
        print("saved as     ", first)
        print("loaded       ", document)

        # Each save adds a checkpoint; old ones stay. What goes in comes out, with its types.
        assert document is not None
        document["messages"].append({"role": "assistant", "content": "Where to?"})
        document["budget"] = (250, 1_000)
        second = await backend.save("trip", document, metadata={"agent": "planner", "tags": ["draft", "travel"]})
        newest = await backend.load("trip")
        oldest = await backend.load("trip", first)
        print("newest       ", len((newest or {})["messages"]), "messages, budget", (newest or {})["budget"])
        print("the first one", len((oldest or {})["messages"]), "message")
        print("checkpoints  ", await backend.list_checkpoints("trip"))

        title("2. History: what was saved, when, from what, without loading it")
        for info in await backend.history("trip"):
            when = f"{info.created_at:%H:%M:%S}"
            print(f"version {info.version}, saved {when}, parent {info.parent}, metadata {info.metadata}")

        title("3. Several agents, one thread: nobody overwrites anybody unseen")
        try:
            await backend.save("trip", {"messages": []}, expected_version=1)
        except ConflictError as error:
            print("refused:", error)
        try:
            await backend.save("trip", {"callback": print})
        except SerializationError as error:
            print("refused:", error)

        title("4. Threads: pages and patterns, last written first")
        for user in ("alice", "bob", "carol"):
            for session in (1, 2):
                metadata = {"user": user, "paid": session == 2}
                await backend.save(f"user_{user}_{session}", {"user": user}, metadata=metadata)
        print("page 1       ", await backend.list_threads(limit=3))
        print("page 2       ", await backend.list_threads(limit=3, offset=3))
        print("alice's      ", await backend.list_threads(pattern="user_alice_*"))

        title("5. Metadata is found by value and type, also inside dicts and lists")
        for query in ({"user": "bob"}, {"paid": True}, {"paid": 1}, {"tags": ["travel"]}):
            rows = await backend.query_by_metadata(query)
            print(f"{query!s:22}", [row["thread_id"] for row in rows])

        title("6. A copy is a thread of its own")
        await backend.copy_thread("trip", "trip-b", upto=first)
        await backend.save("trip-b", {"messages": [], "note": "another way"})
        print("trip         ", len(await backend.list_checkpoints("trip")), "checkpoints")
        print("trip-b       ", await backend.load("trip-b"))
        await backend.delete("trip", second)
        print("after deleting the newest of trip:", len((await backend.load("trip") or {})["messages"]), "message")


async def states(url: str, tenant: str, folder: Path) -> None:
    title("7. A checkpointer stores states: any pydantic model, here an AgentState")
    state = AgentState(agent_id="planner").with_message(Message.user("Book a room in Lisbon"))
    call = ToolCall(name="find_rooms", arguments={"city": "Lisbon"})
    async with open_checkpointer(url, tenant=tenant) as checkpointer:
        await checkpointer.save(state, "booking")
        state = state.with_message(Message.assistant("Looking", tool_calls=[call])).with_iteration(1)
        await checkpointer.save(state, "booking")
        loaded = await checkpointer.load("booking")
        print("equal to what was saved:", loaded == state)
        print("asked for    ", loaded.last_tool_calls[0].name if loaded else None)
    for other in (MemoryCheckpointer(), FileCheckpointer(base_dir=folder / "checkpoints")):
        async with other:
            await other.save(state, "booking")
            print(f"{type(other).__name__:17}", "equal:", await other.load("booking") == state)


async def cost(url: str, tenant: str, folder: Path) -> None:
    title("8. What history costs: 200 steps of a conversation, every step kept")
    async with open_backend(url, tenant=tenant) as backend:
        messages: list[dict[str, str]] = []
        whole = 0
        for step in range(200):
            messages.append({"role": "user", "content": f"Question {step}: " + "why does it rain so much here? " * 12})
            messages.append({"role": "assistant", "content": f"Answer {step}: " + "because of the west wind. " * 16})
            document = {"step": step, "messages": messages}
            await backend.save("long", document)
            whole += len(json.dumps(document))
        stored = sum(info.size for info in await backend.history("long", limit=None))
        once = len(json.dumps(messages))
        print(f"the messages, once                  {once / 1000:10,.0f} KB")
        print(f"whole states would have stored      {whole / 1000:10,.0f} KB")
        print(f"locus_store stored                  {stored / 1000:10,.0f} KB, {whole / stored:.0f} times less")
        database = folder / "tour.db"
        if database.exists():
            await backend.vacuum(reclaim=True)
            size = sum(p.stat().st_size for p in folder.glob("tour.db*"))  # noqa: ASYNC240
            print(f"the whole database file             {size / 1000:10,.0f} KB")
        middle = (await backend.list_checkpoints("long", limit=None))[100]
        old = await backend.load("long", middle) or {}
        print("and any step is there, this one with", len(old["messages"]), "messages")


async def empty(url: str, tenant: str) -> None:
    async with open_backend(url, tenant=tenant) as backend:
        for thread_id in await backend.list_threads(limit=None):
            await backend.delete(thread_id)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = os.environ.get("LOCUS_STORE_URL") or f"sqlite:///{folder / 'tour.db'}"
        tenant = f"tour-{secrets.token_hex(4)}"
        try:
            await documents(url, tenant)
            await states(url, tenant, folder)
            await cost(url, tenant, folder)
        finally:
            await empty(url, tenant)
        print("\nThat was the tour.")


if __name__ == "__main__":
    asyncio.run(main())
