"""Cases 79 and 80: copies, and bytes that are moved to where they do not belong."""

from __future__ import annotations

import hmac

import pytest
from cases import assert_same
from histories import message

from locus_store.core.errors import CorruptCheckpointError, ThreadExistsError


async def test_case_79_a_copy_is_whole_and_on_its_own(open_store, clock):
    store = open_store(clock=clock, ttl_seconds=100)
    documents = {f"c{i}": {"messages": [message(j) for j in range(i + 1)]} for i in range(3)}
    for name, document in documents.items():
        await store.save("a", document, name, {"name": name})
    await store.put_records("a", "s", {"k": 1})
    assert await store.copy_thread("a", "b") is True
    assert [(i.checkpoint_id, i.metadata, i.parent) for i in await store.history("b")] == [
        ("c2", {"name": "c2"}, "c1"),
        ("c1", {"name": "c1"}, "c0"),
        ("c0", {"name": "c0"}, None),
    ]
    await store.delete("a", "c1")
    await store.save("a", {"messages": []})
    await store.delete("a")
    for name, document in documents.items():
        assert_same(await store.load("b", name), document)
    assert await store.records("b", "s") == {"k": 1}
    with pytest.raises(ThreadExistsError):
        await store.copy_thread("b", "b2") and await store.copy_thread("b", "b2")
    assert await store.copy_thread("b", "b2", overwrite=True) is True
    assert await store.copy_thread("a", "c") is False
    with pytest.raises(ValueError, match="onto itself"):
        await store.copy_thread("b", "b")
    clock.advance(seconds=101)
    assert await store.list_threads() == []


class Encrypted:
    """A stand-in for encryption that binds what it writes to its thread."""

    name = "encrypted"
    bound = True

    def encode(self, data, thread):
        return hmac.digest(b"key", repr(tuple(thread)).encode() + data, "sha256") + data[::-1]

    def decode(self, data, thread):
        plain = data[32:][::-1]
        if not hmac.compare_digest(data[:32], hmac.digest(b"key", repr(tuple(thread)).encode() + plain, "sha256")):
            raise ValueError("not of this thread")
        return plain


@pytest.mark.parametrize("what", ["payload", "block"])
async def test_case_80_a_moved_row_is_refused_and_copies_are_bound_again(open_store, clock, place, what):
    store = open_store(codec=Encrypted(), clock=clock)
    documents = {n: {"messages": [message(f"{n} {i}") for i in range(3)]} for n in "ab"}
    for name, document in documents.items():
        await store.save(name, document, name)
    stolen = place.payloads("a")[what == "block"]
    original = place.payloads("b")[what == "block"]
    place.damage("b", lambda _: stolen, what)
    with pytest.raises(CorruptCheckpointError) as caught:
        await open_store(codec=Encrypted()).load("b")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("b", "b")
    place.damage("b", lambda _: original, what)
    more = {"messages": [*documents["b"]["messages"][1:], message("more")]}
    await store.save("b", more, "more")
    await store.copy_thread("b", "c")
    clock.advance(days=100)
    await store.vacuum()
    for thread in "bc":
        assert_same(await open_store(codec=Encrypted()).load(thread), more)


@pytest.mark.parametrize("what", ["payload", "block"])
async def test_case_80_a_plain_row_is_refused(open_store, place, what):
    document = {"messages": [message(i) for i in range(3)]}
    await open_store().save("plain", document, "plain")
    store = open_store(codec=Encrypted())
    await store.save("t", document, "sealed")
    forged = place.payloads("plain")[what == "block"]
    place.damage("sealed", lambda _: forged, what)
    with pytest.raises(CorruptCheckpointError) as caught:
        await open_store(codec=Encrypted()).load("t")
    assert (caught.value.thread_id, caught.value.checkpoint_id) == ("t", "sealed")
