"""Stores on the session's cluster, each under a prefix of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis_servers
import servers
from redis_servers import RedisCluster

from locus_store import RedisBackend

Open = Callable[..., RedisBackend]

_numbers = itertools.count()


@pytest.fixture
def cluster(redis_cluster: RedisCluster) -> RedisCluster:
    redis_cluster.ensure_running()
    servers.note_ran("redis-cluster", redis_cluster.version)
    return redis_cluster


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., RedisCluster]]:
    """Starts clusters of the test's own, which loses its nodes; three seconds each."""
    started: list[RedisCluster] = []

    def start(settings: dict[str, str] | None = None) -> RedisCluster:
        started.append(redis_servers.start_cluster(settings))
        servers.note_ran("redis-cluster", started[-1].version)
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def prefix() -> str:
    return f"redis_cluster_{next(_numbers)}:"


@pytest.fixture
async def open_store(cluster: RedisCluster, prefix: str) -> AsyncIterator[Open]:
    made: list[RedisBackend] = []

    def new(**options: Any) -> RedisBackend:
        made.append(RedisBackend(**{"url": cluster.store_url, "prefix": prefix, **options}))
        return made[-1]

    yield new
    for store in made:
        await store.close()


@pytest.fixture
def store(open_store: Open) -> RedisBackend:
    return open_store()


@pytest.fixture
def other(store: RedisBackend, open_store: Open) -> RedisBackend:
    return open_store()
