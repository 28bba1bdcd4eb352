"""A save announces its thread to the index, writes it and settles the entry; whatever fails in between, none is missing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis_cluster.conftest import Open
from redis_servers import RedisCluster

from locus_store import BackendError, ConflictError, RedisBackend
from locus_store.core.driver import Key


class Index:
    """The index of the tests' tenant, on the node that has it."""

    def __init__(self, cluster: RedisCluster, prefix: str) -> None:
        self._key = f"{prefix}{{default}}:i".encode()
        self.node = cluster.owner(cluster.slot(self._key))
        slots = ((n, cluster.slot(f"{prefix}{{default:t{n}}}:h".encode())) for n in range(100))
        self.thread = next(f"t{n}" for n, slot in slots if cluster.owner(slot) is not self.node)
        """A thread that lies on another node."""

    def scores(self) -> dict[str, float]:
        with self.node.client() as client:
            return {name.decode(): score for name, score in client.zrange(self._key, 0, -1, withscores=True) if name}

    def settled(self) -> bool:
        return all(score == int(score) for score in self.scores().values())


@pytest.fixture
def index(cluster: RedisCluster, prefix: str) -> Index:
    return Index(cluster, prefix)


@pytest.fixture
def no_memory(index: Index) -> Iterator[Callable[[], None]]:
    """Leaves the index's node without memory until the end of the test."""

    def take() -> None:
        index.node.command("CONFIG", "SET", "maxmemory", "1")

    yield take
    index.node.command("CONFIG", "SET", "maxmemory", "0")


def before(store: RedisBackend, script: str, do: Callable[[], Awaitable[Any] | None]) -> None:
    """Has something done each time before a script is run."""
    server: Any = store._driver._server
    run = server.run

    async def hooked(name: str, *arguments: Any, **options: Any) -> Any:
        if name == script and (waiting := do()) is not None:
            await waiting
        return await run(name, *arguments, **options)

    server.run = hooked


async def test_a_save_stands_though_its_entry_cannot_be_settled(
    store: RedisBackend, other: RedisBackend, index: Index, no_memory: Callable[[], None]
) -> None:
    assert await store.list_threads() == []  # from here on the index is known to be whole
    before(store, "settle", no_memory)
    saved = await store.save(index.thread, {"n": 1}, metadata={"n": 1})
    assert not index.settled()
    # Reads do not fail either, though they cannot put the entry right.
    assert await other.list_threads() == [index.thread]
    assert [row["checkpoint_id"] for row in await other.query_by_metadata("n", 1)] == [saved]
    assert await other.load(index.thread) == {"n": 1}
    index.node.command("CONFIG", "SET", "maxmemory", "0")
    assert await other.list_threads() == [index.thread]
    assert index.settled()


async def test_nothing_is_written_if_it_cannot_be_announced(
    store: RedisBackend, other: RedisBackend, index: Index, no_memory: Callable[[], None]
) -> None:
    await store.save("another", {"n": 0})
    no_memory()
    with pytest.raises(BackendError, match=r"no memory left .* wrote nothing"):
        await store.save(index.thread, {"n": 1})
    assert await other.load(index.thread) is None
    assert await other.list_threads() == ["another"]


async def test_a_removal_stands_though_the_index_cannot_be_told(
    store: RedisBackend, other: RedisBackend, index: Index
) -> None:
    for name in (index.thread, "another"):
        await store.save(name, {"n": 1}, metadata={"n": 1})
    assert len(await other.list_threads()) == 2
    failing = True

    def fail() -> None:
        if failing:
            raise BackendError("the index cannot be reached")

    before(store, "settle", fail)
    assert await store.delete(index.thread)
    assert index.thread in index.scores()
    failing = False
    assert await other.list_threads() == ["another"]
    assert list(index.scores()) == ["another"]


async def test_readers_leave_the_entry_of_a_save_that_is_underway(
    store: RedisBackend, other: RedisBackend, index: Index, no_memory: Callable[[], None]
) -> None:
    """And so the thread is listed, even if its writer dies before it has settled the entry."""

    async def read() -> None:
        assert await other.list_threads() == []
        assert await other.query_by_metadata("n", 1) == []
        await other.vacuum()

    before(store, "put", read)
    before(store, "settle", no_memory)
    await store.save(index.thread, {"n": 1}, metadata={"n": 1})
    assert await other.list_threads() == [index.thread]
    assert len(await other.query_by_metadata("n", 1)) == 1


async def test_an_announcement_that_nothing_followed_is_taken_out(open_store: Open, index: Index, prefix: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> int:
        return (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    store = open_store(clock=clock)
    await store.save("t", {"n": 1})
    for name in ("killed", "killed, too"):  # what is left of writers that died then and there
        await store._driver._index.announce(Key("default", name), clock(), b"x" * 16)
    assert await store.list_threads() == ["t"]
    assert len(index.scores()) == 3
    now += timedelta(minutes=6)
    assert await store.list_threads() == ["t"]
    assert list(index.scores()) == ["t"]
    await store.vacuum()
    with index.node.client() as client:
        assert client.zrange(f"{prefix}{{default}}:m", 0, -1) == [b""]


async def test_a_conflict_takes_its_announcement_back(store: RedisBackend, index: Index) -> None:
    with pytest.raises(ConflictError):
        await store.save(index.thread, {"n": 1}, expected_version=3)
    assert index.scores() == {}
    await store.save(index.thread, {"n": 1})
    with pytest.raises(ConflictError):
        await store.save(index.thread, {"n": 1}, expected_version=3)
    assert list(index.scores()) == [index.thread]
    assert index.settled()
