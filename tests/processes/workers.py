"""What the other processes do. Everything that they store says what it must look like, so that whoever loads it can tell.

They are forks of one process that has all imports behind it (`nursery`), so that killing fifty of them takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from elsewhere import connect

SHARED = "shared"
REBORN = "reborn"
TASKS = 3
"""How many tasks a process that is to be killed has."""


def entry(*name: Any) -> dict[str, Any]:
    """One element of a list, the same whenever it has the same name."""
    rng = random.Random("/".join(map(str, name)))
    return {"name": list(map(str, name)), "content": rng.randbytes(rng.randint(40, 160)).hex()}


def document(by: str, task: int, n: int) -> dict[str, Any]:
    """The n-th document of a task of a process: lists that grow, slide and are written anew."""
    return {
        "label": [by, task, n],
        "messages": [entry(by, task, j) for j in range(n + 1)],
        "window": [entry(by, task, "w", j) for j in range(max(0, n - 4), n + 1)],
        "all the same": [entry("everybody", j) for j in range(n % 7)],
        "own": [entry(by, task, n, "own")] * (n % 3),
    }


def check(found: dict[str, Any] | None, label: str | None = None) -> None:
    """Asserts that what was loaded is what was saved, by whomever; or nothing at all."""
    if found is not None:
        assert found == document(*found["label"]), f"not what was saved: {found['label']}"
        assert label in (None, label_of(*found["label"])), f"{label} is {found['label']}"


def label_of(by: str, task: int, n: int) -> str:
    return f"{by}/{task}/{n}"


def id_for(by: str, task: int, n: int, more: str = "") -> str | None:
    """Some checkpoints are named by their writers, most are not."""
    return None if task % 2 == 0 else label_of(by, task, n) + more


def check_named(found: dict[str, Any] | None, checkpoint_id: str) -> None:
    """The same for a checkpoint that may have been named by its writer."""
    check(found, checkpoint_id.split()[0] if "/" in checkpoint_id else None)


def say(word: str) -> None:
    """One line, in one piece: it is there whole even if this process is killed right afterwards."""
    os.write(1, f"{word}\n".encode())


# ------------------------------------------------------------------------------------------------------ many writers


def save_many(address: str, by: str, tasks: int, saves: int, start: str) -> None:
    """Saves to the shared thread from several tasks."""

    async def one_task(store: Any, task: int) -> None:
        for n in range(saves):
            began = time.monotonic()
            name = await store.save(SHARED, document(by, task, n), id_for(by, task, n))
            took = time.monotonic() - began
            say(json.dumps([name, label_of(by, task, n), took]))
            if n % 9 == task:
                check(await store.load(SHARED))

    async def main() -> None:
        async with connect(address) as store:
            wait_for(start)
            await asyncio.gather(*[one_task(store, task) for task in range(tasks)])

    asyncio.run(main())


def disturb(address: str, by: str, start: str, stop: str) -> None:
    """Reads, deletes checkpoints of other threads, and deletes and makes anew a thread, until it is told to stop."""

    async def read(store: Any) -> None:
        names = await store.list_checkpoints(SHARED, 50)
        for name in random.sample(names, min(3, len(names))):
            check_named(await store.load(SHARED, name), name)
        check(await store.load(SHARED))

    async def others(store: Any, n: int) -> None:
        thread = f"other {n % 3}"
        await store.save(thread, document(by, n % 2, n % 20), id_for(by, n % 2, n % 20))
        names = await store.list_checkpoints(thread, None)
        if len(names) > 8:
            await store.delete(thread, random.sample(names, 3))
        for name in names[:3]:
            check_named(await store.load(thread, name), name)

    async def reborn(store: Any, n: int) -> None:
        if n % 4 == 0:
            await store.delete(REBORN)
        for i in range(n % 5):
            await store.save(REBORN, document(by, n, i))
            check(await store.load(REBORN))
        for name in await store.list_checkpoints(REBORN):
            check(await store.load(REBORN, name))

    async def main() -> None:
        random.seed(os.urandom(8))
        async with connect(address) as store:
            wait_for(start)
            n = 0
            while n < 2 or not Path(stop).exists():
                await asyncio.gather(read(store), others(store, n), reborn(store, n))
                n += 1
            say(json.dumps([by, n]))

    asyncio.run(main())


def wait_for(path: str) -> None:
    """Lets several processes begin at the same moment."""
    while not Path(path).exists():
        time.sleep(0.002)


# -------------------------------------------------------------------------------------------------------- to be killed


def save_until_killed(address: str, by: str) -> None:
    """Saves as fast as it can; says after each save that it was acknowledged, and before each removal what may go."""

    async def one_task(store: Any, task: int) -> None:
        n = 0
        while True:
            label = by, task, n % 40
            name = await store.save(SHARED, document(*label), id_for(*label, f" {n // 40}"))
            say(json.dumps([name, label_of(*label)]))
            if n % 10 == 9:
                names = await store.list_checkpoints(SHARED, None)
                say(json.dumps({"removing": names[60:]}))
                await store.delete(SHARED, names[60:])
            n += 1

    async def main() -> None:
        store = connect(address)
        found = await store.load(SHARED)
        check(found)
        await asyncio.gather(*[one_task(store, task) for task in range(TASKS)])

    asyncio.run(main())


def call_once(address: str, method: str, arguments: list[Any], options: dict[str, Any]) -> None:
    """Calls one method; says so before and after, and then waits for its end."""

    async def main() -> None:
        store = connect(address)
        check(await store.load(SHARED))
        await store.delete("nobody")  # whatever it has to find out before its first change is found out
        say("begun")
        await getattr(store, method)(*arguments, **options)
        say("done")
        await asyncio.Event().wait()

    asyncio.run(main())


if __name__ == "__main__":
    getattr(sys.modules[__name__], sys.argv[1])(*json.loads(sys.argv[2]))
