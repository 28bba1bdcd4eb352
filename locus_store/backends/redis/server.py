"""The way to the server: redis-py's clients, one for each event loop, and what its errors mean.

A connection belongs to the event loop that opened it, a store does not: it may be used in one ``asyncio.run`` after
another. So each loop gets a client of its own, closed when the store is closed there or the loop shuts its asynchronous
generators down, which `asyncio.run` does. A client that was handed in is used as it is, and never closed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any
from weakref import WeakValueDictionary, finalize

from redis import exceptions
from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from locus_store.backends.redis.address import Address
from locus_store.core.driver import Key
from locus_store.core.errors import BackendError, BackendUnavailableError

_TRIES = 4
_PAUSE = 0.05
_SCAN = 1000
_AT_ONCE = 16
"""How many commands are sent at the same time where a cluster must be asked thread by thread."""

Argument = bytes | str | int

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_CLUSTER = (exceptions.ClusterDownError, exceptions.SlotNotCoveredError, exceptions.TryAgainError)


@cache
def script(name: str) -> tuple[str, str]:
    """A script's text and its digest, by which a server knows it once it has seen it."""
    folder = files(__package__) / "lua"
    text = (folder / "prelude.lua").read_text("ascii") + (folder / f"{name}.lua").read_text("ascii")
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


class _Opened:
    """A client in one event loop."""

    def __init__(self, clients: Sequence[Any], limit: int) -> None:
        self.client = clients[0]
        self.slots = asyncio.Semaphore(limit)
        self.locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._clients = clients
        self._guard: AsyncGenerator[None, None] | None = None

    async def guard(self) -> None:
        """Have the client closed when the loop shuts down its asynchronous generators."""
        self._guard = _close_at_the_end(self._clients)
        await anext(self._guard)

    async def aclose(self) -> None:
        """Close the client, unless it is the host's."""
        if self._guard is not None:
            await self._guard.aclose()


