"""The public faces of the store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.postgresql.driver import PostgreSQLDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState
from locus_store.sql.addresses import server_url
from locus_store.sql.models import one_schema, refuse_table_name

_NOWHERE = ("localhost", 5432, "locus", "postgres", "")
"""The address if none is given."""


class PostgreSQLBackend(Backend):
    """Documents in a PostgreSQL database.

    Args:
        host: The server's name.
        port: Its port.
        database: The database.
        user: The role.
        password: Its password; never shown.
        dsn: All of these as one URL, ``postgresql://user:password@host:port/database``, in place of them. Parameters of
            ``asyncpg.connect``, ``sslmode``, ``application_name`` and ``connect_timeout`` may follow.
        table_name: Refused unless None: the tables are `locus_store_…`; ``schema`` keeps stores apart.
        schema_name: The locus SDK's name of ``schema``.
        min_pool_size: How many connections are opened at the first call.
        max_pool_size: How many connections there are at most, for each event loop.
        schema: The schema of the tables, which must be there; None leaves it to the search path.
        create_schema: Make the tables at the first call if they are missing; False only checks, and then a role that
            may not create anything is enough.
        lock_timeout: Seconds that a write waits for a lock before `StoreBusyError`.
        connect_args: More arguments of ``asyncpg.connect``.
        engine_options: More arguments of SQLAlchemy's ``create_async_engine``.
        engine: An asynchronous engine of yours (``postgresql+asyncpg``) in place of an address. It is used, and
            otherwise left as it is.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 5432,
        database: str = "locus",
        user: str = "postgres",
        password: str = "",
        dsn: str | URL | None = None,
        table_name: str | None = None,
        schema_name: str | None = None,
        min_pool_size: int = 1,
        max_pool_size: int = 10,
        *,
        schema: str | None = None,
        create_schema: bool = True,
        lock_timeout: float = 10.0,
        connect_args: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
        engine: AsyncEngine | None = None,
        **options: Unpack[BackendOptions],
    ) -> None:
        refuse_table_name(table_name)
        address = (host, port, database, user, password)
        if dsn is None and (engine is None or address != _NOWHERE):
            dsn = server_url("postgresql", host, port, database, user, password)
        driver = PostgreSQLDriver(
            dsn,
            engine=engine,
            schema=one_schema(schema, schema_name),
            min_pool_size=min_pool_size,
            max_pool_size=max_pool_size,
            create_schema=create_schema,
            lock_timeout=lock_timeout,
            codec=options.get("codec"),
            connect_args=connect_args,
            engine_options=engine_options,
        )
        super().__init__(driver, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._driver!r})"


class PostgreSQLCheckpointer(Checkpointer[AgentState]):
    """Agent states in a PostgreSQL database.

    Args:
        dsn: The database's URL; the parameters of `PostgreSQLBackend` may be given in place of it.
        **options: See `PostgreSQLBackend`.
    """

    backend: PostgreSQLBackend

    def __init__(self, dsn: str | URL | None = None, **options: Any) -> None:
        super().__init__(PostgreSQLBackend(dsn=dsn, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("PostgreSQLBackend", type(self).__name__)
