"""Stores on the session's server, each under a prefix of its own, and a client that counts what it sends."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from redis_servers import RedisServer

from locus_store import RedisBackend

Open = Callable[..., RedisBackend]

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return f"redis_driver_{next(_numbers)}:"


@pytest.fixture
async def open_store(redis_server: RedisServer, prefix: str) -> AsyncIterator[Open]:
    """Opens stores on the session's server; they are closed at the end."""
    made: list[RedisBackend] = []

    def new(url: str | None = None, **options: Any) -> RedisBackend:
        if "client" not in options:
            options["url"] = url or redis_server.store_url
        made.append(RedisBackend(**{"prefix": prefix, **options}))
        return made[-1]

    yield new
    for store in made:
        await store.close()


class CountingClient(Redis):
    """A client that remembers the commands that it was told to send."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sent: list[tuple[Any, ...]] = []

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent.append(args)
        return await super().execute_command(*args, **options)

    def names(self) -> list[str]:
        """The names of the commands since the last call."""
        sent, self.sent = self.sent, []
        return [str(command[0]) for command in sent]


@pytest.fixture
async def counting(redis_server: RedisServer) -> AsyncIterator[CountingClient]:
    """A counting client of the session's server."""
    client = CountingClient(host="127.0.0.1", port=redis_server.port)
    yield client
    await client.aclose()
