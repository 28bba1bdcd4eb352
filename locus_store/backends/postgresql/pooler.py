"""Poolers between client and server, PgBouncer before all: found out, and then lived with.

In transaction mode a pooler may give each transaction another session of the server. A prepared statement belongs to a
session: the next transaction may not know it, or find somebody else's under its name. Without names nothing can be
mixed up, for a statement is then parsed and run within one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

NAMELESS: Mapping[str, Any] = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": lambda: "",
}
"""Arguments for ``connect_args`` with which no statement has a name: asyncpg keeps none, nor does SQLAlchemy."""

_NAMED = "locus_store_named_statements"


def statement_names(connect: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[[AsyncEngine], None] | None]:
    """Arguments of connecting, with what they do not say of the names of statements, and who watches the engines.

    Who says how many statements are kept has said what there is between here and the server: nobody watches then.
    """
    size = connect.get("statement_cache_size")
    more = NAMELESS if size == 0 else {"prepared_statement_name_func": _unlike_any_other}
    return {**more, **connect}, None if size is not None else PoolerWatch().watch


def _unlike_any_other() -> str:
    """A name that no other process has given to a statement: the first ones may already go through a pooler."""
    return f"locus_store_{uuid4().hex}"


class PoolerWatch:
    """Compares at the first connection who answers with who greeted: a pooler greets in its own name.

    From then on the engines that it watches use no names of statements. A pooler that gives a client one session for as
    long as it is connected, or that knows prepared statements, is served as well; there it only costs some time.
    """

    def __init__(self) -> None:
        self._found: bool | None = None

    def watch(self, engine: AsyncEngine) -> None:
        """Have `engine`, which is ours and new, take part."""
        event.listen(engine.sync_engine, "do_connect", self._connecting)
        event.listen(engine.sync_engine, "connect", self._connected)
        event.listen(engine.sync_engine, "checkout", self._taken)

    def _connecting(self, dialect: Any, entry: ConnectionPoolEntry, args: Any, options: dict[str, Any]) -> None:
        entry.info[_NAMED] = not self._found
        if self._found:
            options.update(NAMELESS)

    def _connected(self, connection: Any, entry: ConnectionPoolEntry) -> None:
        if self._found is None:
            answers = connection.run_async(_who_answers)
            self._found = answers != connection.driver_connection.get_server_pid()

    def _taken(self, connection: Any, entry: ConnectionPoolEntry, proxied: Any) -> None:
        if self._found and entry.info[_NAMED]:
            raise DisconnectionError("made before it was known that there is a pooler")


async def _who_answers(connection: Any) -> int:
    statement = await connection.prepare("SELECT pg_backend_pid()", name="")
    found: int = await statement.fetchval()
    return found
