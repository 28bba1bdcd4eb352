"""Addresses, and clients that are handed in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opensearch_driver.relay import Relay
from opensearch_servers import Double
from opensearchpy import AsyncOpenSearch

from locus_store import OpenSearchBackend, OpenSearchCheckpointer
from locus_store.backends.opensearch.address import Address, of_hosts, of_url


def hosts(address: Address) -> list[tuple[str, int, bool]]:
    return [(host["host"], host["port"], host["use_ssl"]) for host in address.hosts]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [("localhost", 9200, True)]),
        ("h", [("h", 9200, True)]),
        ("h:1, i:2", [("h", 1, True), ("i", 2, True)]),
        (["http://h:1", "https://i", "j"], [("h", 1, False), ("i", 9200, True), ("j", 9200, True)]),
        ("[::1]:9201", [("::1", 9201, True)]),
        ("https://h/prefix/", [("h", 9200, True)]),
    ],
)
def test_hosts(given: Any, expected: list[tuple[str, int, bool]]) -> None:
    address = of_hosts(given, "x", None, None, True, True, None)
    assert hosts(address) == expected
    assert address.options == {"verify_certs": True, "ssl_show_warn": False}


@pytest.mark.parametrize(
    ("url", "expected", "index", "user"),
    [
        ("opensearch://h", [("h", 9200, False)], "locus-checkpoints", None),
        ("opensearch://h:1,i/x-1", [("h", 1, False), ("i", 9200, False)], "x-1", None),
        ("opensearchs://u:p%40%2F%3A@h:1/x", [("h", 1, True)], "x", ("u", "p@/:")),
        ("opensearch://", [("localhost", 9200, False)], "locus-checkpoints", None),
    ],
)
def test_urls(url: str, expected: list[tuple[str, int, bool]], index: str, user: tuple[str, str] | None) -> None:
    address = of_url(url)
    assert (hosts(address), address.index, address.options.get("http_auth")) == (expected, index, user)


def test_tls_by_the_scheme_or_by_an_option() -> None:
    assert hosts(of_url("opensearch://h", use_ssl=True)) == [("h", 9200, True)]
    with pytest.raises(ValueError, match="opensearchs:// is TLS"):
        of_url("opensearchs://h", use_ssl=False)
    assert of_url("opensearchs://h", verify_certs=False, ca_certs="/ca").options == {
        "verify_certs": False,
        "ssl_show_warn": False,
        "ca_certs": "/ca",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hosts": []}, "hosts is empty"),
        ({"hosts": "ftp://h"}, "a host is written"),
        ({"hosts": "h:port"}, "a host is written"),
        ({"hosts": "https://u:first@h"}, "pass username and password"),
        ({"username": "u"}, "belong together"),
        ({"index_name": "Upper"}, "index_name must be"),
        ({"index_name": "a*"}, "index_name must be"),
        ({"index_name": "a,b"}, "index_name must be"),
        ({"index_name": "../x"}, "index_name must be"),
        ({"dsn": "http://h"}, "is opensearch://host:9200/index"),
        ({"dsn": "opensearch://u:first@second@h"}, "written %40"),
        ({"dsn": "opensearch://u:fi/rst@h"}, "written %40 or %2F"),
        ({"dsn": "opensearch://u:first?second@h"}, "written %3F"),
        ({"dsn": "opensearch://h/a/b"}, "ends with the index"),
        ({"dsn": "opensearch://h/a", "index_name": "b"}, "give one of them"),
        ({"dsn": "opensearch://u:first@h", "username": "u", "password": "second"}, "give one of them"),
    ],
)
def test_what_is_no_address(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        OpenSearchBackend(**options)
    assert "first" not in str(caught.value)


def test_two_ways_to_say_the_same() -> None:
    with pytest.raises(TypeError, match="hosts and dsn"):
        OpenSearchBackend("h", dsn="opensearch://h")
    with pytest.raises(TypeError, match="a client has its servers"):
        OpenSearchBackend("h", client=object())  # type: ignore[arg-type]


def test_no_password_is_shown() -> None:
    store = OpenSearchCheckpointer("h:1", "x", username="u", password="s3cret")
    assert repr(store) == "OpenSearchCheckpointer(OpenSearchDriver(h:1/x))"
    for thing in (store, store.backend, store.backend._driver, of_url("opensearch://u:s3cret@h")):
        assert "s3cret" not in repr(thing)
        assert "s3cret" not in str(thing)


async def test_a_client_that_is_handed_in_is_used_and_never_closed(server: Double, relay: Relay, index: str) -> None:
    client = AsyncOpenSearch(hosts=[{"host": "127.0.0.1", "port": relay.port}], use_ssl=False)
    try:
        for _ in range(2):
            async with OpenSearchBackend(client=client, index_name=index) as store:
                assert repr(store) == f"OpenSearchBackend(OpenSearchDriver(a client of the caller's, {index}))"
                await store.save("t", {"n": 1})
                assert await store.load("t") == {"n": 1}
            assert (await client.info())["version"]
        assert relay.count(index) > 0
    finally:
        await client.close()


async def test_the_user_is_sent(server: Double, relay: Relay, index: str) -> None:
    async with OpenSearchBackend(f"http://127.0.0.1:{relay.port}", index, "u", "p:ss") as store:
        await store.save("t", {"n": 1})
    assert {request.user for request in relay.requests} == {"u:p:ss"}


def test_one_store_in_several_loops_with_a_client_of_its_own(server: Double, index: str) -> None:
    store = OpenSearchBackend(dsn=server.address(index))

    async def once(i: int) -> None:
        await store.save("t", {"n": i})
        assert await store.load("t") == {"n": i}

    for i in range(3):
        asyncio.run(once(i))
