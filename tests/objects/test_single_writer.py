"""A service without conditional writes, and one writer: whatever it does at once, it never creates an object twice."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.port import ObjectExistsError, ObjectPort
from locus_store.backends.objects.probing import SingleWriter
from locus_store.core.backend import Backend


class LatePort(MemoryPort):
    """Every call takes a while, each another one; a write that was cancelled is carried out all the same."""

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        return await asyncio.shield(asyncio.ensure_future(self._carried_out(key, data, new=new)))

    async def _carried_out(self, key: str, data: bytes, *, new: bool) -> str:
        await asyncio.sleep(random.random() * 0.006)
        return await super().put(key, data, new=new)


async def create(port: ObjectPort, name: str) -> bool:
    try:
        await port.put("a/key", name.encode(), new=True)
    except ObjectExistsError:
        return False
    return True


async def test_one_of_many_tasks_creates_an_object():
    bucket = Bucket(ignores_conditions=True)
    port = SingleWriter(LatePort(bucket))
    done = await asyncio.gather(*[create(port, str(n)) for n in range(10)])
    assert done.count(True) == 1
    assert bucket.objects["a/key"] == str(done.index(True)).encode()


def test_one_of_many_event_loops_creates_an_object():
    bucket = Bucket(ignores_conditions=True)
    port = SingleWriter(LatePort(bucket))
    done: dict[str, bool] = {}
    barrier = threading.Barrier(5)

    def loop(name: str) -> None:
        barrier.wait()
        done[name] = asyncio.run(create(port, name))

    threads = [threading.Thread(target=loop, args=(str(n),)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for name, won in done.items() if won]
    assert len(winners) == 1
    assert bucket.objects["a/key"] == winners[0].encode()


@pytest.mark.parametrize("after", [0, 0.001, 0.003, 0.006])
async def test_one_that_was_cancelled_is_waited_for(after):
    """Its request may be carried out later, and would take away what was created meanwhile."""
    for _ in range(8):
        bucket = Bucket(ignores_conditions=True)
        port = SingleWriter(LatePort(bucket))
        first = asyncio.ensure_future(create(port, "first"))
        await asyncio.sleep(after)
        first.cancel()
        second = await create(port, "second")
        await asyncio.sleep(0.012)
        assert bucket.objects["a/key"] == (b"second" if second else b"first")


async def test_an_event_loop_that_was_closed_in_the_middle_holds_nothing_up():
    bucket = Bucket(ignores_conditions=True)
    port = SingleWriter(LatePort(bucket))

    def begin() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(create(port, "first"))
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        for left in asyncio.all_tasks(loop):
            left._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

    await asyncio.to_thread(begin)
    async with asyncio.timeout(5):
        await create(port, "second")


async def test_saves_and_vacuum_at_once_lose_nothing():
    bucket = Bucket(ignores_conditions=True)
    store = Backend(ObjectDriver(LatePort(bucket), single_writer=True))
    saved: list[str] = []

    async def save(by: int) -> None:
        for n in range(6):
            name = await store.save("t", {"by": by, "n": n}, f"{by}-{n}")
            saved.append(name)

    async def sweep() -> None:
        for _ in range(4):
            await store.vacuum(older_than_days=0, keep_last=25)
            await store.save("t", {"by": "sweep"}, "the same")

    await store.save("t", {}, "first")
    await asyncio.gather(*[save(by) for by in range(4)], sweep())
    found = await store.list_checkpoints("t", limit=None)
    assert len(found) == len(set(found))
    assert set(saved) - set(found) <= set(saved[:3])  # the oldest ones
    assert len(found) >= 25
