"""Calls to the server: scripts by their digest, sent again where that is safe, with errors that say what to do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis import exceptions
from redis.asyncio import RedisCluster

from locus_store.backends.redis.address import Address
from locus_store.backends.redis.opening import Client, Clients
from locus_store.backends.redis.refusals import (
    Failure,
    is_astray,
    is_confused,
    is_moving,
    translated,
    was_lost,
    was_slow,
)
from locus_store.core.driver import Key

_TRIES = 4
_PAUSE = 0.05
_SCAN = 1000
_AT_ONCE = 16
"""How many commands are sent at the same time where a cluster must be asked thread by thread."""

_AS_BYTES = {"NEVER_DECODE": True}
"""A client that was handed in may be set to decode replies; payloads are no text."""

Argument = bytes | str | int


@cache
def script(name: str) -> tuple[str, str]:
    """A script's text and its digest, by which a server knows it once it has seen it."""
    folder = files(__package__) / "lua"
    text = (folder / "prelude.lua").read_text("ascii") + (folder / f"{name}.lua").read_text("ascii")
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


class Server:
    """A Redis or Valkey server, or a cluster of them.

    Args:
        address: Where it is; None with a client.
        client: The host's own client.
        timeout: Seconds that an answer, or a connection, is waited for; None for the usual.
        max_connections: How many calls are made at once, and how many connections there are at most, in each loop.
        options: More arguments of redis-py's connections.

    Attributes:
        cluster: Whether it is a cluster, so that what concerns several threads takes several steps.
        shown: What it is called in errors; no password.
    """

    def __init__(
        self,
        address: Address | None,
        client: Client | None = None,
        *,
        timeout: float | None = None,
        max_connections: int = 50,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._clients = Clients(address, client, timeout, max_connections, options or {})
        self.cluster = self._clients.cluster
        self.shown = address.shown if address is not None else "the client that was handed in"

    async def run(self, name: str, keys: Sequence[bytes], *arguments: Argument, again: bool = True) -> Any:
        """Run a script.

        Args:
            name: Its name.
            keys: Its keys.
            *arguments: Its arguments.
            again: Whether it may be sent again when the connection was lost before the answer came.

        Raises:
            BackendError: The server refused, or could not be reached.
            CorruptCheckpointError: It has lost a part of the thread.
        """
        text, digest = script(name)
        # A client that was handed in may have another encoding.
        words = [word.encode() if isinstance(word, str) else word for word in arguments]

        async def call(client: Any) -> Any:
            try:
                return await client.execute_command("EVALSHA", digest, len(keys), *keys, *words, **_AS_BYTES)
            except exceptions.NoScriptError:  # it was restarted, or told to forget its scripts
                return await client.execute_command("EVAL", text, len(keys), *keys, *words, **_AS_BYTES)

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

        tasks = [asyncio.ensure_future(one(some)) for some in keys]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def scan(self, pattern: bytes) -> list[bytes | str]:
        """All keys that match a pattern, each at least once."""

        async def call(client: Any) -> list[bytes | str]:
            where = {"target_nodes": RedisCluster.PRIMARIES} if self.cluster else {}
            return [key async for key in client.scan_iter(match=pattern, count=_SCAN, **where)]

        if not self.cluster:
            found: list[bytes | str] = await self._call(call)
            return found
        # Twice, so that a key that moves from one node to another meanwhile is found on one of them.
        return [*await self._scan_nodes(call), *await self._scan_nodes(call)]

    async def _scan_nodes(self, call: Callable[[Any], Awaitable[Any]]) -> list[bytes | str]:
        # A client learns of nodes only when it is sent to them, and older ones forget which are primaries.
        if not self._clients.replace(await self._clients.here()):
            await self._call(lambda client: client.nodes_manager.initialize())
        found: list[bytes | str] = await self._call(call)
        return found

    async def lock(self, key: Key) -> asyncio.Lock:
        """A lock between the tasks of this loop: only one of them at a time plans what to remove from a thread."""
        locks = (await self._clients.here()).locks
        found = locks.get(key)
        if found is None:
            found = locks[key] = asyncio.Lock()
        return found

    async def aclose(self) -> None:
        """Close the running loop's client, unless it is the host's; the next use makes another."""
        await self._clients.aclose()

    async def _call(self, call: Callable[[Any], Awaitable[Any]], *, again: bool = True) -> Any:
        tried = 0
        patience = asyncio.get_running_loop().time() + self._clients.timeout
        while True:
            opened = await self._clients.here()
            try:
                async with opened.slots:
                    if opened.closed:
                        continue
                    if self.cluster:
                        # Before it knows which server has what, it would ask any; this does nothing afterwards.
                        await opened.client.initialize()
                    return await call(opened.client)
            except Failure as error:
                if is_astray(error) and not self.cluster:
                    raise
                tried += 1
                if is_confused(error):
                    self._clients.replace(opened)
                    last = tried > 1
                elif is_moving(error) or (again and is_astray(error)):
                    last = asyncio.get_running_loop().time() > patience
                else:
                    last = not (again and was_lost(error) and tried < (2 if was_slow(error) else _TRIES))
                if last:
                    raise translated(error, self.shown) from error
            await asyncio.sleep(random.uniform(0.5, 1) * _PAUSE * 2 ** min(tried, 3))  # noqa: S311 - no secret
