"""What `locus_store.backends.objects.port` promises of every port.

A new port joins by an entry in `port_list.PORTS`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from objects.port_list import PORTS

from locus_store.backends.objects.port import ObjectConflictError, ObjectExistsError, ObjectPort, all_listed


@pytest.fixture(params=PORTS)
async def port(request: pytest.FixtureRequest) -> AsyncIterator[ObjectPort]:
    made = PORTS[request.param](request)
    yield made
    await made.aclose()


@pytest.fixture
async def at(port: ObjectPort) -> AsyncIterator[str]:
    """A prefix of the test's own, which is empty again afterwards."""
    prefix = f"contract/{os.urandom(8).hex()}/"
    yield prefix
    await port.delete([o.key for o in await all_listed(port, prefix)])
    assert await all_listed(port, prefix) == []


async def keys(port: ObjectPort, prefix: str) -> list[str]:
    return [o.key.removeprefix(prefix) for o in await all_listed(port, prefix)]


async def test_put_and_get(port: ObjectPort, at: str) -> None:
    data = bytes(range(256)) * 300
    etag = await port.put(at + "a", data)
    found = await port.get(at + "a")
    assert found is not None
    assert (found.data, found.size, found.etag) == (data, len(data), etag)


async def test_a_missing_object_is_none(port: ObjectPort, at: str) -> None:
    assert await port.get(at + "nobody") is None
    assert await port.get(at + "nobody", start=0, end=10) is None
    assert await port.list(at) == ([], False)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 4, b"0123"), (3, 5, b"34"), (3, None, b"3456789"), (8, 100, b"89"), (0, 100, b"0123456789"), (10, 20, b"")],
)
async def test_a_part(port: ObjectPort, at: str, start: int, end: int | None, expected: bytes) -> None:
    etag = await port.put(at + "a", b"0123456789")
    found = await port.get(at + "a", start=start, end=end)
    assert found is not None
    assert found.data == expected
    assert (found.size, found.etag) == (10, etag)


async def test_an_empty_object(port: ObjectPort, at: str) -> None:
    await port.put(at + "a", b"")
    for found in (await port.get(at + "a"), await port.get(at + "a", start=0, end=100)):
        assert found is not None
        assert (found.data, found.size) == (b"", 0)
    assert await keys(port, at) == ["a"]


async def test_put_replaces(port: ObjectPort, at: str) -> None:
    first = await port.put(at + "a", b"1")
    second = await port.put(at + "a", b"2")
    assert first != second
    found = await port.get(at + "a")
    assert found is not None
    assert (found.data, found.etag) == (b"2", second)


async def test_a_listing_says_what_get_says(port: ObjectPort, at: str) -> None:
    etag = await port.put(at + "a", b"123")
    [listed] = (await port.list(at)).objects
    assert listed == (at + "a", 3, etag)


async def test_new_objects_only(port: ObjectPort, at: str) -> None:
    await port.put(at + "a", b"first", new=True)
    with pytest.raises(ObjectExistsError) as error:
        await port.put(at + "a", b"second", new=True)
    assert at + "a" in str(error.value)
    found = await port.get(at + "a")
    assert found is not None
    assert found.data == b"first"
    await port.delete([at + "a"])
    await port.put(at + "a", b"third", new=True)


async def test_case_54_one_of_many_creates_it(port: ObjectPort, at: str) -> None:
    async def create(i: int) -> int | None:
        while True:
            try:
                await port.put(at + "a", b"%d" % i, new=True)
                return i
            except ObjectExistsError:
                return None
            except ObjectConflictError:
                await asyncio.sleep(0.01)

    won = [i for i in await asyncio.gather(*[create(i) for i in range(8)]) if i is not None]
    assert len(won) == 1
    found = await port.get(at + "a")
    assert found is not None
    assert found.data == b"%d" % won[0]


async def test_a_listing_is_in_byte_order(port: ObjectPort, at: str) -> None:
    names = ["-", ".2F", "0", "9", "A", "Z", "_", "a-b", "a.b", "a0", "aB", "b", "z"]
    await asyncio.gather(*[port.put(at + name, b"") for name in names])
    assert await keys(port, at) == sorted(names)
    assert await keys(port, at + "a") == sorted(n[1:] for n in names if n.startswith("a"))


async def test_a_listing_goes_into_folders(port: ObjectPort, at: str) -> None:
    names = ["a-b", "a/b", "a/c/d", "a/c/e", "a0"]
    await asyncio.gather(*[port.put(at + name, b"") for name in names])
    assert sorted(await keys(port, at)) == sorted(names)
    assert await keys(port, at + "a/") == ["b", "c/d", "c/e"]
    assert await keys(port, at + "a/c/") == ["d", "e"]
    assert sorted(await keys(port, at + "a")) == sorted(n[1:] for n in names)


async def test_pages(port: ObjectPort, at: str) -> None:
    names = [f"{i:03}" for i in range(25)]
    await asyncio.gather(*[port.put(at + name, b"") for name in names])
    page = await port.list(at, limit=10)
    assert [o.key for o in page.objects] == [at + n for n in names[:10]]
    assert page.more
    page = await port.list(at, after=at + "009", limit=10)
    assert [o.key for o in page.objects] == [at + n for n in names[10:20]]
    page = await port.list(at, after=at + "019x", limit=10)
    assert [o.key for o in page.objects] == [at + n for n in names[20:]]
    assert not page.more
    assert await port.list(at, after=at + "024") == ([], False)


async def test_case_38_more_than_a_page(port: ObjectPort, at: str) -> None:
    names = [f"{i:05}" for i in range(1001)]
    for i in range(0, len(names), 50):
        await asyncio.gather(*[port.put(at + name, b"") for name in names[i : i + 50]])
    assert await keys(port, at) == names
    await port.delete([at + name for name in names])
    assert await keys(port, at) == []


async def test_deleting(port: ObjectPort, at: str) -> None:
    await asyncio.gather(*[port.put(at + name, b"") for name in "abcd"])
    await port.delete([at + "a", at + "nobody", at + "c"])
    assert await keys(port, at) == ["b", "d"]
    await port.delete([at + "nobody"])
    await port.delete([])


async def test_what_is_deleted_touches_no_longer_key(port: ObjectPort, at: str) -> None:
    for name in ("a", "ab", "a.2Fb/c"):
        await port.put(at + name, b"1")
    await port.delete([at + "a"])
    assert await keys(port, at) == ["a.2Fb/c", "ab"]


async def test_long_keys(port: ObjectPort, at: str) -> None:
    key = at + "/".join(["x" * 200] * 4)
    await port.put(key, b"1")
    assert await keys(port, at) == [key.removeprefix(at)]
    assert await port.get(key) is not None


async def test_many_bytes(port: ObjectPort, at: str) -> None:
    data = os.urandom(12_000_000)
    etag = await port.put(at + "a", data, new=True)
    found = await port.get(at + "a")
    assert found is not None
    assert found.data == data
    assert found.etag == etag


async def test_it_goes_on_after_closing(port: ObjectPort, at: str) -> None:
    await port.put(at + "a", b"1")
    await port.aclose()
    await port.aclose()
    assert await port.get(at + "a") is not None
