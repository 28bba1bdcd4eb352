"""The codec slot: what is stored goes through it, and comes back."""

from __future__ import annotations

import hashlib
import hmac
import zlib

import pytest
from cases import assert_same
from histories import HISTORIES, MIXED, message

from locus_store.core.errors import CorruptCheckpointError, UnsupportedFormatError


class Zip:
    name = "zip"
    bound = False

    def encode(self, data, thread):
        return zlib.compress(data)

    def decode(self, data, thread):
        return zlib.decompress(data)


class Seal:
    """Encryption that knows where its bytes belong, as far as a test needs it."""

    bound = True

    def __init__(self, key=b"key", name="seal"):
        self.key = key
        self.name = name

    def _parts(self, thread):
        mark = hmac.digest(self.key, repr(tuple(thread)).encode(), "sha256")
        return mark[:16], hashlib.shake_256(mark)

    def encode(self, data, thread):
        tag, stream = self._parts(thread)
        return tag + bytes(a ^ b for a, b in zip(data, stream.digest(len(data)), strict=True))

    def decode(self, data, thread):
        tag, stream = self._parts(thread)
        if data[:16] != tag:
            raise ValueError("of another thread")
        return bytes(a ^ b for a, b in zip(data[16:], stream.digest(len(data) - 16), strict=True))


CODECS = {"zip": Zip, "seal": Seal}


@pytest.fixture(params=list(CODECS))
def codec(request):
    return CODECS[request.param]()


@pytest.fixture
def store(open_store, codec):
    return open_store(codec=codec)


@pytest.fixture
def other(open_store, codec):
    return open_store(codec=codec)


@pytest.mark.parametrize("history", MIXED)
async def test_every_checkpoint_of_a_history_loads(store, other, history):
    documents = HISTORIES[history]
    ids = [await (store, other)[i % 2].save("t", d) for i, d in enumerate(documents)]
    for name, document in zip(ids, documents, strict=True):
        assert_same(await other.load("t", name), document)


async def test_copies_go_through_it_again(store, other, place):
    documents = [{"messages": [message(j) for j in range(i + 1)], "b": bytes([i])} for i in range(6)]
    for i, document in enumerate(documents):
        await store.save("a", document, f"a{i}")
    await store.put_records("a", "s", {"k": (1, message(1))})
    await store.copy_thread("a", "b")
    await store.copy_thread("a", "c", upto="a3")
    await store.delete("a")
    for copy, count in (("b", 6), ("c", 4)):
        assert len(await other.list_checkpoints(copy)) == count
        for i in range(count):
            assert_same(await other.load(copy, f"a{i}"), documents[i])
        assert await other.records(copy, "s") == {"k": (1, message(1))}
        more = {"messages": [*documents[count - 1]["messages"], message("more")]}
        await other.save(copy, more)
        assert_same(await store.load(copy), more)


async def test_removals_go_through_it_too(open_store, codec, other, clock):
    store = open_store(codec=codec, clock=clock)
    documents = {}
    for i in range(12):
        documents[str(i)] = {"a": [message(f"a{j}") for j in range(i // 2, i + 2)], "b": [message(f"b{i}")] * 3}
        await store.save("t", documents[str(i)], str(i))
    await store.delete("t", ["0", "3", "7"])
    clock.advance(days=1)
    await store.vacuum(older_than_days=0.5, keep_last=6)
    for name in await store.list_checkpoints("t"):
        assert_same(await other.load("t", name), documents[name])
    short = open_store(codec=codec, keep_checkpoints=2)
    await short.save("t", documents["3"])
    assert_same(await other.load("t", "11"), documents["11"])
    assert_same(await other.load("t"), documents["3"])


async def test_what_is_stored_is_what_it_made(store, place):
    secret = "s3cr3t " * 200
    await store.save("t", {"messages": [{"content": secret}], "rest": secret}, "c")
    stored = place.payloads("c")
    assert len(stored) == 2
    assert b"s3cr3t" not in b"".join(stored)


async def test_every_fiftieth_save(store, other):
    documents = [{"messages": [message(j, 100) for j in range(i + 1)]} for i in range(105)]
    for i, document in enumerate(documents):
        await store.save("t", document, str(i))
    for i in (0, 48, 49, 50, 98, 99, 100, 104):
        assert_same(await other.load("t", str(i)), documents[i])


async def test_without_it_what_was_stored_with_it_is_of_an_unknown_format(store, codec, open_store):
    await store.save("t", {"messages": [message(1)]}, "c")
    plain = open_store()
    with pytest.raises(UnsupportedFormatError, match=codec.name) as caught:
        await plain.load("t")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "c")
    assert await plain.list_checkpoints("t") == ["c"]
    # Nor does a save build upon what it cannot read.
    await plain.save("t", {"messages": [message(1), message(2)]})
    assert await plain.load("t") == {"messages": [message(1), message(2)]}
    assert await store.load("t", "c") == {"messages": [message(1)]}


async def test_what_was_stored_before_there_was_one(store, open_store, codec):
    """To compress can be begun at any time. But where bytes are bound to their threads, whoever can write a row must not
    be able to put a plain one in the place of an encrypted one.
    """
    await open_store().save("t", {"messages": [message(1)]}, "c")
    if not codec.bound:
        assert await store.load("t") == {"messages": [message(1)]}
        return
    with pytest.raises(CorruptCheckpointError) as caught:
        await store.load("t")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "c")


async def test_bytes_of_another_thread_are_refused(open_store, place):
    store = open_store(codec=Seal())
    await store.save("a", {"n": 1}, "a")
    await store.save("b", {"n": 2}, "b")
    (stolen,) = place.payloads("a")
    place.damage("b", lambda _: stolen)
    with pytest.raises(CorruptCheckpointError) as caught:
        await store.load("b")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("b", "b")
    assert await store.load("a") == {"n": 1}


async def test_another_key_reads_nothing(open_store):
    await open_store(codec=Seal()).save("t", {"n": 1})
    with pytest.raises(CorruptCheckpointError):
        await open_store(codec=Seal(b"other")).load("t")


async def test_the_tenant_is_part_of_where_bytes_belong(open_store, place):
    store = open_store(codec=Seal())
    await store.tenant("acme").save("t", {"n": 1}, "a")
    await store.save("t", {"n": 2}, "b")
    (stolen,) = place.payloads("a")
    place.damage("b", lambda _: stolen)
    with pytest.raises(CorruptCheckpointError):
        await store.load("t")
