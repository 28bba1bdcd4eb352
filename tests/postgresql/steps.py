"""Saves as an agent makes them: each adds a line to what the one before has, under an id drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drivers.plans import KEY, base_of, document, grown, make_plan, ranges_of, tick

from locus_store.core.driver import Base, Driver, Key, Plan, Saved
from locus_store.core.ids import new_checkpoint_id
from locus_store.core.references import Range

Reused = dict[int, list[Range]]


def fresh(*lines: str, base: Base | None = None, reused: Reused | None = None, key: Key = KEY, **options: Any) -> Plan:
    """A plan under a new id."""
    new = {1: lines} if lines else None
    return make_plan(new_checkpoint_id(), new, reused, base=base, key=key, **({"fresh_id": True} | options))


async def save(driver: Driver, plan: Plan, key: Key = KEY) -> Saved:
    result = await driver.put(key, plan)
    assert isinstance(result, Saved), result
    return result


async def lines(driver: Driver, checkpoint_id: str | None = None, key: Key = KEY) -> list[str] | None:
    """What the one list of a checkpoint holds, or None."""
    stored = await driver.get(key, checkpoint_id, now=tick())
    return None if stored is None else document(stored, key).get(1, [])


async def chain(driver: Driver, key: Key = KEY) -> list[tuple[int, str, str | None]]:
    """Version, id and parent of all checkpoints, oldest first."""
    found = await driver.infos(key, before=None, limit=None, now=tick())
    return [(i.version, i.checkpoint_id, i.parent) for i in reversed(found)]


class Writer:
    """One process as it sees a thread: it remembers what it saved last, which may be gone by now."""

    def __init__(self, driver: Driver, name: str, key: Key = KEY) -> None:
        self.driver = driver
        self.name = name
        self.key = key
        self.saved: dict[str, list[str]] = {}
        self._count = 0
        self._base: Base | None = None
        self._reused: Reused = {}
        self._lines: list[str] = []

    async def step(self) -> str:
        """Save one line more than what is remembered, or than what is there if that is gone; returns the id."""
        self._count += 1
        line = f"{self.name}{self._count}"
        while True:
            plan = fresh(line, base=self._base, reused=self._reused, key=self.key)
            wanted = [*self._lines, line]
            result = await self.driver.put(self.key, plan)
            if isinstance(result, Saved):
                self.saved[plan.checkpoint_id] = wanted
                self._base, self._lines = grown(plan, result), wanted
                own = Range(result.block, result.block)
                self._reused = {1: _joined([*self._reused.get(1, []), own])}
                return plan.checkpoint_id
            await self.load()

    async def load(self) -> None:
        """Remember what is there."""
        stored = await self.driver.get(self.key, None, now=tick())
        found = document(stored, self.key).get(1, []) if stored else []
        self._base, self._reused, self._lines = (
            (base_of(stored), ranges_of(stored), found)
            if stored and found
            else (
                None,
                {},
                [],
            )
        )

    async def check(self, ids: Sequence[str] | None = None) -> None:
        """What is loaded is what was saved, or nothing."""
        for checkpoint_id in self.saved if ids is None else ids:
            found = await lines(self.driver, checkpoint_id, self.key)
            assert found is None or found == self.saved[checkpoint_id]


def _joined(ranges: list[Range]) -> list[Range]:
    """Neighbours of one writer's that follow each other as one range."""
    *before, last = ranges
    if before and before[-1].last + 1 == last.first and before[-1].end is None:
        before[-1] = before[-1]._replace(last=last.last)
        return before
    return ranges