async def _close_at_the_end(clients: Sequence[Any]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        for client in clients:
            await client.aclose()


class Server:
    """A Redis or Valkey server, or a cluster of them.

    Args:
        address: Where it is; None with a client.
        client: The host's own client.
        timeout: Seconds that an answer, or a connection, is waited for.
        max_connections: How many connections there are at most, for each event loop.
        options: More arguments of redis-py's client.

    Attributes:
        cluster: Whether it is a cluster, so that what concerns several threads takes several steps.
        shown: What it is called in errors; no password.
    """

    def __init__(
        self,
        address: Address | None,
        client: Redis | RedisCluster | None = None,
        *,
        timeout: float = 10.0,
        max_connections: int = 50,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if client is not None and not isinstance(client, (Redis, RedisCluster)):
            raise TypeError(
                "client must be a redis.asyncio.Redis or a redis.asyncio.RedisCluster,"
                f" got {type(client).__module__}.{type(client).__name__}"
            )
        self._address = address
        self._client = client
        self._limit = max_connections
        self._options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            **(options or {}),
            **(address.options if address is not None else {}),
        }
        self.cluster = isinstance(client, RedisCluster) or (address is not None and address.kind == "cluster")
        self.shown = address.shown if address is not None else "the client that was handed in"
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}
        if client is None:
            self._make()  # a URL that redis-py does not understand is refused before the first use
        finalize(self, _let_go, self._opened)

    # --------------------------------------------------------------------------------------------------------- clients

    def _make(self) -> list[Redis | RedisCluster]:
        """The client, and after it those through which it finds its server."""
        address = self._address
        assert address is not None
        # What is safe to send twice is decided here, call by call, and not by the client.
        never = Retry(NoBackoff(), 0)
        options: dict[str, Any] = {**self._options, "retry": never, "max_connections": self._limit}
        if address.kind == "single":
            if address.path is not None:
                options |= {"path": address.path, "connection_class": UnixDomainSocketConnection}
            else:
                options["host"], options["port"] = address.hosts[0]
                options |= {"connection_class": SSLConnection} if address.tls else {}
            return [Redis.from_pool(ConnectionPool(**options))]
        if address.kind == "cluster":
            options.pop("db", None)
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            return [RedisCluster(startup_nodes=nodes, ssl=address.tls, **options)]
        shared = ("retry", "protocol", "socket_", "ssl_")
        sentinel = {name: value for name, value in options.items() if name.startswith(shared)}
        for name in [name for name in options if name.startswith("sentinel_")]:
            sentinel[name.removeprefix("sentinel_")] = options.pop(name)
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            list(address.hosts), sentinel_kwargs={**sentinel, "ssl": address.tls}, ssl=address.tls, **options
        )
        return [sentinels.master_for(address.master), *sentinels.sentinels]

    async def _here(self) -> _Opened:
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            for other in [other for other in self._opened if other.is_closed()]:
                self._opened.pop(other, None)
            clients = self._make() if self._client is None else [self._client]
            opened = self._opened[loop] = _Opened(clients, self._limit)
            if self._client is None:
                await opened.guard()
        return opened

    async def lock(self, key: Key) -> asyncio.Lock:
        """A lock between the tasks of this loop: only one of them at a time plans what to remove from a thread."""
        locks = (await self._here()).locks
        found = locks.get(key)
        if found is None:
            found = locks[key] = asyncio.Lock()
        return found

    async def aclose(self) -> None:
        """Close the running loop's client, unless it is the host's; the next use makes another."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.aclose()

    # ---------------------------------------------------------------------------------------------------------- calls

    async def run(self, name: str, keys: Sequence[bytes], *arguments: Argument, again: bool = True) -> Any:
        """Run a script.

        Args:
            name: Its name.
            keys: Its keys.
            *arguments: Its arguments.
            again: Whether it may be sent again when the connection was lost before the answer came.

        Raises:
            BackendError: The server refused, or could not be reached.
        """
        text, digest = script(name)

        async def call(client: Any) -> Any:
            try:
                return await client.execute_command("EVALSHA", digest, len(keys), *keys, *arguments, **_AS_BYTES)
            except exceptions.NoScriptError:
                return await client.execute_command("EVAL", text, len(keys), *keys, *arguments, **_AS_BYTES)

        return await self._call(call, again=again)

    async def each(self, name: str, keys: Sequence[Sequence[bytes]], *arguments: Argument) -> list[Any]:
        """Run a script about several threads, whose replies are lists; on a cluster once for each, else at once."""
        if not keys:
            return []
        if not self.cluster:
            return [await self.run(name, [k for some in keys for k in some], *arguments)]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(some: Sequence[bytes]) -> Any:
            async with slots:
                return await self.run(name, some, *arguments)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(some)) for some in keys]
        return [task.result() for task in tasks]

    async def scan(self, pattern: bytes) -> list[bytes | str]:
        """All keys that match a pattern, each at least once."""

        async def call(client: Any) -> list[bytes | str]:
            where = {"target_nodes": RedisCluster.PRIMARIES} if self.cluster else {}
            return [key async for key in client.scan_iter(match=pattern, count=_SCAN, **where)]

        found: list[bytes | str] = await self._call(call)
        return found

    async def ping(self, keys: Sequence[bytes]) -> None:
        """Find out whether the server that has some keys answers."""
        await self.run("ping", keys)

    async def _call(self, call: Any, *, again: bool = True) -> Any:
        tried = 0
        while True:
            opened = await self._here()
            try:
                async with opened.slots:
                    return await call(opened.client)
            except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
                tried += 1
                slow = isinstance(error, (exceptions.TimeoutError, TimeoutError))
                lost = isinstance(error, (*_LOST, *_CLUSTER)) and not isinstance(error, exceptions.AuthenticationError)
                if not (again and lost and tried < (2 if slow else _TRIES)):
                    raise self._translate(error) from error
            await asyncio.sleep(random.uniform(0.5, 1) * _PAUSE * 2**tried)  # noqa: S311 - no secret

    # --------------------------------------------------------------------------------------------------------- errors

    def _translate(self, error: BaseException) -> BackendError:
        said = str(error) or type(error).__name__
        for kind, unavailable, text in _MEANINGS:
            if isinstance(error, kind):
                message = f"{self.shown}: {text}: {said}"
                return BackendUnavailableError(message) if unavailable else BackendError(message)
        return BackendError(f"{self.shown}: the server refused: {said}")


_AS_BYTES = {"NEVER_DECODE": True}
"""A client that was handed in may be set to decode replies; payloads are no text."""

_MEANINGS: tuple[tuple[Any, bool, str], ...] = (
    (
        (
            exceptions.AuthenticationError,
            exceptions.AuthenticationWrongNumberOfArgsError,
            exceptions.AuthorizationError,
        ),
        False,
        "the server refuses this user or password",
    ),
    (exceptions.NoPermissionError, False, "this user may not do that"),
    (exceptions.OutOfMemoryError, False, "the server has no memory left (maxmemory), nothing was written"),
    (exceptions.ReadOnlyError, False, "the server is a read-only replica, nothing was written; connect to its primary"),
    (exceptions.BusyLoadingError, True, "the server is still loading its data"),
    ((exceptions.TimeoutError, TimeoutError), True, "the server did not answer in time"),
    (
        (exceptions.ClusterDownError, exceptions.SlotNotCoveredError),
        True,
        "a part of the cluster is down",
    ),
    (exceptions.MovedError, False, "the server belongs to a cluster; use redis+cluster://"),
    ((exceptions.ConnectionError, OSError), True, "the server cannot be reached, or the connection was lost"),
    (exceptions.RedisClusterException, True, "the cluster cannot be reached"),
)


def _let_go(left: dict[asyncio.AbstractEventLoop, _Opened]) -> None:
    """A store that is dropped, and was not closed, is closed in the loops that still run."""
    for loop, opened in left.items():
        if loop.is_running():
            loop.call_soon_threadsafe(_close_soon, loop, opened)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(loop: asyncio.AbstractEventLoop, opened: _Opened) -> None:
    task = loop.create_task(opened.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
