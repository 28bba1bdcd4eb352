"""What history costs in object storage, where every checkpoint is a whole compressed document in an object of its own.

    python benchmarks/object_history.py
    python benchmarks/object_history.py --steps 50,200

It starts a SeaweedFS of its own, saves the thread of W1 (two messages of 1 KB a step, every step kept), and prints
what the bucket holds at each mark, and what saves, loads and listings took: milliseconds (medians), requests, and how
many of these wait for one another. A store that wrote nothing, and so knows nothing of the thread, loads and lists.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "objects"))

import s3_ports
import s3_servers
import workload

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.port import PAGE, Object, ObjectPort, Page, all_listed
from locus_store.core.backend import Backend

PREFIX = "history/"
REPEATS = 10
LAST = 20


class Cost(NamedTuple):
    """What one call took: milliseconds, requests by kind, and turns: requests that are under way together are one."""

    ms: float
    requests: Counter[str]
    turns: int


class CountingPort(ObjectPort):
    """A port that counts the requests of another one."""

    def __init__(self, port: ObjectPort) -> None:
        self._port = port
        self._requests: Counter[str] = Counter()
        self._turns = 0
        self._under_way = 0

    @contextlib.contextmanager
    def _counted(self, kind: str, count: int = 1) -> Iterator[None]:
        self._requests[kind] += count
        self._turns += self._under_way == 0
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        with self._counted("put"):
            return await self._port.put(key, data, new=new)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        with self._counted("get"):
            return await self._port.get(key, start=start, end=end)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        with self._counted("list"):
            return await self._port.list(prefix, after=after, limit=limit)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._counted("delete", -(-len(keys) // PAGE)):
            await self._port.delete(keys)

    async def aclose(self) -> None:
        await self._port.aclose()

    async def cost(self, call: Callable[[], Awaitable[Any]]) -> tuple[Any, Cost]:
        """What a call gave, and what it took."""
        self._requests, self._turns = Counter(), 0
        began = time.perf_counter()
        found = await call()
        return found, Cost((time.perf_counter() - began) * 1e3, self._requests, self._turns)


class Mark(NamedTuple):
    """A mark of the thread: its document, and the bytes of its messages, and of all documents so far, as JSON."""

    step: int
    document: dict[str, Any]
    messages: int
    documents: int


def thread(marks: Sequence[int]) -> Iterator[Mark]:
    """All steps of the thread."""
    held: list[dict[str, Any]] = []
    messages = documents = 0
    for step, added in enumerate(workload.steps(7, marks[-1]), 1):
        held = [*held, *added]
        messages += sum(len(json.dumps(message, separators=(",", ":"))) for message in added)
        documents += messages
        yield Mark(
            step, {"run_id": "w1", "agent_id": "bench", "iteration": step, "messages": held}, messages, documents
        )


async def run(port: CountingPort, marks: Sequence[int]) -> None:
    """Saves the thread, and prints the tables."""
    writer = Backend(ObjectDriver(port, prefix=PREFIX))
    await writer.setup()
    await writer.save("warm", {"messages": workload.turn(1)})
    row("steps", "messages, MB", "all documents, MB", "bucket, MB", "objects", "call", "ms", "requests", "turns")
    row(*["---:"] * 5, "---", "---:", "---", "---:")
    saves: list[Cost] = []
    for mark in thread(marks):
        name = f"c{mark.step}"
        _, cost = await port.cost(lambda document=mark.document, name=name: writer.save("w1", document, name))  # type: ignore[misc]
        saves.append(cost)
        if mark.step not in marks:
            continue
        listed = await all_listed(port, PREFIX)
        sizes = [mark.messages, mark.documents, sum(one.size for one in listed)]
        first = [str(mark.step), *(f"{size / 1e6:.2f}" for size in sizes), str(len(listed))]
        row(*first, f"save (last {LAST})", *shown(saves[-LAST:]))
        for call, costs in (await reads(port, mark)).items():
            row(*[""] * len(first), call, *shown(costs))


async def reads(port: CountingPort, mark: Mark) -> dict[str, list[Cost]]:
    """What a store that knows nothing of the thread takes to read it."""

    def store() -> Backend:
        return Backend(ObjectDriver(port, prefix=PREFIX))

    middle = mark.step // 2
    calls: dict[str, tuple[Callable[[], Awaitable[Any]], Callable[[Any], bool]]] = {
        "load newest": (lambda: store().load("w1"), lambda got: bool(got == mark.document)),
        "load by id (middle)": (
            lambda: store().load("w1", f"c{middle}"),
            lambda got: bool(got["messages"] == mark.document["messages"][: 2 * middle]),
        ),
        "list 10": (lambda: store().list_checkpoints("w1", 10), lambda got: len(got) == 10),
        "exists": (lambda: store().exists("w1"), bool),
    }
    found = {}
    for name, (call, is_right) in calls.items():
        answers = [await port.cost(call) for _ in range(REPEATS)]
        if not all(is_right(answer) for answer, _ in answers):
            raise AssertionError(f"{name} gave something else than what was saved")
        found[name] = [cost for _, cost in answers]
    return found


def shown(costs: Sequence[Cost]) -> list[str]:
    """Milliseconds, requests and turns."""
    total = sum((cost.requests for cost in costs), Counter[str]())
    kinds = " + ".join(f"{count / len(costs):.3g} {kind}" for kind, count in total.items())
    turns = statistics.mean([cost.turns for cost in costs])
    return [f"{statistics.median([cost.ms for cost in costs]):.1f}", kinds, f"{turns:.3g}"]


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


async def measure(server: s3_servers.S3Server, marks: Sequence[int]) -> None:
    port = CountingPort(s3_ports.s3_port(server))
    try:
        await run(port, marks)
    finally:
        await port.aclose()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", default="50,200,500", help="marks")
    marks = [int(step) for step in p.parse_args().steps.split(",")]
    server = s3_servers.SeaweedFS()
    print(server.version, flush=True)
    with contextlib.closing(server):
        asyncio.run(measure(server, marks))


if __name__ == "__main__":
    main()
