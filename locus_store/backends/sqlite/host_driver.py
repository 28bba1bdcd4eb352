"""SQLite over an engine of the host's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.core.errors import UnsupportedOperationError
from locus_store.core.frames import Codec
from locus_store.sql.async_driver import AsyncSQLDriver
from locus_store.sql.async_engine import over_engine
from locus_store.sql.dialects.sqlite import HOST_SQLITE, SQLITE
from locus_store.sql.loop_engine import NO_WIRE


class HostSQLiteDriver(AsyncSQLDriver):
    """Stores threads through an engine of the host's, with whatever pragmas and hooks the host has given it.

    Args:
        engine: The engine; it is used, and otherwise left as it is.
        busy_timeout: Seconds to wait for other writers before `StoreBusyError`, beside what the engine itself waits.
        create_schema: Make the tables at first use if they are missing.
        codec: What frames go through.
    """

    max_piece = SQLITE.max_piece

    def __init__(
        self, engine: AsyncEngine, *, busy_timeout: float = 30.0, create_schema: bool = True, codec: Codec | None = None
    ) -> None:
        super().__init__(
            HOST_SQLITE,
            over_engine(NO_WIRE, engine, SQLITE.names, "aiosqlite"),
            codec=codec,
            schema=None,
            create_schema=create_schema,
        )
        self.busy_timeout = busy_timeout
        in_a_file = engine.url.database not in (None, "", ":memory:")
        self.capabilities = replace(HostSQLiteDriver.capabilities, search=True, persistent=in_a_file, shared=in_a_file)

    def _options(self, isolation: str) -> dict[str, Any]:
        # SQLAlchemy would send a pragma to set a level; SQLite's transactions are serializable.
        return {}

    async def reclaim(self) -> int:
        """See `Driver.reclaim`; the file is the host's."""
        raise UnsupportedOperationError("SQLiteBackend(engine=…)", "reclaim", "run VACUUM on the engine")
