"""A double of a bucket, in memory. It is exact where real services are exact, and can be told to be worse.

It stands in for a service in the driver's own tests; what real services do is tested on them.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from locus_store.backends.objects.port import (
    PAGE,
    Listed,
    Object,
    ObjectConflictError,
    ObjectExistsError,
    ObjectPort,
    Page,
)
from locus_store.core.errors import BackendUnavailableError

When = Literal["before", "after"]


class CrashError(BaseException):
    """The process ended here. No `Exception`, so that nothing but the test catches it."""


@dataclass(slots=True)
class Bucket:
    """What the double holds; several ports may share one, as several processes do.

    Attributes:
        objects: By key.
        pauses: Whether each call lets other tasks run first, as a real one does.
        page: The most keys in one page.
        ignores_conditions: Be a service that takes ``If-None-Match`` for granted and overwrites.
        conflicts: How many of the next conditional writes are answered with 409.
        lag: A listing shows what was there this many writes and deletions ago.
        past: The keys with sizes and etags after each write and deletion, the newest last.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    pauses: bool = True
    page: int = PAGE
    ignores_conditions: bool = False
    conflicts: int = 0
    lag: int = 0
    past: list[dict[str, Listed]] = field(default_factory=lambda: [{}])

    def changed(self, keys: Sequence[str]) -> None:
        """Take note of what a listing has to show from now on."""
        if self.lag:
            now = dict(self.past[-1])
            for key in keys:
                now.pop(key, None)
                if key in self.objects:
                    now[key] = listed(key, self.objects[key])
            self.past = [*self.past[-self.lag :], now]

    def shown(self) -> dict[str, Listed]:
        """What a listing shows now."""
        if self.lag:
            return self.past[max(0, len(self.past) - 1 - self.lag)]
        return {key: listed(key, data) for key, data in self.objects.items()}

    def lagging(self, lag: int) -> None:
        """From now on listings are that many changes behind; 0: they are not."""
        self.lag = 0
        self.past = [self.shown()]
        self.lag = lag


def etag_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def listed(key: str, data: bytes) -> Listed:
    return Listed(key, len(data), etag_of(data))


class MemoryPort(ObjectPort):
    """A port to a `Bucket`.

    Attributes:
        bucket: What it holds.
        calls: The calls that were made, as (verb, key).
        fault: Called with the verb, the key and the number of the call before and after each call does its work; it
            may raise. "before": the request was lost; "after": its answer was.
    """

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket or Bucket()
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[When, str, str, int], None] | None = None

    def counts(self) -> Counter[str]:
        """How many calls of each kind were made."""
        return Counter(verb for verb, _ in self.calls)

    def crash_at(self, number: int, when: When = "before") -> None:
        """Let the process end at its call of that number, counted from 1 from now on."""
        self.calls.clear()

        def fault(at: When, verb: str, key: str, count: int) -> None:
            if count > number or (at == when and count == number):
                raise CrashError(f"{at} call {count}: {verb} {key}")

        self.fault = fault

    def fail_at(self, numbers: Sequence[int], when: When = "before") -> None:
        """Lose the connection at the calls of these numbers, counted from 1 from now on."""
        self.calls.clear()

        def fault(at: When, verb: str, key: str, count: int) -> None:
            if at == when and count in numbers:
                raise BackendUnavailableError(f"the connection was lost {at} {verb} {key!r}")

        self.fault = fault

    async def _called(self, verb: str, key: str) -> int:
        self.calls.append((verb, key))
        number = len(self.calls)
        if self.bucket.pauses:
            await asyncio.sleep(0)
        self._fault("before", verb, key, number)
        return number

    def _fault(self, when: When, verb: str, key: str, number: int) -> None:
        if self.fault is not None:
            self.fault(when, verb, key, number)

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        number = await self._called("put new" if new else "put", key)
        bucket = self.bucket
        if new and not bucket.ignores_conditions:
            if bucket.conflicts:
                bucket.conflicts -= 1
                raise ObjectConflictError(key)
            if key in bucket.objects:
                raise ObjectExistsError(key)
        assert len(key.encode()) <= 1024, key
        assert "" not in key.split("/"), key
        assert not {".", ".."} & set(key.split("/")), key
        bucket.objects[key] = bytes(data)
        bucket.changed([key])
        self._fault("after", "put", key, number)
        return etag_of(data)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        number = await self._called("get", key)
        data = self.bucket.objects.get(key)
        self._fault("after", "get", key, number)
        return None if data is None else Object(data[start:end], len(data), etag_of(data))

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        number = await self._called("list", prefix)
        shown = self.bucket.shown()
        keys = sorted(key for key in shown if key.startswith(prefix))
        keys = keys[bisect_right(keys, after) if after is not None else 0 :]
        most = self.bucket.page if limit is None else min(limit, self.bucket.page)
        self._fault("after", "list", prefix, number)
        return Page([shown[key] for key in keys[:most]], len(keys) > most)

    async def delete(self, keys: Sequence[str]) -> None:
        for i in range(0, len(keys), PAGE):
            part = keys[i : i + PAGE]
            number = await self._called("delete", part[0])
            for key in part:
                self.bucket.objects.pop(key, None)
            self.bucket.changed(part)
            self._fault("after", "delete", part[0], number)

    async def aclose(self) -> None:
        pass
