"""The index of words on the databases that have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import backends
import pytest
from elsewhere import start
from store_fixtures import clock, open_store, place, postgresql_database, store

__all__ = ["clock", "open_store", "place", "postgresql_database", "store"]

TABLES = ("queue", "texts", "places")


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def indexed(place: backends.Place) -> tuple[int, ...]:
    """How many rows the index has: those in its queue, texts, and places of texts."""
    return tuple(place.execute(f"SELECT count(*) FROM locus_store_search_{name}")[0][0] for name in TABLES)


def words(place: backends.Place) -> str:
    """All that the index knows of texts."""
    table = "words" if place.name == "sqlite" else "texts"
    cast = "words" if place.name == "sqlite" else "words::text"
    return " ".join(row[0] for row in place.execute(f"SELECT {cast} FROM locus_store_search_{table}"))


@pytest.fixture
def run_program(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts programs in processes of their own, which are ended with the test."""
    started: list[Any] = []

    def run(program: str, *arguments: str) -> Any:
        started.append(start(program, *arguments))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()
