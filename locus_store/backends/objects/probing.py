"""Whether a service keeps its word: ``If-None-Match: *`` must refuse to write over an object."""

from __future__ import annotations

from collections.abc import Sequence

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


class SingleWriter(ObjectPort):
    """A port that looks before it creates, for a service that cannot. It is exact while nobody else writes.

    Args:
        port: The bucket.
    """

    def __init__(self, port: ObjectPort) -> None:
        self._port = port
        self.max_bytes = port.max_bytes

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        if new and await self._port.get(key, end=1) is not None:
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
