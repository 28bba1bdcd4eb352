"""Hosts on every relational database, and what they bind a store to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from embedding.hosts import TARGETS, Begin, Host, host_on, opener
from store_fixtures import clock, mariadb_database, postgresql_database

from locus_store.core.backend import Backend

__all__ = ["clock", "mariadb_database", "postgresql_database"]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    made = host_on(request.param, request, tmp_path)
    yield made
    await made.close()


@pytest.fixture
def store(host: Host) -> Backend:
    """The backend that is bound; it connects by itself only where a test calls it."""
    return host.own()


@pytest.fixture(params=TARGETS)
def begin(request: pytest.FixtureRequest, host: Host) -> Begin:
    return opener(host, request.param)
