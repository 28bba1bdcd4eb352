"""What a server that refuses is taken for: an error that says what to do, and never "no such thread"."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opensearch_driver.conftest import OpenIndex
from opensearch_driver.relay import Answer, Relay, Request, error
from opensearch_servers import Double, Osmem

from locus_store import (
    BackendError,
    BackendUnavailableError,
    OpenSearchBackend,
    PayloadTooLargeError,
    StoreBusyError,
)

CALLS: dict[str, Callable[[OpenSearchBackend], Awaitable[Any]]] = {
    "load": lambda store: store.load("t"),
    "load by id": lambda store: store.load("t", "c"),
    "exists": lambda store: store.exists("t"),
    "list_checkpoints": lambda store: store.list_checkpoints("t"),
    "list_threads": lambda store: store.list_threads(),
    "query": lambda store: store.query_by_metadata({"k": 1}, versions="all"),
    "search": lambda store: store.search("words"),
    "records": lambda store: store.records("t", "s"),
    "save": lambda store: store.save("t", {"n": 2}),
    "save another": lambda store: store.save("u", {"n": 2}),
    "delete": lambda store: store.delete("t"),
    "copy": lambda store: store.copy_thread("t", "v"),
    "put_records": lambda store: store.put_records("t", "s", {"k": 1}),
    "vacuum": lambda store: store.vacuum(),
}
WRITES = ["save", "save another", "delete", "copy", "put_records"]


def for_documents(answer: Answer) -> Callable[[Request], Answer | None]:
    """Answers all but what is asked for when a store is opened."""
    return lambda request: None if request.path in ("/",) or "_mapping" in request.path else answer


async def ready(store: OpenSearchBackend) -> None:
    await store.save("t", {"n": 1}, "c", {"k": 1})


REFUSALS = {
    "wrong password": (error(401, "security_exception"), BackendError, "refuses the user or the password"),
    "forbidden": (error(403, "security_exception", "no permissions for x"), BackendError, "forbids this user"),
    "not available": (error(503, "no_shard_available"), BackendUnavailableError, "not available"),
    "gateway": (Answer(502, b"<html>", "text/html"), BackendUnavailableError, "not available"),
    "hangs up": (Answer(None), BackendUnavailableError, "cannot be reached"),
    "nonsense": (Answer(200, b"<html>", "text/html"), BackendError, "cannot be read"),
    "broken JSON": (Answer(200, b'{"found"', "application/json; charset=utf-8"), BackendError, "cannot be read"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refusal_is_an_error(open_index: OpenIndex, relay: Relay, refusal: str) -> None:
    answer, kind, said = REFUSALS[refusal]
    store = open_index(relay, username="me", password="s3cret-pw")
    await ready(store)
    relay.rule = for_documents(answer)
    for name, call in CALLS.items():
        with pytest.raises(kind, match=said) as caught:
            await call(store)
        assert caught.value.__cause__ is not None, name
        assert "s3cret-pw" not in "".join(traceback.format_exception(caught.value))
    relay.rule = lambda request: None
    assert await store.load("t") == {"n": 1}
    await store.save("t", {"n": 2})


async def test_a_busy_server_is_asked_again(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index(relay)
    await ready(store)
    turned_down = 0

    def busy(request: Request) -> Answer | None:
        nonlocal turned_down
        turned_down += 1
        return error(429, "es_rejected_execution_exception") if turned_down % 3 else None

    relay.rule = busy
    for i in range(5):
        await store.save("t", {"n": i})
        assert await store.load("t") == {"n": i}
    assert turned_down > 20


async def test_a_busy_server_is_not_asked_for_ever(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index(relay, busy_timeout=0.2)
    await ready(store)
    relay.rule = for_documents(error(429, "circuit_breaking_exception"))
    for call in CALLS.values():
        with pytest.raises(StoreBusyError, match=r"too busy for 0\.2 seconds"):
            await call(store)
    relay.rule = lambda request: None
    assert await store.load("t") == {"n": 1}


async def test_single_writes_that_are_turned_down_are_sent_again(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index(relay)
    await ready(store)
    turned_down = 0

    def busy(request: Request) -> Answer | None:
        nonlocal turned_down
        if "_bulk" not in request.path or turned_down == 3:
            return None
        turned_down += 1
        cause = {"type": "es_rejected_execution_exception", "reason": "full"}
        ids = request.body.count(b'"_id"')
        return Answer(200, {"errors": True, "items": [{"index": {"status": 429, "error": cause}}] * ids})

    relay.rule = busy
    await store.save("t", {"n": 2})
    assert turned_down == 3
    assert len(await store.list_checkpoints("t")) == 2


async def test_a_server_that_is_down(new_opensearch: Callable[..., Double]) -> None:
    server = new_opensearch(Osmem)
    async with (
        OpenSearchBackend(dsn=server.address("down")) as store,
        OpenSearchBackend(dsn=server.address("down")) as new,
    ):
        await ready(store)
        server.stop()
        for who in (store, new):
            for call in CALLS.values():
                with pytest.raises(BackendUnavailableError, match="cannot be reached"):
                    await call(who)


async def test_a_server_that_does_not_answer(new_opensearch: Callable[..., Double]) -> None:
    server = new_opensearch(Osmem)
    async with OpenSearchBackend(dsn=server.address("silent"), timeout=0.3) as store:
        await ready(store)
        server.pause()
        for call in (CALLS["load"], CALLS["save"], CALLS["list_threads"]):
            with pytest.raises(BackendUnavailableError, match="cannot be reached"):
                await asyncio.wait_for(call(store), 60)
        server.resume()
        await store.save("t", {"n": 3})
        assert await store.load("t") == {"n": 3}


async def test_a_full_disk(open_index: OpenIndex, server: Double, index: str) -> None:
    store = open_index()
    await ready(store)
    server.request("PUT", f"/{index}/_settings", {"index.blocks.read_only_allow_delete": True})
    for name in ("save", "save another", "put_records"):
        with pytest.raises(BackendError, match=r"takes no writes.*make room"):
            await CALLS[name](store)
    assert await store.load("t") == {"n": 1}
    server.request("PUT", f"/{index}/_settings", {"index.blocks.read_only_allow_delete": None})
    await store.save("t", {"n": 2})


async def test_a_closed_index(open_index: OpenIndex, server: Double, index: str) -> None:
    store = open_index()
    await ready(store)
    server.request("POST", f"/{index}/_close")
    for name in ("load", "exists", "save", "delete", "list_checkpoints"):
        with pytest.raises(BackendError, match="is closed"):
            await CALLS[name](store)
    server.request("POST", f"/{index}/_open")
    assert await store.load("t") == {"n": 1}


async def test_an_index_that_is_gone(open_index: OpenIndex, server: Double, index: str) -> None:
    store = open_index()
    await ready(store)
    server.drop_index(index)
    for name in ("load", "exists", "delete", "list_checkpoints", "list_threads", "query", "search", "save another"):
        with pytest.raises(BackendError, match="is not there"):
            await CALLS[name](store)


async def test_what_is_larger_than_a_request_may_be_is_not_sent(open_index: OpenIndex, relay: Relay) -> None:
    store = open_index(relay, max_content_length=100_000)
    await store.save("t", {"n": 1})
    sent = len(relay.requests)
    with pytest.raises(PayloadTooLargeError) as caught:
        await store.save("t", {"b": bytes(range(256)) * 1000})
    assert caught.value.limit == 100_000 < caught.value.size
    assert len(relay.requests) == sent or all(len(r.body) < 100_000 for r in relay.requests[sent:])
    assert await store.load("t") == {"n": 1}
    await store.save("t", {"b": bytes(range(256)) * 100})
