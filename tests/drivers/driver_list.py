"""The drivers that the tests of this folder are run with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from objects.memory_port import MemoryPort

from locus_store.backends.file import FileDriver
from locus_store.backends.memory import MemoryDriver
from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.opensearch import OpenSearchDriver
from locus_store.backends.opensearch.address import of_url
from locus_store.backends.redis import RedisDriver
from locus_store.backends.sqlite import SQLiteDriver
from locus_store.core.driver import Driver


def _redis(folder: Path, codec: Any, server: Any) -> Driver:
    return RedisDriver(server.store_url, prefix=f"{folder}:", codec=codec)


DRIVERS: dict[str, Callable[[Path, Any, Any], Driver]] = {
    "memory": lambda _, codec, __: MemoryDriver(codec=codec),
    "file": lambda folder, codec, _: FileDriver(folder, codec=codec, fsync=False),
    "sqlite": lambda folder, codec, _: SQLiteDriver(folder / "s.db", codec=codec),
    "sqlite-memory": lambda _, codec, __: SQLiteDriver(":memory:", codec=codec),
    "redis": _redis,
    "redis-cluster": _redis,
    "opensearch-double": lambda _, codec, server: OpenSearchDriver(
        of_url(server.address(server.new_index())), codec=codec
    ),
    "objects-double": lambda folder, codec, _: ObjectDriver(MemoryPort(), prefix=folder.name, codec=codec),
}
"""Each makes a driver from the path of a folder, which is not there yet, a codec or None, and its server or None."""

SERVERS = {"redis": "redis_server", "redis-cluster": "redis_cluster", "opensearch-double": "osmem"}
"""The fixtures of the servers that drivers need."""

LONG = ["redis-cluster"]
"""Those that only the long tests go through."""

PARAMS = [pytest.param(name, marks=pytest.mark.endurance) if name in LONG else name for name in DRIVERS]
"""The names of the drivers as parameters of tests."""

OpenDriver = Callable[[str, Path, Any], Driver]
"""The fixture `open_driver`: makes a driver from its name, the path of a folder that is not there yet, and a codec."""
