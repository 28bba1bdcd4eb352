"""Drivers on the real server, and sessions beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from migrations.conftest import Database

from locus_store.backends.mysql import MySQLDriver

Open = Callable[..., MySQLDriver]


@pytest.fixture
async def open_driver(mariadb_url: str) -> AsyncIterator[Open]:
    """Opens drivers on this test's database, or on another URL, and closes them."""
    opened: list[MySQLDriver] = []

    def new(url: str | None = None, **options: Any) -> MySQLDriver:
        opened.append(MySQLDriver(url or mariadb_url, **options))
        return opened[-1]

    yield new
    for driver in opened:
        await driver.aclose()


@pytest.fixture
def driver(open_driver: Open) -> MySQLDriver:
    return open_driver()


@pytest.fixture
def mariadb(mariadb_url: str) -> Iterator[Database]:
    """The database of this test, by plain connections."""
    return Database(mariadb_url)
