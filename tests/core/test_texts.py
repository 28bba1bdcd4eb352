"""What of a document is searched, and that the stored form of it has the same texts."""

from __future__ import annotations

import os

import histories
import pytest

from locus_store import MemoryBackend, ZlibCodec
from locus_store.core.driver import Key
from locus_store.core.frames import ThreadName
from locus_store.core.texts import digest, hides, holders, text_of, texts_of


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ("plain", "plain"),
        ({"role": "user", "content": "Hello", "name": "secret"}, "Hello"),
        ({"type": "human", "content": "Hello"}, "Hello"),
        ({"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}, ""),
        ({"role": "user", "content": ["a", {"type": "text", "text": "b"}, {"type": "image", "url": "u"}]}, "a\nb"),
        ({"role": "tool", "content": [{"content": [{"text": "deep"}]}, {"content": "c"}]}, "deep\nc"),
        ({"role": "tool", "content": {"answer": "yes"}}, "yes"),
        ({"content": "no role", "n": 1}, "no role"),
        (
            {"thought": "a", "more": ["b", {"c": "d"}, ("e",)], "set": {"z", "y"}, "n": 1, "b": b"bytes"},
            "a\nb\nd\ne\ny\nz",
        ),
        (7, ""),
        (None, ""),
    ],
)
def test_the_text_of_an_element(element, text):
    assert text_of(element) == text


def test_the_texts_of_a_document():
    document = {
        "title": "outside",
        "messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}, 5, "one"],
        "deep": {"er": {"list": ("three", ["four", "five"]), "name": "too"}},
        1.5: ["closed", "list"],
    }
    assert sorted(texts_of(document)) == ["four\nfive", "one", "outside\ntoo\nclosed\nlist", "three", "two"]
    assert texts_of({}) == []
    assert texts_of({"n": 1, "empty": [""]}) == []


HISTORIES = [
    f for name, f in vars(histories).items() if callable(f) and f.__module__ == "histories" and name != "message"
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("codec", [None, ZlibCodec()], ids=["plain", "zlib"])
async def test_stored_checkpoints_have_the_texts_of_their_documents(history, codec):
    try:
        documents = history()
    except TypeError:
        pytest.skip("it takes arguments")
    if not isinstance(documents, list) or not all(type(d) is dict for d in documents):
        pytest.skip("no list of documents")
    store = MemoryBackend(codec=codec)
    ids = [await store.save("t", document) for document in documents]
    del ids[3::4]
    if len(ids) < len(documents):
        await store.delete("t", [row for row in await store.list_checkpoints("t", None) if row not in ids])
    contents = await store._driver.contents(Key("default", "t"), now=0)
    expected = {}
    for version, one in enumerate(ids):
        for text in texts_of(await store.load("t", one)):
            expected.setdefault(text, (version, one))
    found = holders(contents, codec, ThreadName("default", "t"))
    assert {text: holder.checkpoint_id for text, holder in found.items()} == {t: c for t, (_, c) in expected.items()}


async def test_what_is_damaged_is_passed_over():
    store = MemoryBackend()
    for n in range(3):
        await store.save("t", {"messages": [f"text {i} " * 50 for i in range(n + 1)], "n": f"rest {n}"}, f"c{n}")
    thread = store._driver._tenants["default"]["t"]
    thread.blocks[2] = b"broken"
    assert [hit["checkpoint_id"] for hit in await store.search("text")] == ["c2", "c0"]
    assert [hit["checkpoint_id"] for hit in await store.search("rest")] == ["c2", "c1", "c0"]


def test_digests_and_codecs():
    assert digest("a") != digest("b")
    assert len(digest("\ud800")) == 16
    assert not hides(None)
    assert not hides(ZlibCodec(9))
    assert hides(Secret())


class Secret:
    name = "secret"
    bound = True

    def encode(self, data, thread):
        return os.urandom(1) + data

    def decode(self, data, thread):
        return data[1:]


async def test_a_driver_with_an_index_of_its_own_gets_the_texts_of_what_is_new():
    store = MemoryBackend()
    plans = []
    put = store._driver.put

    async def noting(key, plan):
        plans.append(plan.texts)
        return await put(key, plan)

    store._driver.put = noting
    messages = [{"role": "user", "content": f"message {i} " + "x" * 300} for i in range(2)]
    await store.save("t", {"messages": messages, "title": "a"})
    store._driver.indexes_texts = True
    await store.save("t", {"messages": [*messages, {"role": "user", "content": "third"}], "title": "b"})
    assert plans == [(), ("third", "b")]
