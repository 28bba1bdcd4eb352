"""Flags, tested both ways: what is declared works, what is not declared says so."""

from __future__ import annotations

import dataclasses
import os

import pytest
from elsewhere import connect

from locus_store.core.errors import TransactionNotAllowedError, UnsupportedOperationError

SDK = [
    "search",
    "metadata_query",
    "vacuum",
    "branching",
    "ttl",
    "list_threads",
    "list_with_metadata",
    "persistent_checkpoint_ids",
]


async def fill(store):
    await store.save("t", {"n": 1, "words": "needle in a haystack"}, "c", {"k": 1})


async def search(store):
    await store.enable_search()
    await fill(store)
    assert [hit["thread_id"] for hit in await store.search("needle")] == ["t"]


async def metadata_query(store):
    await fill(store)
    assert len(await store.query_by_metadata("k", 1)) == 1
    assert (await store.get_metadata("t"))["metadata"] == {"k": 1}


async def vacuum(store):
    await fill(store)
    assert await store.vacuum(older_than_days=0, keep_last=0) == 1


async def branching(store):
    await fill(store)
    assert await store.copy_thread("t", "u") is True


async def list_threads(store):
    await fill(store)
    assert await store.list_threads() == ["t"]


async def list_with_metadata(store):
    await fill(store)
    assert [r["metadata"] for r in await store.list_with_metadata()] == [{"k": 1}]


async def persistent_checkpoint_ids(store):
    await fill(store)
    assert await store.load("t", "c") is not None


async def records(store):
    await store.put_records("t", "s", {"k": 1})
    assert await store.records("t", "s") == {"k": 1}


async def reclaim(store):
    await store.save("t", {"b": os.urandom(3_000_000)})
    await store.delete("t")
    assert (await store.vacuum(reclaim=True)).bytes_freed > 1_000_000


async def transactions(store):
    """What can be bound says what to; how it works is in tests/embedding, and in the places that are sessions."""
    with pytest.raises(TypeError, match=r"takes an AsyncSession, AsyncConnection, Session or Connection, got object"):
        store.bind(object())


OPERATIONS = [
    search,
    metadata_query,
    vacuum,
    branching,
    list_threads,
    list_with_metadata,
    persistent_checkpoint_ids,
    records,
    reclaim,
    transactions,
]


def test_they_are_those_of_the_table(store, place):
    assert store.capabilities == place.capabilities
    assert store.checkpointer().capabilities == place.capabilities
    assert store.tenant("acme").capabilities == place.capabilities


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)
async def test_what_is_declared_works_and_what_is_not_says_so(store, operation):
    if getattr(store.capabilities, operation.__name__):
        await operation(store)
    else:
        with pytest.raises(UnsupportedOperationError, match=f"does not support .*{operation.__name__}"):
            await operation(store)


async def test_ttl(open_store, clock):
    store = open_store(clock=clock, ttl_seconds=1)
    assert store.capabilities.ttl
    await fill(store)
    clock.advance(seconds=2)
    assert await store.exists("t") is False


async def test_incremental(store, place):
    messages = [{"content": os.urandom(500).hex()} for _ in range(50)]
    await store.save("t", {"messages": messages})
    before = place.size()
    await store.save("t", {"messages": [*messages, {"content": "new"}]})
    assert (place.size() - before < 1000) is store.capabilities.incremental


async def test_persistent_and_shared(store, place):
    await fill(store)
    await store.close()
    async with connect(place.address) as from_elsewhere:
        assert await from_elsewhere.exists("t") is store.capabilities.shared is store.capabilities.persistent


def test_the_first_eight_are_the_sdks(store):
    assert [f.name for f in dataclasses.fields(store.capabilities)][:8] == SDK


async def test_own_connections(store):
    """Without them the storage is the caller's, and what would end the caller's transaction is refused."""
    if store.capabilities.own_connections:
        await store.setup()
        await store.close()
        await fill(store)
    else:
        await store.setup()
        with pytest.raises(TransactionNotAllowedError, match="transaction of yours"):
            await store.vacuum(reclaim=True)


@pytest.mark.parametrize("name", SDK)
def test_requiring_one(checkpointer, name):
    if getattr(checkpointer.capabilities, name):
        checkpointer._require_capability(name)
    else:
        with pytest.raises(NotImplementedError, match=f"{type(checkpointer).__name__} does not support {name}"):
            checkpointer._require_capability(name)


def test_an_operation_is_tested_for_every_flag(store):
    names = {f.name for f in dataclasses.fields(store.capabilities)}
    tested = {f.__name__ for f in OPERATIONS} | {"ttl", "incremental", "persistent", "shared", "own_connections"}
    assert names == tested
