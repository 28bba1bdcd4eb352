"""What `enable_search` costs on SQLite and PostgreSQL, and what a search takes.

    python benchmarks/search_cost.py                      # 10,000 messages in 100 threads
    python benchmarks/search_cost.py --threads 20 --messages 50

Each thread gets a checkpoint for every second message, as an agent saves after each turn. PostgreSQL is started with
the server's default settings (fsync on) on the disk that the temporary folder is on. Times are medians in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # where servers are started

from locus_store import PostgreSQLBackend, SQLiteBackend
from locus_store.core.backend import Backend

VOCABULARY = 20_000
WORDS = 60
"""So many words has a message."""
RARE, COMMON = "wordrare", "wordcommon"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=100)
    p.add_argument("--messages", type=int, default=100, help="in each thread")
    args = p.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| | " + " | ".join(COLUMNS) + " |\n|" + " --- |" * (len(COLUMNS) + 1))
    with tempfile.TemporaryDirectory(prefix="locus-store-search-") as folder:
        asyncio.run(
            measure(
                "SQLite",
                lambda name: SQLiteBackend(path=Path(folder) / f"{name}.db"),
                lambda name: sum(f.stat().st_size for f in Path(folder).glob(f"{name}.db*")),
                args,
            )
        )
        with contextlib.closing(_postgresql()) as server:
            urls: dict[str, str] = {}

            def opened(name: str) -> Backend:
                urls[name] = urls.get(name) or server.create_database()
                return PostgreSQLBackend(dsn=urls[name])

            def size(name: str) -> int:
                server.execute("CHECKPOINT", url=urls[name])
                return int(server.execute("SELECT pg_database_size(current_database())", url=urls[name])[0][0])

            asyncio.run(measure("PostgreSQL", opened, size, args))


COLUMNS = (
    "save",
    "save, enabled",
    "enabling per 1000 checkpoints, in s",
    "bytes of the store, in MB",
    "the index adds, in MB",
    "rare word",
    "common word",
    "phrase",
    "no hit",
    "one thread",
    "after 20 saves",
)


async def measure(
    title: str, opened: Callable[[str], Backend], size: Callable[[str], int], args: argparse.Namespace
) -> None:
    """Print one row."""
    row: list[str] = []
    async with opened("with") as store:
        # Interleaved, so that what else the machine does is in both.
        async with opened("without") as plain:
            await store.enable_search()
            times: dict[str, list[float]] = {"without": [], "with": []}
            for thread in range(max(1, args.threads // 10)):
                for n in range(2, args.messages + 1, 2):
                    document = conversation(thread, n)
                    both = [("without", plain), ("with", store)]
                    for name, one in both if n % 4 else reversed(both):
                        times[name].append(await taken(one.save, f"t{thread}", document))
        row += [f"{statistics.median(times[name]):.2f}" for name in ("without", "with")]
    async with opened("large") as store:
        checkpoints = 0
        for thread in range(args.threads):
            for n in range(2, args.messages + 1, 2):
                await store.save(f"t{thread}", conversation(thread, n))
                checkpoints += 1
    before = size("large")
    async with opened("large") as store:
        await store.exists("t0")
        row.append(f"{await taken(store.enable_search) / checkpoints:.2f}")
    row += [f"{before / 1e6:.1f}", f"{(size('large') - before) / 1e6:.1f}"]
    async with opened("large") as store:
        await store.search("warm up")
        searches: list[float]
        for query, pattern in (
            (RARE, "*"),
            (COMMON, "*"),
            (f'"{COMMON} {COMMON}"', "*"),
            ("wordnobodysaid", "*"),
            (COMMON, "t1"),
        ):
            searches = [await taken(store.search, query, 10, pattern) for _ in range(7)]
            row.append(f"{statistics.median(searches):.1f}")
        searches = []
        for attempt in range(5):
            for n in range(20):
                await store.save(f"new{attempt}x{n}", conversation(1000 + n, 2))
            searches.append(await taken(store.search, RARE))
        row.append(f"{statistics.median(searches):.1f}")
    print(f"| {title} | " + " | ".join(row) + " |", flush=True)


def conversation(thread: int, count: int) -> dict[str, Any]:
    """The first messages of a thread, always the same."""
    rng = random.Random(thread)
    messages = []
    for n in range(count):
        # Few words are frequent, as in a language.
        words = [f"word{int(VOCABULARY ** rng.random()):05}" for _ in range(WORDS)]
        if n % 10 == 0:
            words[7:9] = [COMMON, COMMON]
        if thread % 50 == 3 and n == 7:
            words[20] = RARE
        messages.append({"role": "user" if n % 2 == 0 else "assistant", "content": " ".join(words)})
    return {"messages": messages}


async def taken(call: Callable[..., Awaitable[Any]], *args: Any) -> float:
    """How many milliseconds a call takes."""
    start = time.perf_counter()
    await call(*args)
    return 1000 * (time.perf_counter() - start)


def _postgresql() -> Any:
    import servers

    return servers.start_postgresql({"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"})


if __name__ == "__main__":
    main()
