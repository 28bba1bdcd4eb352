"""The zlib codec by itself, and under a store."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus_store.backends.file import FileBackend
from locus_store.backends.memory import MemoryBackend
from locus_store.core.compression import ZlibCodec
from locus_store.core.errors import UnsupportedFormatError
from locus_store.core.frames import Codec, ThreadName

HERE, THERE = ThreadName("a", "t"), ThreadName("b", "u")


@given(st.binary(), st.integers(0, 9), st.integers(0, 9))
def test_what_goes_in_comes_out_at_any_level_for_any_thread(data: bytes, level: int, other: int) -> None:
    assert ZlibCodec(other).decode(ZlibCodec(level).encode(data, HERE), THERE) == data


@pytest.mark.parametrize("damaged", [b"", b"x", zlib.compress(b"a" * 100)[:-3], zlib.compress(b"abc")[:-1] + b"\x00"])
def test_damage_is_a_value_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        ZlibCodec().decode(damaged, HERE)


def test_it_is_a_codec() -> None:
    codec: Codec = ZlibCodec()
    assert (codec.name, codec.bound) == ("zlib", False)
    assert repr(codec) == "ZlibCodec(level=1)"


@pytest.mark.parametrize("level", [-1, 10])
def test_levels_there_are_not(level: int) -> None:
    with pytest.raises(ValueError, match="0 to 9"):
        ZlibCodec(level)


@pytest.mark.parametrize("level", ["1", 1.0, True, None])
def test_what_is_no_level(level: Any) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        ZlibCodec(level)


async def test_a_store_compresses_what_it_stores(tmp_path: Path) -> None:
    document = {
        "messages": [{"role": "user", "content": f"the same words again and again, {n} " * 20} for n in range(50)]
    }
    sizes = []
    for name, codec in (("plain", None), ("small", ZlibCodec(9))):
        async with FileBackend(tmp_path / name, codec=codec) as store:
            await store.save("t", document)
            assert await store.load("t") == document
            assert await store.copy_thread("t", "u")
            assert await store.load("u") == document
            sizes.append(store.get_disk_usage("t"))
    assert sizes[1] < sizes[0] / 3


async def test_a_store_without_the_codec_says_so(tmp_path: Path) -> None:
    await FileBackend(tmp_path, codec=ZlibCodec()).save("t", {"a": "x" * 1000})
    with pytest.raises(UnsupportedFormatError, match="zlib"):
        await FileBackend(tmp_path).load("t")


async def test_what_was_stored_without_a_codec_stays_readable(tmp_path: Path) -> None:
    old = {"messages": ["x" * 300, "y" * 300]}
    await FileBackend(tmp_path).save("t", old, "c1")
    store = FileBackend(tmp_path, codec=ZlibCodec())
    assert await store.load("t") == old
    await store.save("t", {"messages": [*old["messages"], "z" * 300]}, "c2")
    assert await store.load("t", "c1") == old
    assert len((await store.load("t") or {})["messages"]) == 3
    assert await store.delete("t", "c1")
    assert len((await store.load("t") or {})["messages"]) == 3


async def test_metadata_is_found_all_the_same() -> None:
    store = MemoryBackend(codec=ZlibCodec())
    await store.save("t", {"a": 1}, metadata={"user": "ann"})
    assert [row["thread_id"] for row in await store.query_by_metadata("user", "ann")] == ["t"]
