"""The public faces of the store in Oracle Database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.oracle.driver import OracleDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState
from locus_store.sql.models import one_schema, refuse_table_name


class OracleBackend(Backend):
    """Documents in an Oracle database, 19c or newer.

    The database is named by ``dsn``, or by ``host``, ``port`` and ``service_name``.

    Args:
        dsn: A name of ``tnsnames.ora``, ``host:port/service``, a connect descriptor, or a URL
            ``oracle://user:password@host:1521/service``; what is in it wins.
        user: The user.
        password: Their password; never shown.
        wallet_location: The folder of a wallet, which is also where ``tnsnames.ora`` is looked for.
        wallet_password: The password of the wallet's ``ewallet.pem``; never shown.
        host: The server's name.
        port: The port of its listener.
        service_name: The service; a pluggable database is one.
        table_name: Refused unless None: the tables are `locus_store_…`; ``schema`` keeps stores apart.
        schema_name: The locus SDK's name of ``schema``.
        min_pool_size: How many connections are opened at the first call.
        max_pool_size: How many connections there are at most, for each event loop.
        schema: The schema of the tables, which is a user's; None takes the session's own.
        create_schema: Make the tables at the first call if they are missing; False only checks, and then a user who
            may not create anything is enough.
        lock_timeout: Seconds that a write waits for a lock before `StoreBusyError`; whole ones.
        connect_args: More arguments of ``oracledb.connect_async``; they win.
        engine_options: More arguments of SQLAlchemy's ``create_async_engine``.
        engine: An asynchronous engine of yours (``oracle+oracledb_async``) in place of an address. It is used, and
            otherwise left as it is.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        dsn: str | URL | None = None,
        user: str = "admin",
        password: str = "",
        wallet_location: str | None = None,
        wallet_password: str | None = None,
        host: str | None = None,
        port: int = 1521,
        service_name: str | None = None,
        table_name: str | None = None,
        schema_name: str | None = None,
        min_pool_size: int = 1,
        max_pool_size: int = 5,
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
        driver = OracleDriver(
            dsn,
            engine=engine,
            user=user,
            password=password,
            wallet_location=wallet_location,
            wallet_password=wallet_password,
            host=host,
            port=port,
            service_name=service_name,
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


class OracleCheckpointer(Checkpointer[AgentState]):
    """Agent states in an Oracle database.

    Args:
        dsn: Where the database is; the parameters of `OracleBackend` may be given beside it or in place of it.
        **options: See `OracleBackend`.
    """

    backend: OracleBackend

    def __init__(self, dsn: str | URL | None = None, **options: Any) -> None:
        super().__init__(OracleBackend(dsn=dsn, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("OracleBackend", type(self).__name__)
