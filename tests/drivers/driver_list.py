"""The drivers that the tests of this folder are run with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from locus_store.backends.file import FileDriver
from locus_store.backends.memory import MemoryDriver
from locus_store.backends.sqlite import SQLiteDriver
from locus_store.core.driver import Driver

DRIVERS: dict[str, Callable[[Path, Any], Driver]] = {
    "memory": lambda _, codec: MemoryDriver(codec=codec),
    "file": lambda folder, codec: FileDriver(folder, codec=codec, fsync=False),
    "sqlite": lambda folder, codec: SQLiteDriver(folder / "s.db", codec=codec),
    "sqlite-memory": lambda _, codec: SQLiteDriver(":memory:", codec=codec),
}
"""Each makes a driver from the path of a folder, which is not there yet, and a codec or None."""
