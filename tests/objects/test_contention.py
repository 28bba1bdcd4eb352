"""Writers that are overtaken by others, and readers among them, in a bucket where it can be told when."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects import thread
from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.port import Object, Page
from locus_store.core.backend import Backend
from locus_store.core.errors import StoreBusyError


class SlowPort(MemoryPort):
    """While it creates a record or reads, others do something first.

    Attributes:
        meanwhile: What they do, once for each record that is created here.
        before_reads: What they do, once for each object that is read and each listing of a log.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.meanwhile: list[Any] = []
        self.before_reads: list[Any] = []

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        if self.before_reads:
            await self.before_reads.pop(0)()
        return await super().get(key, start=start, end=end)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        if self.before_reads and prefix.endswith("/v/"):
            await self.before_reads.pop(0)()
        return await super().list(prefix, after=after, limit=limit)

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        if new and "/v/" in key and self.meanwhile:
            await self.meanwhile.pop(0)()
        return await super().put(key, data, new=new)

    def records_created(self) -> int:
        """How many records it tried to create."""
        return sum(verb == "put new" and "/v/" in key for verb, key in self.calls)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
async def fast(bucket: Bucket) -> Backend:
    store = Backend(ObjectDriver(MemoryPort(bucket)))
    await store.save("t", {"n": 0}, "first")
    return store


@pytest.fixture
async def port(bucket: Bucket) -> SlowPort:
    return SlowPort(bucket)


@pytest.fixture
async def slow(port: SlowPort) -> Backend:
    store = Backend(ObjectDriver(port))
    assert await store.load("elsewhere") is None
    return store


async def test_whoever_comes_back_after_a_long_time_goes_on_from_the_newest(fast, slow, port):
    """And not from the record that was in its way, behind which there may be hundreds."""

    async def meanwhile() -> None:
        for n in range(1, 40):
            await fast.save("t", {"n": n})

    port.meanwhile.append(meanwhile)
    await slow.save("t", {"n": "mine"}, "mine")
    assert port.records_created() == 2
    assert [i.version for i in await fast.history("t", limit=None)] == [*range(41, 0, -1)]
    assert await fast.load("t") == {"n": "mine"}


async def test_what_it_announced_in_vain_is_not_looked_at_again_and_removed(bucket, fast, slow, port):
    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"})

    port.meanwhile += [meanwhile] * 10
    port.calls.clear()
    await slow.save("t", {"n": "mine"}, "mine")
    assert port.records_created() == 11
    reads = Counter(key for verb, key in port.calls if verb == "get")
    assert max(reads.values()) <= 2
    assert sum("/i/mine/" in key for key in bucket.objects) == 1
    assert await fast.load("t", "mine") == {"n": "mine"}


async def test_the_same_id_at_the_same_moment(bucket, fast, slow, port):
    """What announces it is the other's as well: it must not be taken away from under it."""

    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"}, "same")

    port.meanwhile.append(meanwhile)
    await slow.save("t", {"n": "mine"}, "same", if_exists="newest")
    assert await fast.load("t", "same") == {"n": "mine"}
    assert await fast.list_checkpoints("t") == ["same", "first"]
    port.meanwhile.append(meanwhile)
    assert await slow.save("t", {"n": "other"}, "other") == "other"
    assert await fast.load("t", "same") == {"n": "theirs"}


async def test_who_is_always_overtaken_gives_up_in_the_end(fast, slow, port, monkeypatch):
    monkeypatch.setattr(thread, "ATTEMPTS", 5)
    monkeypatch.setattr(thread, "PATIENCE", 0.0)

    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"})

    port.meanwhile += [meanwhile] * 9
    with pytest.raises(StoreBusyError, match="others were faster 5 times"):
        await slow.save("t", {"n": "mine"})
    port.meanwhile.clear()
    await slow.save("t", {"n": "mine"})
    assert await fast.load("t") == {"n": "mine"}


async def test_two_replace_older_checkpoints_in_place(fast, slow, port):
    """Both announce the head in the next record, and one of them is right."""
    await fast.save("t", {"n": 2}, "second")
    await fast.save("t", {"n": "head"}, "head")

    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"}, "first", if_exists="in_place")

    port.meanwhile.append(meanwhile)
    await slow.save("t", {"n": "mine"}, "second", if_exists="in_place")
    port.meanwhile.append(meanwhile)
    assert await slow.delete("t", "second")
    await fast.save("t", {"n": "top"}, "top")
    for name, n in (("head", "head"), ("first", "theirs"), ("top", "top")):
        assert await slow.load("t", name) == {"n": n}
    assert await fast.list_checkpoints("t") == ["top", "head", "first"]


ALWAYS = 10_000
"""More often than anybody reads here."""


@pytest.mark.parametrize("limit", [1, 3, 50, None])
async def test_who_lists_need_not_wait_until_nobody_writes(fast, slow, port, limit):
    async def meanwhile() -> None:
        await fast.save("t", {"n": 1})

    port.before_reads += [meanwhile] * ALWAYS
    port.calls.clear()
    versions = [i.version for i in await slow.history("t", limit=limit)]
    assert versions == [*range(versions[0], 0, -1)][:limit]
    assert port.counts()["list"] == 2


async def test_a_copy_need_not_wait_until_nobody_writes(fast, slow, port):
    async def meanwhile() -> None:
        await fast.save("t", {"n": 1})

    port.before_reads += [meanwhile] * ALWAYS
    await slow.copy_thread("t", "copy")
    versions = [i.version for i in await fast.history("copy", limit=None)]
    assert versions == [*range(versions[0], 0, -1)]


@pytest.mark.parametrize("times", [1, 9, 40])
async def test_a_thread_whose_newest_is_deleted_under_every_read_is_never_missing(bucket, slow, port, times):
    """Each save leaves its own checkpoint only: what a listing showed is gone when it is read."""
    fast = Backend(ObjectDriver(MemoryPort(bucket)), keep_checkpoints=1)

    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"})

    def busy() -> None:
        port.before_reads[:] = [meanwhile] * (2 * times)

    await meanwhile()
    busy()
    assert await slow.load("t") == {"n": "theirs"}
    busy()
    assert len(await slow.list_checkpoints("t")) == 1
    busy()
    assert len(await slow.history("t", limit=None)) == 1
    busy()
    assert await slow.get_metadata("t") is not None
    busy()
    assert await slow.list_threads() == ["t"]
    busy()
    assert await slow.copy_thread("t", "copy")
    assert await slow.load("copy") == {"n": "theirs"}


@pytest.mark.parametrize("times", [1, 9, 40])
async def test_a_checkpoint_that_is_replaced_under_every_read_is_never_missing(fast, slow, port, times):
    await fast.save("t", {"n": "head"}, "head")

    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"}, "first", if_exists="in_place")

    port.before_reads += [meanwhile] * (2 * times)
    assert await slow.load("t", "first") in ({"n": 0}, {"n": "theirs"})
    port.before_reads[:] = [meanwhile] * (2 * times)
    assert await slow.exists("t", "first")
    assert sorted(await slow.list_checkpoints("t")) == ["first", "head"]


async def test_a_checkpoint_that_is_announced_only_is_missing_however_busy_the_thread(bucket, fast, slow, port):
    async def meanwhile() -> None:
        await fast.save("t", {"n": "theirs"})

    place = next(key for key in bucket.objects if "/i/first/" in key)
    bucket.write(place.replace("/i/first/", "/i/never/"), b"0")
    port.before_reads += [meanwhile] * 60
    assert await slow.load("t", "never") is None
    assert len(port.before_reads) < 60
