"""How many calls to the server the hot paths take, counted on the stand-in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import servers
from oracle.oracle_standin import JOURNAL, install
from oracle.oracle_standin.backend import StandInBackend


@pytest.fixture
async def store(postgresql_server: servers.PostgreSQLServer) -> AsyncIterator[StandInBackend]:
    postgresql_server.ensure_running()
    url = postgresql_server.create_database()
    servers.run_apart(install(url))
    servers.note_ran("oracle-standin", f"over PostgreSQL {postgresql_server.version}; no Oracle")
    async with StandInBackend(url) as made:
        await made.setup()
        yield made
    postgresql_server.drop_database(url)


async def calls(call: Any) -> int:
    before = JOURNAL.calls
    await call
    return JOURNAL.calls - before


async def test_a_small_save_is_one_call_the_first_and_those_that_reuse_blocks(store: StandInBackend) -> None:
    messages = ["m" * 300]
    assert await calls(store.save("t", {"m": messages}, metadata={"a": 1, "b": [2, 3]})) == 1
    for i in range(3):
        messages.append(f"{i}" * 300)
        assert await calls(store.save("t", {"m": messages})) == 1
    assert await store.load("t") == {"m": messages}


async def test_a_large_save_is_a_call_more_for_each_large_piece(store: StandInBackend) -> None:
    assert await calls(store.save("t", {"m": ["m" * 40_000]})) == 2
    assert await calls(store.save("u", {"m": ["m" * 40_000]}, metadata={"note": "n" * 40_000})) == 3
    assert await store.load("t") == {"m": ["m" * 40_000]}
    found = await store.query_by_metadata({"note": "n" * 40_000})
    assert [info["thread_id"] for info in found] == ["u"]


async def test_a_load_and_listings_are_one_statement_each(store: StandInBackend) -> None:
    for i in range(3):
        await store.save("t", {"m": ["m" * 300] * (i + 1)}, metadata={"i": i})
    assert await calls(store.load("t")) == 1
    assert await calls(store.list_checkpoints("t")) == 1
    assert await calls(store.list_threads()) == 1
    assert await calls(store.query_by_metadata({"i": 2})) == 1
