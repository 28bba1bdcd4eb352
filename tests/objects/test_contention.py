"""Writers that are overtaken by others, in a bucket where it can be told when."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects import thread
from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend
from locus_store.core.errors import StoreBusyError


class SlowPort(MemoryPort):
    """While it creates a record, others do something first.

    Attributes:
        meanwhile: What they do, once for each record that is created here.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.meanwhile: list[Any] = []

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
