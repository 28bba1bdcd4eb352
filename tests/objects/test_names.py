"""The keys of objects: nothing of one store, tenant, thread or checkpoint is ever taken for another's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects.memory_port import Bucket, MemoryPort

from locus_store.backends.objects import names
from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.names import COPIED, Folder, Place, Tenant
from locus_store.core.backend import Backend
from locus_store.core.driver import Key

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)


@given(IDS, IDS)
def test_two_ids_have_two_names_and_none_needs_escaping(one: str, other: str) -> None:
    assert (names.encode(one) == names.encode(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,190}", names.encode(one))
    assert names.encode(one) not in (".", "..", names.OURS)
    assert names.decode(names.encode(one)) in (one, None)


@given(IDS, IDS, IDS)
def test_the_longest_key_fits(tenant: str, thread: str, checkpoint: str) -> None:
    prefix = names.check_prefix("p" * names.LONGEST_PREFIX)
    folder = Folder(prefix, Key(tenant, thread))
    place = Place.of(COPIED + 1, names.token(0))
    assert len(folder.id_at(checkpoint, place).encode()) <= 1024
    assert len(folder.tenant.marker(0, 2**62, "0" * 8, folder.name).encode()) <= 1024


@given(st.sampled_from("vwx"), st.integers(1, 10**16 - 2))
def test_a_place_is_read_as_it_was_written(kind: str, number: int) -> None:
    place = Place(kind, "" if kind == "v" else names.token(7), 0 if kind == "x" else number)
    assert Place.parse(place.text()) == place
    folder = Folder("", Key("default", "t"))
    assert folder.parse(folder.at(place)) == (kind, place.token, place)
    assert folder.parse(folder.id_at("c", place)) == ("i", "c", place)


@given(st.integers(0, 10**18), st.none() | st.integers(1, 10**18), st.integers(0, 10**18))
def test_a_marker_is_read_as_it_was_written_and_the_newest_comes_first(
    at: int, expires: int | None, later: int
) -> None:
    keys = Tenant("p/", "default")
    marker = keys.marker(at, expires, "abcd", names.encode("a/b.c"))
    assert keys.parse_marker(marker) == (at, expires, "abcd", names.encode("a/b.c"))
    if later > at:
        assert keys.marker(later, None, "0", "t") < marker


@pytest.mark.parametrize("prefix", ["a//b", "a/../b", ".", "a/.locus/b", "a\nb", "x" * 257])
def test_a_prefix_that_cannot_be(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix must"):
        ObjectDriver(MemoryPort(), prefix=prefix)


async def test_a_store_in_the_folder_of_another_is_apart() -> None:
    bucket = Bucket()

    def store(prefix: str, tenant: str) -> Backend:
        return Backend(ObjectDriver(MemoryPort(bucket), prefix=prefix), tenant=tenant)

    outer = store("", "x")
    inner = [store("x", "m"), store("x", "d"), store("x/m", "d"), store("x/d/d", "d")]
    for i, one in enumerate([outer, *inner]):
        await one.save("d", {"n": i})
        await one.save("m", {"n": i})
    await outer.delete("d")
    assert await outer.list_threads() == ["m"]
    await outer.vacuum(older_than_days=0)
    for i, one in enumerate(inner, 1):
        assert await one.load("d") == {"n": i}
        assert await one.list_threads() == ["m", "d"]


async def test_what_is_done_to_a_thread_touches_none_whose_id_begins_with_its_id() -> None:
    bucket = Bucket()
    store = Backend(ObjectDriver(MemoryPort(bucket)))
    others = ["a/b", "a/v/1", "ab", "a.", "a*", "A", "a b"]
    for name in others:
        await store.save(name, {"name": name})
        await store.put_records(name, "s", {"k": name})
    before = dict(bucket.objects)
    await store.save("a", {"name": "a"}, "c")
    await store.save("a", {"name": "a2"}, "c")
    await store.copy_thread("a", "a copy")
    await store.delete("a", "c")
    await store.delete("a copy")
    await store.delete("a")
    assert bucket.objects == before
    assert sorted(await store.list_threads()) == sorted(others)
