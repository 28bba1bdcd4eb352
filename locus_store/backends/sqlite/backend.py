"""The public faces of the store in SQLite."""

from __future__ import annotations

import os
from typing import Any, Literal, Unpack

from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.sqlite.driver import SQLiteDriver
from locus_store.backends.sqlite.host_driver import HostSQLiteDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState
from locus_store.sql.dialects.sqlite import SQLITE
from locus_store.sql.handed_in import check_engine
from locus_store.sql.models import refuse_table_name
from locus_store.sql.sqlite_files import MEMORY

_DEFAULT_PATH = "locus_checkpoints.db"


class SQLiteBackend(Backend):
    """Documents in a SQLite file, which several processes may use at once.

    The file, its folder and the tables are made at the first call. It runs in WAL mode; saves that wait are committed
    together, and readers never wait for the writer.

    Args:
        path: The file, or ``":memory:"`` for a database that lives as long as this object.
        table_name: Refused unless None: the tables are `locus_store_…`.
        synchronous: What an acknowledged save survives: with ``"FULL"`` a power failure, with ``"NORMAL"`` only the end
            of the process.
        busy_timeout: Seconds to wait for other writers before `StoreBusyError`.
        create_schema: Make what is missing at the first call; False only checks.
        engine: An asynchronous engine of yours (``sqlite+aiosqlite``) in place of a path. It is used, and otherwise
            left as it is: what it sets on its connections (journal mode, synchronous, foreign keys) is up to you.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = _DEFAULT_PATH,
        table_name: str | None = None,
        *,
        synchronous: Literal["FULL", "NORMAL", "EXTRA", "OFF"] = "FULL",
        busy_timeout: float = 30.0,
        create_schema: bool = True,
        engine: AsyncEngine | None = None,
        **options: Unpack[BackendOptions],
    ) -> None:
        refuse_table_name(table_name)
        codec = options.get("codec")
        driver: SQLiteDriver | HostSQLiteDriver
        if engine is None:
            self.path = os.fspath(path)
            driver = SQLiteDriver(
                path, synchronous=synchronous, busy_timeout=busy_timeout, create_schema=create_schema, codec=codec
            )
        else:
            beside = {"path": (path, _DEFAULT_PATH), "synchronous": (synchronous, "FULL")}
            check_engine(engine, SQLITE.names, "aiosqlite", **beside)
            self.path = engine.url.database or MEMORY
            driver = HostSQLiteDriver(engine, busy_timeout=busy_timeout, create_schema=create_schema, codec=codec)
        super().__init__(driver, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(path={self.path!r}){self._driver.bound_to}"


class SQLiteCheckpointer(Checkpointer[AgentState]):
    """Agent states in a SQLite file.

    Args:
        path: The file, or ``":memory:"``.
        **options: See `SQLiteBackend`.
    """

    backend: SQLiteBackend

    def __init__(self, path: str | os.PathLike[str] = _DEFAULT_PATH, **options: Any) -> None:
        super().__init__(SQLiteBackend(path, **options), AgentState)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(path={self.backend.path!r}){self._driver.bound_to}"
