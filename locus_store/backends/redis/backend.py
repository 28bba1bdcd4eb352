"""The public faces of the store in Redis and Valkey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from locus_store.backends.redis.driver import MAX_PIECE, RedisDriver
from locus_store.backends.redis.keys import DEFAULT_PREFIX
from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

DEFAULT_URL = "redis://localhost:6379"


class RedisBackend(Backend):
    """Documents in Redis or Valkey: one server, one behind sentinels, or a cluster. Plain commands and scripts only.

    How much of an acknowledged save survives a crash of the server is the server's affair: with ``appendfsync always``
    all of it, without persistence nothing.

    Args:
        url: ``redis://user:password@host:6379/0``, ``rediss://…``, ``unix:///path/socket?db=0``,
            ``redis+sentinel://host:26379,host:26379/master/0`` or ``redis+cluster://host:6379,host:6379``. Options of
            redis-py's client may follow.
        prefix: What all keys begin with; stores with different ones do not see each other.
        ttl_seconds: How long a thread lives after its last save, or None for ever.
        db: The number of the database, unless the URL has one.
        client: A ``redis.asyncio.Redis`` or ``RedisCluster`` of your own in place of a URL. It is used, and never
            closed.
        renew_on_load: Let a thread live ``ttl_seconds`` from its last load, too. Loads then write, so a read-only
            replica refuses them.
        timeout: Seconds that an answer, or a connection, is waited for; 10 unless a client is passed.
        max_connections: How many calls are made at once, and how many connections there are at most, in each event
            loop.
        max_piece: How many bytes one value may have; more is `PayloadTooLargeError`. Servers take up to 512 MB.
        client_options: More arguments of redis-py's client: ``ssl_ca_certs``, ``client_name``, …
        **options: ``tenant``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see `Backend`.
    """

    _driver: RedisDriver

    def __init__(
        self,
        url: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        ttl_seconds: float | None = None,
        db: int = 0,
        *,
        client: Redis | RedisCluster | None = None,
        renew_on_load: bool = False,
        timeout: float | None = None,
        max_connections: int = 50,
        max_piece: int = MAX_PIECE,
        client_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if renew_on_load and ttl_seconds is None:
            raise ValueError("renew_on_load has no meaning without ttl_seconds")
        driver = RedisDriver(
            DEFAULT_URL if url is None and client is None else url,
            client=client,
            prefix=prefix,
            db=db,
            timeout=timeout,
            max_connections=max_connections,
            max_piece=max_piece,
            codec=options.get("codec"),
            renew_seconds=ttl_seconds if renew_on_load else None,
            client_options=client_options,
        )
        super().__init__(driver, ttl_seconds=ttl_seconds, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._driver!r})"


class RedisCheckpointer(Checkpointer[AgentState]):
    """Agent states in Redis or Valkey.

    Args:
        url: Where the server is.
        **options: See `RedisBackend`.
    """

    backend: RedisBackend

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(RedisBackend(url, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("RedisBackend", type(self).__name__)
