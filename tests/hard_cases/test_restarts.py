"""The server goes away in the middle of saves, in order or by a crash, and comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from locus_store import BackendUnavailableError, open_backend

# What a server acknowledged must survive its crash; the machine does not crash here, so nothing is forced to the disk.
SETTINGS = {
    "postgresql": {"synchronous_commit": "on", "full_page_writes": "on"},
    "mariadb": {"innodb-flush-log-at-trx-commit": "1"},
}


def document(task: int, i: int) -> dict[str, Any]:
    return {"task": task, "messages": [f"line {n} of {task}" for n in range(i)]}


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(("saves", "restarts"), [(200, 1), pytest.param(1000, 5, marks=pytest.mark.endurance)])
async def test_a_restart_in_the_middle_of_saves(request, name, how, saves, restarts):
    """Each save raised or is there, whole; the first call after the server came back works."""
    server = request.getfixturevalue(f"new_{name}")(SETTINGS[name])
    acknowledged: dict[str, tuple[int, int]] = {}
    failed: dict[str, tuple[int, int]] = {}
    running = asyncio.Event()
    running.set()

    async def write(store: Any, task: int) -> None:
        for i in range(saves // 4):
            try:
                await store.save("t", document(task, i), f"{task}-{i}", metadata={"task": task})
            except BackendUnavailableError:
                failed[f"{task}-{i}"] = (task, i)
                await running.wait()
            else:
                acknowledged[f"{task}-{i}"] = (task, i)

    async def disturb(store: Any) -> None:
        for n in range(restarts):
            while len(acknowledged) + len(failed) < saves * (n + 1) // (restarts + 1):
                await asyncio.sleep(0.002)
            running.clear()
            await asyncio.to_thread(getattr(server, how))
            await asyncio.to_thread(server.start)
            assert await store.load("t") is not None
            running.set()

    async with open_backend(server.create_database()) as store:
        await store.save("t", {}, "first")
        await asyncio.gather(*[write(store, task) for task in range(4)], disturb(store))
        found = await store.list_checkpoints("t", None)
        assert len(acknowledged) + len(failed) == saves
        assert len(acknowledged) > saves // 2
        assert len(found) == len(set(found))
        assert acknowledged.keys() <= set(found) <= acknowledged.keys() | failed.keys() | {"first"}
        for checkpoint_id in set(found) - {"first"}:
            task, i = acknowledged.get(checkpoint_id) or failed[checkpoint_id]
            assert await store.load("t", checkpoint_id) == document(task, i)
        await store.save("t", {}, "last")
        assert (await store.list_checkpoints("t"))[0] == "last"
