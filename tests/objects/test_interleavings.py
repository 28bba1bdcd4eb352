"""Two writers whose requests are carried out in any order: nothing that was acknowledged is lost, nothing else comes back.

Each writer is a process of its own to the store: two drivers over one bucket. Hypothesis says what they do, and whose
request is carried out next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend
from locus_store.core.clock import IncreasingClock

HOUR = 3_600_000_000
COPIED = {"by": "source"}


class TurnPort(MemoryPort):
    """A port whose requests wait for their turn."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.waiting: list[asyncio.Future[None]] = []

    async def _called(self, verb: str, key: str) -> int:
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn
        return await super()._called(verb, key)


@dataclass
class Done:
    """What one call did, and the turns in which it began and ended."""

    what: str
    name: str
    content: Any
    began: int
    ended: int = 10**9
    failed: bool = False


@dataclass
class Race:
    """Two writers of one thread."""

    turns: Sequence[int]
    bucket: Bucket = field(default_factory=lambda: Bucket(pauses=False))
    log: list[Done] = field(default_factory=list)
    at: int = 0

    async def run(self, first: Sequence[str], second: Sequence[str]) -> None:
        ports = [TurnPort(self.bucket), TurnPort(self.bucket)]
        drivers = [ObjectDriver(port) for port in ports]
        for driver in drivers:
            driver._probed = True
        works = zip(drivers, (first, second), strict=True)
        tasks = [asyncio.ensure_future(self._work(Backend(d), steps, i)) for i, (d, steps) in enumerate(works)]
        while not all(task.done() for task in tasks):
            for _ in range(12):
                await asyncio.sleep(0)
            ready = [port for port in ports if port.waiting]
            if not ready:
                await asyncio.sleep(0.0005)  # somebody lets the other go first
                continue
            choice = self.turns[self.at % len(self.turns)] if self.turns else self.at
            self.at += 1
            ready[choice % len(ready)].waiting.pop(0).set_result(None)
        for task in tasks:
            await task

    async def _work(self, store: Backend, steps: Sequence[str], writer: int) -> None:
        for n, step in enumerate(steps):
            content = {"by": f"{writer}-{n}"}
            name = {"save": f"c{writer}-{n}", "copy": "copied"}.get(step, "x")
            done = Done(step, name, COPIED if step == "copy" else content, self.at)
            self.log.append(done)
            await self._step(store, done)
            done.ended = self.at

    async def _step(self, store: Backend, done: Done) -> None:
        call: Awaitable[Any]
        match done.what:
            case "save":
                call = store.save("t", done.content, done.name)
            case "shared":
                call = store.save("t", done.content, "x")
            case "in place":
                call = store.save("t", done.content, "x", if_exists="in_place")
            case "delete x":
                call = store.delete("t", "x")
            case "vacuum":
                call = store.vacuum(older_than_days=3650)
            case "copy":
                call = store.copy_thread("source", "t", overwrite=True)
            case "records":
                call = store.put_records("t", "s", {done.content["by"]: 1})
            case _:
                call = store.delete("t")
        await call


def check_one(log: Sequence[Done], name: str, found: Any) -> None:
    """Whether what is found under an id can be what is left after all calls."""
    saves = [d for d in log if d.name == name and d.what in ("save", "shared", "in place", "copy")]
    removals = [
        d
        for d in log
        if d.what == "delete" or (d.what, name) == ("delete x", "x") or (d.what == "copy" and name != "copied")
    ]
    if found is None:
        assert not saves or any(all(r.ended >= s.began for s in saves) for r in removals), f"{name} is lost"
        return
    ended = max(s.ended for s in saves if s.content == found)
    assert not [s for s in saves if s.began > ended], f"{name} has an older content"
    assert not [r for r in removals if r.began > ended], f"{name} came back"


WHAT = ["save", "save", "shared", "in place", "delete x", "delete", "copy", "records", "vacuum"]
STEPS = st.lists(st.sampled_from(WHAT), max_size=4)


@given(first=STEPS, second=STEPS, turns=st.lists(st.integers(0, 1), max_size=60))
@settings(max_examples=150)
def test_two_writers(first: list[str], second: list[str], turns: list[int]) -> None:
    async def run() -> None:
        race = Race(turns)
        await Backend(ObjectDriver(MemoryPort(race.bucket))).save("source", COPIED, "copied")
        await race.run(first, second)
        store = Backend(ObjectDriver(MemoryPort(race.bucket)))
        history = await store.history("t", limit=None)
        versions = [i.version for i in history]
        assert versions == sorted(set(versions), reverse=True)
        names = [i.checkpoint_id for i in history]
        assert len(names) == len(set(names))
        assert set(names) <= {d.name for d in race.log}
        for name in {d.name for d in race.log}:
            found = await store.load("t", name)
            assert (found is not None) == (name in names)
            check_one(race.log, name, found)
        assert sorted(await store.list_threads()) == ["source", *(["t"] if names else [])]
        removals = [d for d in race.log if d.what in ("delete", "copy")]
        for done in race.log:
            if done.what == "records" and not any(r.ended >= done.began for r in removals):
                gone = any(d.what == "delete x" and d.ended >= done.began for d in race.log)  # perhaps the last one
                assert gone or done.content["by"] in await store.records("t", "s")
        later = time.time_ns() // 1000 + 3 * HOUR
        sweeper = Backend(ObjectDriver(MemoryPort(race.bucket)), clock=IncreasingClock(lambda: later))
        await sweeper.vacuum(older_than_days=3650)
        assert [i.version for i in await store.history("t", limit=None)] == versions
        ours = [key for key in race.bucket.objects if "/d/t/" in key or ("/m/" in key and key.endswith(".t"))]
        left = [key.split("/d/t/")[-1] for key in ours]
        records = [key for key in left if key.startswith("r/")]
        if names:
            assert len(left) - len(records) in (2 * len(names) + 1, 2 * len(names) + 2), left
        assert len(records) <= 1, left

    asyncio.run(run())
