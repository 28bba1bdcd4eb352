"""Threads in a SQLite file, or in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, Literal, ParamSpec, TypeVar

from sqlalchemy import Connection

from locus_store.core.frames import Codec
from locus_store.sql.dialects.sqlite import SQLITE
from locus_store.sql.driver import SQLDriver
from locus_store.sql.sqlite_engine import SQLiteEngine
from locus_store.sql.sqlite_files import MEMORY, Settings

P = ParamSpec("P")
R = TypeVar("R")


class SQLiteDriver(SQLDriver):
    """SQLite, opened at the first call and again at the first call after `aclose`.

    Args:
        path: The file, or ``":memory:"`` for a database that lives as long as this object.
        synchronous: What an acknowledged save survives: with ``"FULL"`` a power failure, with ``"NORMAL"`` only the end
            of the process.
        busy_timeout: Seconds to wait for other processes before `StoreBusyError`.
        create_schema: Make folder, file and tables if they are missing; otherwise they must be there.
        codec: What frames go through.
    """

    dialect = SQLITE
    max_piece = SQLITE.max_piece
    seals = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL", "EXTRA", "OFF"] = "FULL",
        busy_timeout: float = 30.0,
        create_schema: bool = True,
        codec: Codec | None = None,
    ) -> None:
        if synchronous not in ("FULL", "NORMAL", "EXTRA", "OFF"):
            raise ValueError(f"synchronous must be FULL, NORMAL, EXTRA or OFF, not {synchronous!r}")
        self.path = os.fspath(path)
        if not self.path:
            raise ValueError("path is empty: name a file, or ':memory:'")
        in_memory = self.path == MEMORY
        self.codec = codec
        self.creates_schema = create_schema or in_memory
        self.capabilities = replace(
            SQLDriver.capabilities, reclaim=True, search=True, persistent=not in_memory, shared=not in_memory
        )
        self._engine = SQLiteEngine(
            Settings(
                MEMORY if in_memory else os.path.abspath(self.path),
                synchronous,
                busy_timeout,
                self.creates_schema,
            )
        )

    async def _read(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._engine.read(function, *args, **kwargs)

    async def _write(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._engine.write(function, *args, **kwargs)

    async def prepare(self) -> None:
        """See `Driver.prepare`."""
        await self._engine.prepare()

    async def reclaim(self) -> int:
        """See `Driver.reclaim`."""
        return await self._engine.reclaim()

    async def aclose(self) -> None:
        """See `Driver.aclose`; a database in memory stays as long as this object."""
        await self._engine.close()
