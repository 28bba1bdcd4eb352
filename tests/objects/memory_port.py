"""A double of a bucket, in memory. It is exact where real services are exact, and can be told to be worse.

It stands in for a service in the driver's own tests; what real services do is tested on them.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left, bisect_right, insort
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
    _keys: list[str] = field(default_factory=list)

    def write(self, key: str, data: bytes) -> None:
        """Put an object."""
        if key not in self.objects:
            insort(self._keys, key)
        self.objects[key] = data
        self.changed([key])

    def remove(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        for key in keys:
            if self.objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
        self.changed(keys)

    def changed(self, keys: Sequence[str]) -> None:
        """Take note of what a listing has to show from now on."""
        if self.lag:
            now = dict(self.past[-1])
            for key in keys:
                now.pop(key, None)
                if key in self.objects:
                    now[key] = listed(key, self.objects[key])
            self.past = [*self.past[-self.lag :], now]

    def page_of(self, prefix: str, after: str | None, most: int) -> Page:
        """What a listing shows now."""
        if self.lag:
            shown = self.past[max(0, len(self.past) - 1 - self.lag)]
            keys = sorted(shown)
        else:
            shown, keys = {}, self._keys
        start = bisect_left(keys, prefix)
        if after is not None and after >= prefix:
            start = bisect_right(keys, after)
        found: list[Listed] = []
        for i in range(start, len(keys)):
            if not keys[i].startswith(prefix):
                break
            if len(found) == most:
                return Page(found, True)
            found.append(shown[keys[i]] if self.lag else listed(keys[i], self.objects[keys[i]]))
        return Page(found, False)

    def lagging(self, lag: int) -> None:
        """From now on listings are that many changes behind; 0: they are not."""
        self.lag = lag
        self.past = [{key: listed(key, data) for key, data in self.objects.items()}]


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
        bucket.write(key, bytes(data))
        self._fault("after", "put", key, number)
        return etag_of(data)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        number = await self._called("get", key)
        data = self.bucket.objects.get(key)
        self._fault("after", "get", key, number)
        return None if data is None else Object(data[start:end], len(data), etag_of(data))

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        number = await self._called("list", prefix)
        most = self.bucket.page if limit is None else min(limit, self.bucket.page)
        page = self.bucket.page_of(prefix, after, most)
        self._fault("after", "list", prefix, number)
        return page

    async def delete(self, keys: Sequence[str]) -> None:
        for i in range(0, len(keys), PAGE):
            part = keys[i : i + PAGE]
            number = await self._called("delete", part[0])
            self.bucket.remove(part)
            self._fault("after", "delete", part[0], number)

    async def aclose(self) -> None:
        pass
