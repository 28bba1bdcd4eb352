"""Writers that race, and writers that die between two steps."""

from __future__ import annotations

import asyncio
import json
import random
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opensearch_driver.conftest import OpenIndex
from opensearch_driver.relay import Answer, Relay, Request
from opensearch_servers import Double

from locus_store import BackendUnavailableError, OpenSearchBackend


def message(text: object) -> dict[str, str]:
    return {"content": f"{text} " * 60}


def changes_the_thread(request: Request) -> bool:
    """Whether it is the step by which something becomes visible."""
    return "_bulk" in request.path and b'"kind":"thread"' in request.body


def cleans(request: Request) -> bool:
    return "_bulk" in request.path and b'"kind":"empty"' in request.body


def once(matches: Callable[[Request], bool]) -> Callable[[Request], Answer | None]:
    """Hangs up from the first request that matches until the end: the writer is dead."""
    dead = False

    def rule(request: Request) -> Answer | None:
        nonlocal dead
        dead = dead or matches(request)
        return Answer(None) if dead else None

    return rule


def unseen(server: Double, index: str) -> list[str]:
    return sorted(one["_source"]["kind"] for one in server.documents(index))


async def test_a_writer_dies_after_its_document_and_the_next_one_finishes_it(
    open_index: OpenIndex, relay: Relay
) -> None:
    dying, other = open_index(relay), open_index()
    await dying.save("t", {"messages": [message(1)]}, "a")
    relay.rule = once(changes_the_thread)
    with pytest.raises(BackendUnavailableError):
        await dying.save("t", {"messages": [message(1), message(2)]}, "b", {"k": 1})
    # Nothing shows it yet, neither a load nor a search.
    assert await other.list_checkpoints("t") == ["a"]
    assert await other.query_by_metadata({"k": 1}) == []
    assert await other.load("t", "b") is None
    await other.save("t", {"messages": [message(1), message(3)]}, "c")
    assert [(i.checkpoint_id, i.version, i.parent) for i in await other.history("t")] == [
        ("c", 3, "b"),
        ("b", 2, "a"),
        ("a", 1, None),
    ]
    assert await other.load("t", "b") == {"messages": [message(1), message(2)]}
    assert await other.delete("t")


async def test_a_writer_dies_and_the_thread_is_deleted(
    open_index: OpenIndex, relay: Relay, server: Double, index: str
) -> None:
    dying, other = open_index(relay), open_index()
    await dying.save("t", {"messages": [message(1)]}, "a")
    relay.rule = once(changes_the_thread)
    with pytest.raises(BackendUnavailableError):
        await dying.save("t", {"messages": [message(2)]}, "b")
    assert await other.delete("t")
    assert server.documents(index) == []


async def test_a_writer_dies_in_its_first_save_and_vacuum_sweeps(
    open_index: OpenIndex, relay: Relay, server: Double, index: str
) -> None:
    dying, other = open_index(relay), open_index()
    await dying.setup()
    relay.rule = once(changes_the_thread)
    with pytest.raises(BackendUnavailableError):
        await dying.save("t", {"messages": [message(1)]}, "a")
    assert unseen(server, index) == ["checkpoint", "life"]
    assert await other.load("t") is None
    assert await other.list_threads() == []
    await other.vacuum()
    assert unseen(server, index) == ["checkpoint", "life"]  # it may be somebody who is still at it
    grow_old(server, index)
    await other.vacuum()
    assert server.documents(index) == []


def grow_old(server: Double, index: str) -> None:
    found = server.documents(index)
    for one in found:
        if "at" in one["_source"]:
            one["_source"]["at"] = 1
    server.write(index, found)


@pytest.mark.parametrize("what", ["delete", "replace", "in_place", "keep"])
async def test_a_remover_dies_before_it_has_cleaned_up(
    open_index: OpenIndex, relay: Relay, what: str, server: Double, index: str
) -> None:
    dying, other = open_index(relay, keep_checkpoints=2 if what == "keep" else None), open_index()
    for name in "abc":
        await other.save("t", {"messages": [message(name)]}, name)
    relay.rule = once(cleans)
    new = {"messages": [message("d")]}
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "delete": lambda: dying.delete("t", "a"),
        "keep": lambda: dying.save("t", new, "d"),
        "replace": lambda: dying.save("t", new, "a"),
        "in_place": lambda: dying.save("t", new, "a", if_exists="in_place"),
    }
    with pytest.raises(BackendUnavailableError):
        await calls[what]()
    expected = {"delete": "cb", "replace": "acb", "in_place": "cba", "keep": "dc"}[what]
    assert await other.list_checkpoints("t") == list(expected)
    for name in expected:
        own = "d" if name == "a" else name
        assert await other.load("t", name) == {"messages": [message(own)]}
    assert len(await other.search("b")) == ("b" in expected)
    await other.save("t", {"messages": [message("e")]}, "e")
    assert await other.list_checkpoints("t") == ["e", *expected]
    text = json.dumps([one["_source"].get("words") for one in server.documents(index)])
    assert ("a a a" in text) is False
    assert await other.delete("t")
    assert server.documents(index) == []


