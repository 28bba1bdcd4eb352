"""Documents of many megabytes: the event loop goes on while they are compressed."""

from __future__ import annotations

import threading
import zlib
from types import SimpleNamespace

import pytest
from objects.memory_port import MemoryPort

from locus_store.backends.objects import formats
from locus_store.backends.objects.driver import ObjectDriver
from locus_store.core.backend import Backend


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that something was compressed or decompressed: whether that was in a thread of its own."""
    found: list[bool] = []

    def noted(name: str):
        def call(*arguments):
            found.append(threading.current_thread() is not threading.main_thread())
            return getattr(zlib, name)(*arguments)

        return call

    watched = {**vars(zlib), "compress": noted("compress"), "decompress": noted("decompress")}
    monkeypatch.setattr(formats, "zlib", SimpleNamespace(**watched))
    return found


@pytest.mark.parametrize(("size", "beside"), [(3_000_000, True), (10_000, False)])
async def test_a_large_one_is_compressed_beside_the_event_loop(workers, size, beside):
    store = Backend(ObjectDriver(MemoryPort()))
    document = {"text": "x" * size}
    await store.save("t", document, "1")
    await store.save("t", document, "2")
    await store.save("t", document, "1", if_exists="in_place")
    assert await store.load("t") == document
    assert await store.load("t", "1") == document
    assert workers == [beside] * 5
    await store.close()
