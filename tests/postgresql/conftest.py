"""Drivers on the real server, and sessions beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from locus_store.backends.postgresql import PostgreSQLDriver

Open = Callable[..., PostgreSQLDriver]


@pytest.fixture
async def open_driver(postgresql_url: str) -> AsyncIterator[Open]:
    """Opens drivers on this test's database, or on another URL, and closes them."""
    opened: list[PostgreSQLDriver] = []

    def new(url: str | None = None, **options: Any) -> PostgreSQLDriver:
        opened.append(PostgreSQLDriver(url or postgresql_url, **options))
        return opened[-1]

    yield new
    for driver in opened:
        await driver.aclose()


@pytest.fixture
def driver(open_driver: Open) -> PostgreSQLDriver:
    return open_driver()


@pytest.fixture
async def session(postgresql_url: str) -> AsyncIterator[Any]:
    """A session of somebody else's."""
    import asyncpg

    connection = await asyncpg.connect(postgresql_url)
    yield connection
    await connection.close()
