"""How much of an agent's history is stored, when its state grows in five lists at once.

    python benchmarks/five_lists.py [URL …]

Each step of an `AgentState` adds two messages, a tool execution, a reasoning step, a confidence and a tool's name, and
is saved. The table compares the bytes that the store holds with the bytes of the entries themselves as JSON. Without a
URL it runs on a SQLite file and on files. On PostgreSQL the tables are measured after VACUUM FULL.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import workload

from locus_store import AgentState, Message, ReasoningStep, ToolCall, ToolExecution, open_backend

STEPS = 500
LISTS = ("messages", "tool_executions", "reasoning_steps", "confidence_history", "tool_history")


def grow(state: AgentState, step: int, rng: Random) -> AgentState:
    prose, rows = workload._prose(rng, 700), workload._rows(rng, 1000)
    call = ToolCall(name=rng.choice(workload._TOOLS), arguments={"query": workload._sentence(rng), "limit": step})
    state = state.with_message(Message.assistant(prose, tool_calls=[call]))
    state = state.with_message(Message(role="tool", content=rows, tool_call_id=call.id, name=call.name))
    execution = ToolExecution(
        tool_name=call.name, tool_call_id=call.id, arguments=call.arguments, result=rows, duration_ms=rng.random() * 900
    )
    thought = ReasoningStep(iteration=step, thought=workload._prose(rng, 400))
    return state.with_tool_execution(execution).with_reasoning_step(thought).with_confidence(rng.random()).with_iteration(step)


async def measure(url: str, size: object) -> None:
    rng = Random(5)
    state, times = AgentState(agent_id="bench", max_iterations=STEPS), []
    async with open_backend(url, tenant="bench") as backend:
        await backend.setup()
        checkpointer = backend.checkpointer()
        for step in range(STEPS):
            state = grow(state, step, rng)
            began = time.perf_counter()
            await checkpointer.save(state, "five")
            times.append(time.perf_counter() - began)
        assert await checkpointer.load("five") == state
        stored = await size(backend) if asyncio.iscoroutinefunction(size) else size(backend)
    dumped = state.model_dump_json(include=set(LISTS))
    entries = len(dumped.encode())
    first, last = statistics.median(times[:20]) * 1e3, statistics.median(times[-20:]) * 1e3
    print(
        f"{url.split(':')[0]:12} entries {entries / 1e6:6.2f} MB  stored {stored / 1e6:6.2f} MB"
        f"  {stored / entries:5.2f} x   save {statistics.median(times) * 1e3:5.2f} ms"
        f"  (first 20: {first:.2f}, last 20: {last:.2f})"
    )


async def postgresql_size(backend: object, url: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM FULL")
    total = await connection.fetchval(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'locus_store%'"
    )
    await connection.close()
    return int(total)


def main() -> None:
    if sys.argv[1:]:
        for url in sys.argv[1:]:

            async def size(backend: object, url: str = url) -> int:
                return await postgresql_size(backend, url)

            asyncio.run(measure(url, size))
        return
    with tempfile.TemporaryDirectory() as name:
        database, files = Path(name) / "db.sqlite", Path(name) / "files"

        def sqlite_size(_: object) -> int:
            connection = sqlite3.connect(database, isolation_level=None)
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
            return database.stat().st_size

        asyncio.run(measure(f"sqlite:///{database}", sqlite_size))
        asyncio.run(measure(f"file://{files}", lambda _: sum(p.stat().st_size for p in files.rglob("*") if p.is_file())))


if __name__ == "__main__":
    main()
