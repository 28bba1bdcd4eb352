"""Fixtures for the tests of the OpenSearch driver.

`server`      each of the two doubles
`relay`       a relay in front of it (`relay.Relay`)
`open_index`  opens backends on one index of the server: ``open_index()``, or through the relay ``open_index(relay)``
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import servers
from opensearch_driver.relay import Relay
from opensearch_servers import Double

from locus_store import OpenSearchBackend

OpenIndex = Callable[..., OpenSearchBackend]


@pytest.fixture(params=["osmem", "noida"])
def server(request: pytest.FixtureRequest) -> Double:
    found: Double = request.getfixturevalue(request.param)
    found.ensure_running()
    servers.note_ran(found.name, found.version)
    return found


@pytest.fixture
async def relay(server: Double) -> AsyncIterator[Relay]:
    async with Relay(server.url) as found:
        yield found


@pytest.fixture
def index(server: Double) -> str:
    return server.new_index()


@pytest.fixture
async def open_index(server: Double, index: str) -> AsyncIterator[OpenIndex]:
    opened: list[OpenSearchBackend] = []

    def new(relay: Relay | None = None, **options: Any) -> OpenSearchBackend:
        place = f"127.0.0.1:{server.port if relay is None else relay.port}"
        opened.append(OpenSearchBackend(place, index, use_ssl=False, **options))
        return opened[-1]

    yield new
    for store in opened:
        await store.close()