async def test_nothing_of_what_was_deleted_is_left_anywhere(open_index: OpenIndex, server: Double, index: str) -> None:
    store = open_index()
    for name in "abcd":
        text = f"secret{name}"
        await store.save("t", {"messages": [message(text)], "r": text}, name, {"k": text, "l": [text]})
    for name in "dbc":
        await store.delete("t", name)
        said = json.dumps(server.documents(index))
        assert f"secret{name}" not in said
        assert b64encode(f"secret{name}".encode()).decode()[:10] not in said
    assert await store.list_checkpoints("t") == ["a"]


async def test_a_thread_is_half_deleted_and_made_again(
    open_index: OpenIndex, relay: Relay, server: Double, index: str
) -> None:
    dying, other = open_index(relay), open_index()
    for i in range(5):
        await other.save("t", {"messages": [message(i)]}, f"c{i}")
    relay.rule = once(lambda request: "_mget" in request.path)
    with pytest.raises(BackendUnavailableError):
        await dying.delete("t")
    assert await other.load("t") is None
    assert await other.list_threads() == await other.query_by_metadata({}, versions="all") == []
    assert await other.search("1") == []
    await other.save("t", {"messages": [message("new")]}, "c3")
    assert [(i.checkpoint_id, i.version) for i in await other.history("t")] == [("c3", 1)]
    assert await other.load("t", "c1") is None
    grow_old(server, index)
    await other.vacuum()
    assert await other.load("t", "c3") == {"messages": [message("new")]}
    assert unseen(server, index) == ["checkpoint", "life", "thread"]


async def test_a_copy_that_is_not_finished_is_not_there(
    open_index: OpenIndex, relay: Relay, server: Double, index: str
) -> None:
    dying, other = open_index(relay), open_index()
    for i in range(5):
        await other.save("t", {"messages": [message(i)]}, f"c{i}")
    await other.put_records("t", "s", {"k": 1})
    before = unseen(server, index)
    relay.rule = once(changes_the_thread)
    with pytest.raises(BackendUnavailableError):
        await dying.copy_thread("t", "u")
    assert await other.list_threads() == ["t"]
    assert await other.load("u") is None
    assert await other.records("u", "s") == {}
    assert len(unseen(server, index)) > len(before)
    grow_old(server, index)
    await other.vacuum()
    assert unseen(server, index) == before


async def test_a_lost_answer_is_no_second_checkpoint(open_index: OpenIndex, relay: Relay) -> None:
    """The client sends the same again, and finds its own."""
    store = open_index(relay)
    await store.save("t", {"n": 0}, "first")
    for step in ('"kind":"checkpoint"', '"kind":"thread"'):
        lost = 0

        def after(request: Request, step: str = step) -> Answer | None:
            nonlocal lost
            if "_bulk" in request.path and step.encode() in request.body and not lost:
                lost += 1
                return Answer(None)
            return None

        relay.after = after
        version = (await store.history("t"))[0].version
        await store.save("t", {"n": step}, if_exists="error", expected_version=version)
        assert lost == 1
        assert await store.load("t") == {"n": step}
    assert [i.version for i in await store.history("t")] == [3, 2, 1]


async def test_removals_and_saves_at_random(open_index: OpenIndex, server: Double, index: str) -> None:
    """Each acknowledged checkpoint that was not removed loads equal, whatever goes on at the same time."""
    stores = [open_index() for _ in range(4)]
    documents: dict[str, dict[str, Any]] = {}
    removed: set[str] = set()

    async def work(store: OpenSearchBackend, who: int) -> None:
        rng = random.Random(who)
        messages: list[dict[str, str]] = []
        for i in range(25):
            if rng.random() < 0.25 and documents:
                name = rng.choice(list(documents))
                removed.add(name)
                await store.delete("t", name)
                continue
            loaded = await store.load("t") if rng.random() < 0.5 else None
            messages = list(loaded["messages"]) if loaded else messages
            messages = [*messages[rng.choice([0, 0, 1, 3]) :], message(f"{who} {i}")]
            documents[await store.save("t", {"messages": messages}, f"{who}-{i}")] = {"messages": messages}

    await asyncio.gather(*[work(store, who) for who, store in enumerate(stores)])
    found = await open_index().list_checkpoints("t", None)
    assert set(found) == documents.keys() - removed
    for name in found:
        assert await stores[0].load("t", name) == documents[name]
    await stores[1].delete("t")
    assert server.documents(index) == []
