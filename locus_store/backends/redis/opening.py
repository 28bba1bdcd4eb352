"""redis-py's clients, one for each event loop.

A connection belongs to the event loop that opened it, a store does not: it may be used in one ``asyncio.run`` after
another. So each loop gets a client of its own, closed when the store is closed there or the loop shuts its asynchronous
generators down, which `asyncio.run` does. A client that was handed in is used as it is, and never closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary, finalize

import redis
from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from locus_store.backends.redis.address import Address
from locus_store.backends.redis.sentinel import SentinelClient
from locus_store.core.driver import Key

Client = Redis | RedisCluster

TIMEOUT = 10.0
"""Seconds that an answer, or a connection, is waited for."""


class Opened:
    """A client in one event loop.

    Attributes:
        client: The client.
        slots: As many as calls may be made at once; a pool that has no connection left raises.
        closed: Whether the client is closed, so that a call that waited for a slot must take another one.
        locks: One for each thread from which something is being removed here.
    """

    def __init__(self, clients: Sequence[Client], most: int) -> None:
        self.client: Any = clients[0]
        self.slots = asyncio.Semaphore(most)
        self.closed = False
        self.locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._most = most
        self._clients = clients
        self._guard: AsyncGenerator[None, None] | None = None

    async def guard(self) -> None:
        """Have the client closed when the loop shuts down its asynchronous generators."""
        self._guard = _close_at_the_end(self._clients)
        await anext(self._guard)

    async def aclose(self) -> None:
        """Close the client when the calls that were begun have ended, unless it is the host's."""
        if self._guard is None:
            return
        # A connection that is given back to a client that was closed meanwhile stays open.
        taken = 0
        try:
            while taken < self._most:
                await self.slots.acquire()
                taken += 1
            self.closed = True
            await self._guard.aclose()
        finally:
            for _ in range(taken):
                self.slots.release()


async def _close_at_the_end(clients: Sequence[Client]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        for client in clients:
            await client.aclose()


class Clients:
    """The clients of one store.

    Args:
        address: Where the server is; None with a client.
        client: The host's own client.
        timeout: Seconds that an answer, or a connection, is waited for.
        max_connections: How many calls are made at once, and how many connections there are at most, in each loop.
        options: More arguments of redis-py's connections.

    Attributes:
        cluster: Whether the server is a cluster.
        timeout: Seconds that an answer is waited for.
    """

    def __init__(
        self,
        address: Address | None,
        client: Client | None,
        timeout: float | None,
        max_connections: int,
        options: Mapping[str, Any],
    ) -> None:
        if client is not None and not isinstance(client, (Redis, RedisCluster)):
            raise TypeError(
                "client must be a redis.asyncio.Redis or a redis.asyncio.RedisCluster,"
                f" got {type(client).__module__}.{type(client).__name__}"
            )
        if client is not None and (options or timeout is not None):
            raise ValueError("timeout and client_options are a matter of the client that is passed")
        if max_connections < 1:
            raise ValueError(f"max_connections must be at least 1, got {max_connections}")
        self.cluster = isinstance(client, RedisCluster) or (address is not None and address.kind == "cluster")
        self._address = address
        self._client = client
        self._most = max_connections
        self.timeout = seconds = TIMEOUT if timeout is None else timeout
        self._options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            **options,
            **(address.options if address is not None else {}),
            # What is safe to send twice is decided call by call, and not by the client.
            "retry": Retry(NoBackoff(), 0),
        }
        if address is not None and address.tls and self._options.get("ssl_cert_reqs", "required") == "required":
            self._options.setdefault("ssl_check_hostname", True)  # some releases of redis-py leave it out
        self._opened: dict[asyncio.AbstractEventLoop, Opened] = {}
        self._replaced: WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Task[None]]] = WeakKeyDictionary()
        if client is None:
            self._make()  # options that redis-py does not know are refused before the first use
        finalize(self, _let_go, self._opened)

    async def here(self) -> Opened:
        """The running loop's client; it is made if need be."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            for other in [other for other in self._opened if other.is_closed()]:
                self._opened.pop(other, None)
            clients = self._make() if self._client is None else [self._client]
            opened = self._opened[loop] = Opened(clients, self._most)
            if self._client is None:
                await opened.guard()
        return opened

    def replace(self, opened: Opened) -> bool:
        """Have the running loop's next call made with a new client; False if it is the host's, which stays.

        A client forgets nodes of a cluster that it did not reach, until it knows none, and would never recover.
        """
        loop = asyncio.get_running_loop()
        if self._client is not None:
            return False
        if self._opened.get(loop) is opened:
            del self._opened[loop]
            self._replaced.setdefault(loop, set()).add(_close_soon(loop, opened))
        return True

    async def aclose(self) -> None:
        """Close the running loop's client, unless it is the host's; the next use makes another."""
        loop = asyncio.get_running_loop()
        opened = self._opened.pop(loop, None)
        if opened is not None:
            await opened.aclose()
        await asyncio.gather(*self._replaced.pop(loop, ()))

    def _make(self) -> Sequence[Client]:
        """A client, and after it those through which it finds its server; they connect when they are used."""
        address = self._address
        assert address is not None
        options = {**self._options, "max_connections": self._most}
        if address.kind == "single":
            return [Redis.from_pool(_pool(address, options))]
        if address.kind == "cluster":
            options.pop("db", None)
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            # Every few slots that have moved it would by default close all connections, those that are in use, too.
            options.setdefault("reinitialize_steps", 0)
            if int(redis.__version__.partition(".")[0]) < 6:  # then it does not take this from `retry`
                options["cluster_error_retry_attempts"] = 0
            return [RedisCluster(startup_nodes=nodes, ssl=address.tls, **options)]
        shared = ("retry", "protocol", "socket_", "ssl_")
        of_sentinels = {name: value for name, value in options.items() if name.startswith(shared)}
        for name in [name for name in options if name.startswith("sentinel_")]:
            of_sentinels[name.removeprefix("sentinel_")] = options.pop(name)
        sentinels = Sentinel([], ssl=address.tls, **options)  # type: ignore[no-untyped-call]
        sentinels.sentinels = [
            SentinelClient(host=host, port=port, ssl=address.tls, **of_sentinels) for host, port in address.hosts
        ]
        return [sentinels.master_for(address.master), *sentinels.sentinels]


def _pool(address: Address, options: dict[str, Any]) -> ConnectionPool:
    kind: type[Any]
    if address.path is not None:
        kind = UnixDomainSocketConnection
        options = {**options, "path": address.path}
    else:
        kind = SSLConnection if address.tls else Connection
        options = {**options, "host": address.hosts[0][0], "port": address.hosts[0][1]}
    pool = ConnectionPool(connection_class=kind, **options)
    pool.make_connection()  # type: ignore[no-untyped-call]  # it does not connect; what it does not understand it says now
    return pool


def _let_go(left: dict[asyncio.AbstractEventLoop, Opened]) -> None:
    """A store that is dropped, and was not closed, is closed in the loops that still run."""
    for loop, opened in left.items():
        if loop.is_running():
            loop.call_soon_threadsafe(_close_soon, loop, opened)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(loop: asyncio.AbstractEventLoop, opened: Opened) -> asyncio.Task[None]:
    task = loop.create_task(opened.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    return task
