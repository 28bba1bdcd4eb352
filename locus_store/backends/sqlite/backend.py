"""The public faces of the store in SQLite."""

from __future__ import annotations

import os
from typing import Any, Literal, Unpack

from locus_store.backends.sqlite.driver import SQLiteDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState
from locus_store.sql.models import refuse_table_name


class SQLiteBackend(Backend):
    """Documents in a SQLite file, which several processes may use at once.

    The file, its folder and the tables are made at the first call. It runs in WAL mode; saves that wait are committed
    together, and readers never wait for the writer.

    Args:
        path: The file, or ``":memory:"`` for a database that lives as long as this object.
        table_name: Refused unless None: the tables are `locus_store_…`.
        synchronous: What an acknowledged save survives: with ``"FULL"`` a power failure, with ``"NORMAL"`` only the end
            of the process.
        busy_timeout: Seconds to wait for other processes' writes before `StoreBusyError`.
        create_schema: Make what is missing at the first call; False only checks.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "locus_checkpoints.db",
        table_name: str | None = None,
        *,
        synchronous: Literal["FULL", "NORMAL", "EXTRA", "OFF"] = "FULL",
        busy_timeout: float = 30.0,
        create_schema: bool = True,
        **options: Unpack[BackendOptions],
    ) -> None:
        refuse_table_name(table_name)
        self.path = os.fspath(path)
        driver = SQLiteDriver(
            path,
            synchronous=synchronous,
            busy_timeout=busy_timeout,
            create_schema=create_schema,
            codec=options.get("codec"),
        )
        super().__init__(driver, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(path={self.path!r})"


class SQLiteCheckpointer(Checkpointer[AgentState]):
    """Agent states in a SQLite file.

    Args:
        path: The file, or ``":memory:"``.
        **options: See `SQLiteBackend`.
    """

    backend: SQLiteBackend

    def __init__(self, path: str | os.PathLike[str] = "locus_checkpoints.db", **options: Any) -> None:
        super().__init__(SQLiteBackend(path, **options), AgentState)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(path={self.backend.path!r})"
