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
from collections.abc import Awaitable, Callable
from functools import partial
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
    state = state.with_tool_execution(execution).with_reasoning_step(thought)
    return state.with_confidence(rng.random()).with_iteration(step)


async def measure(url: str, size: Callable[[], Awaitable[int]]) -> None:
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
    stored = await size()
    entries = len(state.model_dump_json(include=set(LISTS)).encode())
    first, last = statistics.median(times[:20]) * 1e3, statistics.median(times[-20:]) * 1e3
    print(
        f"{url.split(':')[0]:12} entries {entries / 1e6:6.2f} MB  stored {stored / 1e6:6.2f} MB"
        f"  {stored / entries:5.2f} x   save {statistics.median(times) * 1e3:5.2f} ms"
        f"  (first 20: {first:.2f}, last 20: {last:.2f})"
    )


async def postgresql_size(url: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM FULL")
    total = await connection.fetchval(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'locus_store%'"
    )
    await connection.close()
    return int(total)


async def sqlite_size(path: Path) -> int:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


async def folder_size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def main() -> None:
    for url in sys.argv[1:]:
        asyncio.run(measure(url, partial(postgresql_size, url)))
    if not sys.argv[1:]:
        with tempfile.TemporaryDirectory() as name:
            database, files = Path(name) / "db.sqlite", Path(name) / "files"
            asyncio.run(measure(f"sqlite:///{database}", partial(sqlite_size, database)))
            asyncio.run(measure(f"file://{files}", partial(folder_size, files)))


if __name__ == "__main__":
    main()
