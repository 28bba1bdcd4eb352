"""The public faces of the store in MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from locus_store.backends.mysql.driver import MySQLDriver
from locus_store.backends.mysql.options import refuse
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState
from locus_store.sql.addresses import server_url
from locus_store.sql.models import one_schema, refuse_table_name

_NOWHERE = ("localhost", 3306, "locus", "root", "")
"""The address if none is given."""


class MySQLBackend(Backend):
    """Documents in a MySQL or MariaDB database.

    Args:
        host: The server's name.
        port: Its port.
        database: The database.
        user: Who connects.
        password: Its password; never shown.
        dsn: All of these as one URL, ``mysql://user:password@host:port/database`` or ``mariadb://…``, in place of them.
            ``ssl_ca`` and the like, ``connect_timeout``, ``read_timeout`` and ``unix_socket`` may follow.
        table_name: Refused unless None: the tables are `locus_store_…`; ``schema`` keeps stores apart.
        schema_name: The locus SDK's name of ``schema``.
        min_pool_size: How many connections are opened at the first call.
        max_pool_size: How many connections there are at most, for each event loop.
        charset: Only utf8mb4, which it is anyway.
        collation: Refused unless None: ids are compared byte by byte.
        autocommit: Refused unless False: what a save writes is one transaction.
        use_pure: Refused unless None: it belongs to a client that is not used here.
        schema: The database of the tables, if it is another one than the connection's; it must be there.
        create_schema: Make the tables at the first call if they are missing; False only checks, and then a user who
            may not create anything is enough.
        lock_timeout: Seconds that a write waits for a lock before `StoreBusyError`; fractions are rounded up.
        connect_args: More arguments of ``asyncmy.connect``: ``ssl``, ``read_timeout``, …
        engine_options: More arguments of SQLAlchemy's ``create_async_engine``.
        engine: An asynchronous engine of yours (``mysql+asyncmy``) in place of an address. It is used, and otherwise
            left as it is.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 3306,
        database: str = "locus",
        user: str = "root",
        password: str = "",
        dsn: str | URL | None = None,
        table_name: str | None = None,
        schema_name: str | None = None,
        min_pool_size: int = 1,
        max_pool_size: int = 10,
        charset: str = "utf8mb4",
        collation: str | None = None,
        autocommit: bool = False,
        use_pure: bool | None = None,
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
        refuse(charset, collation, autocommit, use_pure)
        address = (host, port, database, user, password)
        if dsn is None and (engine is None or address != _NOWHERE):
            dsn = server_url("mysql", host, port, database, user, password)
        driver = MySQLDriver(
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


class MySQLCheckpointer(Checkpointer[AgentState]):
    """Agent states in a MySQL or MariaDB database.

    Args:
        dsn: The database's URL; the parameters of `MySQLBackend` may be given in place of it.
        **options: See `MySQLBackend`.
    """

    backend: MySQLBackend

    def __init__(self, dsn: str | URL | None = None, **options: Any) -> None:
        super().__init__(MySQLBackend(dsn=dsn, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("MySQLBackend", type(self).__name__)
