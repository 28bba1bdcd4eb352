"""``expected_version``: a save only if nobody saved in between."""

from __future__ import annotations

import asyncio

import pytest
from histories import message

from locus_store.core.errors import ConflictError


async def refused(store, expected, actual, **more):
    with pytest.raises(ConflictError) as caught:
        await store.save("t", {"refused": True}, expected_version=expected, **more)
    assert (caught.value.thread_id, caught.value.expected, caught.value.actual) == ("t", expected, actual)


async def test_the_version_of_the_newest_or_nothing(store, other, place):
    await store.save("t", {"n": 1}, expected_version=0)
    await other.save("t", {"n": 2}, expected_version=1)
    before = place.count()
    await refused(store, 1, 2)
    await refused(store, 0, 2)
    await refused(other, 3, 2)
    assert place.count() == before
    assert await store.load("t") == {"n": 2}
    await store.save("t", {"n": 3}, expected_version=2)
    assert [i.version for i in await store.history("t")] == [3, 2, 1]


async def test_no_such_thread_is_zero(store, place):
    await refused(store, 1, 0)
    assert place.count() == 0
    await store.put_records("t", "s", {"k": 1})
    await refused(store, 1, 0)
    await store.save("t", {}, expected_version=0)


async def test_after_a_deletion_the_newest_that_is_left_counts(store):
    for name in "abc":
        await store.save("t", {"n": name}, name)
    await store.delete("t", "c")
    await refused(store, 3, 2)
    await store.save("t", {}, "d", expected_version=2)
    assert (await store.get_metadata("t"))["version"] == 4
    await store.delete("t")
    await refused(store, 4, 0)
    await store.save("t", {}, expected_version=0)


async def test_it_comes_before_the_other_conditions(store):
    await store.save("t", {}, "a")
    await refused(store, 5, 1, checkpoint_id="a", if_exists="error")
    await refused(store, 5, 1, parent="nowhere")


async def test_it_is_the_newest_that_counts_also_when_an_older_one_is_replaced(store):
    await store.save("t", {"n": 1}, "a")
    await store.save("t", {"n": 2}, "b")
    await refused(store, 1, 2, checkpoint_id="a", if_exists="in_place")
    await store.save("t", {"n": 3}, "a", expected_version=2, if_exists="in_place")
    await store.save("t", {"n": 4}, "b", expected_version=2)
    assert [(i.checkpoint_id, i.version) for i in await store.history("t")] == [("b", 3), ("a", 1)]


async def test_one_of_many_wins_each_round(store, other):
    for round_number in range(5):
        found = await asyncio.gather(
            *[
                (store, other)[i % 2].save("t", {"round": round_number, "i": i}, expected_version=round_number)
                for i in range(12)
            ],
            return_exceptions=True,
        )
        won = [f for f in found if isinstance(f, str)]
        lost = [f for f in found if isinstance(f, ConflictError)]
        assert (len(won), len(lost)) == (1, 11), found
        assert {e.actual for e in lost} <= {round_number, round_number + 1}
        assert await store.list_checkpoints("t", 1) == won


async def test_reading_changing_and_saving_again_loses_nothing(store, other):
    await store.save("t", {"items": []})

    async def add(who, item):
        while True:
            version = (await who.get_metadata("t"))["version"]
            document = await who.load("t")
            document["items"].append(message(item, 300))
            try:
                return await who.save("t", document, expected_version=version)
            except ConflictError:
                await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(*[add((store, other)[i % 2], i) for i in range(12)]), 60)
    assert sorted(m["n"] for m in (await store.load("t"))["items"]) == list(range(12))
    assert len(await store.list_checkpoints("t", None)) == 13


async def test_wrong_versions_are_refused(store, place):
    for wrong, error in ((-1, ValueError), ("1", TypeError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="expected_version"):
            await store.save("t", {}, expected_version=wrong)
    assert place.count() == 0
