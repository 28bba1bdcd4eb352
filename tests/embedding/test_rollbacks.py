"""What the process remembers may be wrong after a rollback; what it loads and saves next is right all the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from embedding.hosts import Begin, Host, opener
from sqlalchemy.ext.asyncio import AsyncSession

from locus_store.core.backend import Backend

LONG = "words that take some space, so that they are stored once only " * 6


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": f"{text} {LONG}"}


async def test_saves_after_a_rollback_and_a_foreign_save(host: Host, store: Backend, begin: Begin):
    """Both give out the same version and the same number of a block; the undone one must not be taken for the other."""
    elsewhere = host.own()
    common = [message("common")]
    await store.save("t", {"messages": common}, "base")
    async with begin(store) as transaction:
        await transaction.call("save", "t", {"messages": [*common, message("undone")]}, "undone")
        await transaction.rollback()
    await elsewhere.save("t", {"messages": [*common, message("foreign")]}, "foreign")
    mine = [*common, message("undone"), message("mine")]
    async with begin(store) as transaction:
        await transaction.call("save", "t", {"messages": mine}, "mine")
        await transaction.commit()
    for reader in (store, elsewhere, host.own()):
        assert await reader.load("t", "mine") == {"messages": mine}
        assert await reader.load("t", "foreign") == {"messages": [*common, message("foreign")]}
        assert await reader.load("t", "undone") is None


async def test_a_rollback_of_the_first_save(store: Backend, begin: Begin):
    async with begin(store) as transaction:
        await transaction.call("save", "t", {"messages": [message("undone")]})
        await transaction.rollback()
        await transaction.call("save", "t", {"messages": [message("undone"), message("kept")]})
        await transaction.commit()
    assert await store.load("t") == {"messages": [message("undone"), message("kept")]}


async def test_a_rollback_of_a_removal(host: Host, store: Backend, begin: Begin):
    """The epoch that the removal drew is undone, too."""
    for i in range(3):
        await store.save("t", {"messages": [message(str(j)) for j in range(i, i + 2)]}, str(i))
    async with begin(store) as transaction:
        assert await transaction.call("delete", "t", ["0", "2"]) is True
        await transaction.rollback()
    await store.save("t", {"messages": [message(str(j)) for j in range(4)]}, "after")
    for reader in (store, host.own()):
        assert await reader.load("t", "after") == {"messages": [message(str(j)) for j in range(4)]}
        assert await reader.load("t", "0") == {"messages": [message("0"), message("1")]}


async def test_a_savepoint_of_the_host(host: Host, store: Backend):
    """The host may set savepoints; what is undone by one is undone for the store."""
    if host.place.name == "sqlite":
        pytest.skip("SQLite's client begins no transaction before a savepoint, unless the host makes it")
    async with AsyncSession(host.engine()) as session:
        bound = store.bind(session)
        await bound.save("t", {"messages": [message("kept")]}, "kept")
        savepoint = await session.begin_nested()
        await bound.save("t", {"messages": [message("kept"), message("undone")]}, "undone")
        await savepoint.rollback()
        await bound.save("t", {"messages": [message("kept"), message("undone"), message("last")]}, "last")
        await session.commit()
    assert await store.list_checkpoints("t") == ["last", "kept"]
    assert await store.load("t") == {"messages": [message("kept"), message("undone"), message("last")]}


# --------------------------------------------------------------------------------------------------------- at random


class Life:
    """Stores that write to the same few threads, bound and by themselves, with rollbacks, and what must be there."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0
        self.there: dict[str, dict[str, Any]] = {}

    def document(self, thread: str) -> dict[str, Any]:
        """One that grows out of another of the thread, as an agent's does."""
        known = list(self.there.get(thread, {}).values())
        start = list(self.rng.choice(known)["messages"]) if known and self.rng.random() < 0.8 else []
        kept = start[self.rng.choice([0, 0, 1]) : len(start) - self.rng.choice([0, 0, 1])]
        self.count += 1
        return {"messages": [*kept[-6:], message(f"m{self.count}")], "n": self.count}

    async def act(self, call: Callable[..., Any], *, check: bool) -> None:
        """Does one thing to a store and to the model."""
        thread = self.rng.choice(["a", "b"])
        found = self.there.setdefault(thread, {})
        what = self.rng.random()
        if what < 0.6:
            document = self.document(thread)
            name = self.rng.choice(list(found)) if found and self.rng.random() < 0.2 else f"c{self.count}"
            await call("save", thread, document, name)
            found[name] = document
        elif what < 0.8 and found:
            name = self.rng.choice(list(found))
            assert await call("load", thread, name) == found[name]
        elif what < 0.97 and found:
            gone = self.rng.sample(list(found), min(len(found), self.rng.randint(1, 3)))
            assert await call("delete", thread, gone) is True
            for name in gone:
                del found[name]
        elif found:
            assert await call("delete", thread) is True
            found.clear()
        if check:
            await self.check(call)

    async def check(self, call: Callable[..., Any]) -> None:
        for thread in ("a", "b"):
            found = self.there.get(thread, {})
            assert set(await call("list_checkpoints", thread, None)) == set(found)
            for name, document in found.items():
                assert await call("load", thread, name) == document


@pytest.mark.parametrize("kind", ["AsyncSession", "Session"])
@pytest.mark.parametrize("seed", range(3))
async def test_anything_is_undone_at_any_moment(host: Host, seed: int, kind: str):
    rng = random.Random(f"{seed} {kind}")
    life = Life(rng)
    stores = [host.own(), host.own()]
    begin = opener(host, kind)

    def own(store: Backend) -> Callable[..., Any]:
        return lambda name, *args: getattr(store, name)(*args)

    for _ in range(40):
        if rng.random() < 0.5:
            await life.act(own(rng.choice(stores)), check=False)
            continue
        before = {thread: dict(found) for thread, found in life.there.items()}
        async with begin(rng.choice(stores)) as transaction:
            for _ in range(rng.randint(1, 4)):
                await life.act(transaction.call, check=rng.random() < 0.1)
            if rng.random() < 0.5:
                await transaction.commit()
            else:
                await transaction.rollback()
                life.there = before
                if rng.random() < 0.5:  # the same session goes on in a new transaction
                    await life.act(transaction.call, check=False)
                    await transaction.commit()
        if rng.random() < 0.2:
            await life.check(own(rng.choice(stores)))
    for store in (*stores, host.own()):
        await life.check(own(store))
