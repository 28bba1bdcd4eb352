"""Whether a service keeps its word: ``If-None-Match: *`` must refuse to write over an object."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from locus_store.backends.objects import names
from locus_store.backends.objects.port import Object, ObjectConflictError, ObjectExistsError, ObjectPort, Page
from locus_store.core.errors import UnsupportedOperationError


async def has_conditional_writes(port: ObjectPort, prefix: str, now: int) -> bool:
    """Try it, on an object of this call's own.

    Args:
        port: The bucket.
        prefix: What the keys of the store begin with.
        now: The time of the call.
    """
    key = f"{names.probes(prefix)}{names.token(now)}"
    try:
        await port.put(key, b"first")
        try:
            await port.put(key, b"second", new=True)
        except (ObjectExistsError, ObjectConflictError):
            found = await port.get(key)
            return found is not None and found.data == b"first"
        return False
    finally:
        await port.delete([key])


def refused() -> UnsupportedOperationError:
    """The error of a store whose service cannot create objects conditionally."""
    return UnsupportedOperationError(
        "this object storage",
        "conditional writes (it ignores 'If-None-Match: *'), so two writers could lose a save to each other",
        "if one backend object in one process is the only writer, say single_writer=True",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """Says who is creating an object."""

    loop: asyncio.AbstractEventLoop


class SingleWriter(ObjectPort):
    """A port that looks before it creates, for a service that cannot. It is exact while nobody else writes.

    Between tasks, event loops and threads of one process one creates an object at a time, and one that was cancelled
    counts until its request has ended.

    Args:
        port: The bucket.
    """

    def __init__(self, port: ObjectPort) -> None:
        self._port = port
        self.max_bytes = port.max_bytes
        self._creating: dict[str, _Claim] = {}

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        if not new:
            return await self._port.put(key, data)
        while not self._may_create(key):  # noqa: ASYNC110  who creates it may be in another event loop
            await asyncio.sleep(0.002)
        task = asyncio.ensure_future(self._create(key, data))
        task.add_done_callback(lambda _: self._creating.pop(key, None))
        return await asyncio.shield(task)

    def _may_create(self, key: str) -> bool:
        mine = _Claim(asyncio.get_running_loop())
        found = self._creating.setdefault(key, mine)
        if found is not mine and found.loop.is_closed():  # in the middle of it, so that nobody took it away
            self._creating.pop(key, None)
        return found is mine

    async def _create(self, key: str, data: bytes) -> str:
        if await self._port.get(key, end=1) is not None:
            raise ObjectExistsError(key)
        return await self._port.put(key, data)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        return await self._port.get(key, start=start, end=end)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        return await self._port.list(prefix, after=after, limit=limit)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._port.delete(keys)

    async def aclose(self) -> None:
        await self._port.aclose()
