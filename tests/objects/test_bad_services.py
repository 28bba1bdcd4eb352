"""Services that lose answers, answer 409, ignore conditions or list late, and objects that were damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend
from locus_store.core.errors import (
    BackendUnavailableError,
    CorruptCheckpointError,
    UnsupportedFormatError,
    UnsupportedOperationError,
)


def store_of(bucket: Bucket, **options: Any) -> Backend:
    return Backend(ObjectDriver(MemoryPort(bucket)), **options)


class RepeatingPort(MemoryPort):
    """A port whose client loses the answer of every write, and sends it again."""

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        await super().put(key, data, new=new)
        return await super().put(key, data, new=new)


async def everything(store: Backend) -> list[Any]:
    """Each operation once, and what they give."""
    given: list[Any] = [await store.save("t", {"n": i}, f"c{i}") for i in range(4)]
    given.append(await store.save("t", {"n": "again"}, "c1"))
    given.append(await store.save("t", {"n": "in place"}, "c0", if_exists="in_place"))
    given.append(await store.save("u", {"n": 1}, "only", if_exists="error", expected_version=0))
    given.append(await store.delete("t", "c2"))
    await store.put_records("t", "s", {"k": 1})
    await store.put_records("t", "s", {"k": 2, "l": 3})
    given.append(await store.delete_records("u"))
    given.append(await store.copy_thread("t", "copy"))
    given.append(await store.delete("u"))
    for thread in ("t", "copy", "u"):
        shown = await store.history(thread)
        given.append([(i.checkpoint_id, i.version, await store.load(thread, i.checkpoint_id)) for i in shown])
        given.append(await store.records(thread, "s"))
    given.append(await store.list_threads())
    return given


async def test_a_write_whose_answer_was_lost_is_not_taken_for_somebody_elses() -> None:
    bucket, other = Bucket(), Bucket()
    expected = await everything(store_of(bucket))
    assert await everything(Backend(ObjectDriver(RepeatingPort(other)))) == expected
    assert len(other.objects) == len(bucket.objects)


@pytest.mark.parametrize("number", range(1, 9))
async def test_a_save_that_failed_can_be_made_again(number: int) -> None:
    """With the same id; what had been done is found."""
    bucket = Bucket()
    port = MemoryPort(bucket)
    store = Backend(ObjectDriver(port))
    await store.save("t", {"n": 0}, "before")
    port.fail_at([number], "after")
    failed = False
    try:
        await store.save("t", {"n": 1}, "mine")
    except BackendUnavailableError:
        failed = True
    assert failed == (number <= 6), port.calls
    port.fault = None
    await store.save("t", {"n": 1}, "mine")
    assert await store_of(bucket).list_checkpoints("t") == ["mine", "before"]
    assert await store_of(bucket).load("t") == {"n": 1}


async def test_a_conflict_is_no_answer_and_is_asked_again() -> None:
    bucket = Bucket()
    store = store_of(bucket)
    await store.setup()
    bucket.conflicts = 3
    await store.save("t", {"n": 1})
    assert bucket.conflicts == 0
    bucket.conflicts = 10**6
    with pytest.raises(Exception, match="was under way") as caught:
        await store.save("t", {"n": 2})
    assert type(caught.value).__name__ == "ObjectConflictError"
    bucket.conflicts = 0
    assert await store.load("t") == {"n": 1}


async def test_a_service_without_conditional_writes_is_refused_before_anything_is_written() -> None:
    bucket = Bucket(ignores_conditions=True)
    for call in (lambda s: s.setup(), lambda s: s.save("t", {}), lambda s: s.vacuum(), lambda s: s.delete("t")):
        with pytest.raises(UnsupportedOperationError, match="single_writer=True"):
            await call(store_of(bucket))
        assert not bucket.objects


async def test_with_one_writer_it_does() -> None:
    expected = await everything(store_of(Bucket()))
    driver = ObjectDriver(MemoryPort(Bucket(ignores_conditions=True)), single_writer=True)
    assert not driver.capabilities.shared
    store = Backend(driver)
    await store.setup()
    assert await everything(store) == expected


# --- late listings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [1, 3, 10, 40])
async def test_a_process_sees_what_it_saved_though_listings_are_late(lag: int) -> None:
    bucket = Bucket()
    store = store_of(bucket)
    await store.save("t", {"n": 0}, "c0")
    bucket.lagging(lag)
    for i in range(1, 12):
        await store.save("t", {"n": i}, f"c{i}")
        assert await store.load("t") == {"n": i}
        assert await store.exists("t")
    bucket.lagging(0)
    assert await store_of(bucket).list_checkpoints("t", limit=None) == [f"c{i}" for i in range(11, -1, -1)]


@pytest.mark.parametrize("lag", [1, 3, 10, 40])
async def test_no_save_is_lost_to_another_though_listings_are_late(lag: int) -> None:
    bucket = Bucket()
    stores = [store_of(bucket) for _ in range(3)]
    bucket.lagging(lag)
    for i in range(12):
        await stores[i % 3].save("t", {"n": i}, f"c{i}")
    bucket.lagging(0)
    later = store_of(bucket)
    assert await later.list_checkpoints("t", limit=None) == [f"c{i}" for i in range(11, -1, -1)]
    assert [i.version for i in await later.history("t", limit=None)] == list(range(12, 0, -1))
    for i in range(12):
        assert await later.load("t", f"c{i}") == {"n": i}


@pytest.mark.parametrize("lag", [1, 3, 10])
async def test_a_late_listing_brings_no_thread_back(lag: int) -> None:
    bucket = Bucket()
    store = store_of(bucket)
    for i in range(3):
        await store.save("t", {"n": i}, f"c{i}")
    bucket.lagging(lag)
    await store.delete("t")
    assert await store.load("t") is None
    assert await store_of(bucket).load("t") is None
    assert await store_of(bucket).load("t", "c1") is None
    await store.save("t", {"n": "new"}, "new")
    bucket.lagging(0)
    assert await store_of(bucket).list_checkpoints("t") == ["new"]


# --- damage -----------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "not ours": lambda data: b"<html>" + data,
    "half": lambda data: data[: len(data) // 2],
    "a bit of the header": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "a bit of the document": lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
}


def record_of(bucket: Bucket, checkpoint_id: str) -> str:
    return next(k for k, data in bucket.objects.items() if "/v/" in k and f'"id":"{checkpoint_id}"'.encode() in data)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("which", ["c0", "c1", "c2"])
@pytest.mark.parametrize("how", DAMAGE)
async def test_a_damaged_object_is_told_and_hides_no_other(how: str, which: str, fresh: bool) -> None:
    bucket = Bucket()
    store = store_of(bucket)
    for i in range(3):
        await store.save("t", {"n": i, "text": "x" * 300}, f"c{i}")
    await store.save("other", {"n": 1})
    key = record_of(bucket, which)
    whole = bucket.objects[key]
    bucket.write(key, DAMAGE[how](whole))
    if fresh:
        store = store_of(bucket)
    for i in range(3):
        if f"c{i}" == which:
            with pytest.raises(CorruptCheckpointError, match="t"):
                await store.load("t", which)
        else:
            assert (await store.load("t", f"c{i}"))["n"] == i
    if which == "c2":
        with pytest.raises(CorruptCheckpointError):
            await store.load("t")
    assert await store.list_checkpoints("t") == ["c2", "c1", "c0"]
    assert await store.exists("t")
    assert await store.exists("t", which)
    assert set(await store.list_threads()) == {"t", "other"}
    await store.vacuum()
    assert bucket.objects[key] == DAMAGE[how](whole)
    bucket.write(key, whole)
    assert (await store.load("t", which))["n"] == int(which[1])
    bucket.write(key, DAMAGE[how](whole))
    await store.delete("t")
    assert not [k for k in bucket.objects if "/d/t/" in k]
    await store.save("t", {"n": 9})
    assert await store.load("t") == {"n": 9}


async def test_objects_of_a_later_release_are_not_touched() -> None:
    bucket = Bucket()
    store = store_of(bucket)
    await store.save("t", {"n": 0}, "c0")
    key = record_of(bucket, "c0")
    bucket.write(key, bucket.objects[key].replace(b"locusob1", b"locusob2"))
    before = dict(bucket.objects)
    for call in (lambda s: s.load("t"), lambda s: s.load("t", "c0"), lambda s: s.save("t", {"n": 1})):
        with pytest.raises(UnsupportedFormatError, match="2"):
            await call(store)
    assert {k: v for k, v in bucket.objects.items() if "/d/" in k} == {k: v for k, v in before.items() if "/d/" in k}
