"""The public faces of the store in OpenSearch and Elasticsearch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from locus_store.backends.opensearch.address import DEFAULT_INDEX, of_hosts, of_url
from locus_store.backends.opensearch.driver import MAX_CONTENT_LENGTH, OpenSearchDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch


class OpenSearchBackend(Backend):
    """Documents in an index of OpenSearch 2.4 or newer, or Elasticsearch 8.

    Args:
        hosts: The servers: ``"localhost:9200"``, several of them, or with ``http://`` or ``https://`` in front, which
            then counts in place of ``use_ssl``.
        index_name: The index; stores with different ones do not see each other. Default ``locus-checkpoints``.
        username: Who connects.
        password: Their password; never shown.
        use_ssl: Whether to use TLS. None means yes, unless ``dsn`` begins with ``opensearch://``.
        verify_certs: Whether the servers' certificates must be valid.
        ca_certs: A file, or a folder, of certificates to trust.
        dsn: Hosts, user and index as one URL in place of them: ``opensearch://user:password@host:9200/index``, or
            ``opensearchs://…`` over TLS.
        client: An ``AsyncOpenSearch`` of your own in place of an address. It is used, and never closed.
        create_schema: Make the index at the first call if it is missing; False only checks.
        timeout: Seconds that an answer is waited for.
        busy_timeout: Seconds for which a request that the servers turn down as one too many (429) is sent again before
            `StoreBusyError`.
        max_connections: How many connections there are at most to each server, for each event loop.
        max_content_length: Bytes that one request may have: the servers' ``http.max_content_length``. A save that
            needs more is `PayloadTooLargeError`.
        client_options: More arguments of opensearch-py's client: ``client_cert``, ``headers``, …
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    _driver: OpenSearchDriver

    def __init__(
        self,
        hosts: str | Sequence[str] | None = None,
        index_name: str | None = None,
        username: str | None = None,
        password: str | None = None,
        use_ssl: bool | None = None,
        verify_certs: bool = True,
        ca_certs: str | None = None,
        *,
        dsn: str | None = None,
        client: AsyncOpenSearch | None = None,
        create_schema: bool = True,
        timeout: float = 30.0,
        busy_timeout: float = 10.0,
        max_connections: int = 10,
        max_content_length: int = MAX_CONTENT_LENGTH,
        client_options: Mapping[str, Any] | None = None,
        **options: Unpack[BackendOptions],
    ) -> None:
        if dsn is not None and hosts is not None:
            raise TypeError("hosts and dsn are two ways to say the same: give one of them")
        if client is not None and (dsn, hosts, username, password) != (None, None, None, None):
            raise TypeError("a client has its servers and its user: no hosts, dsn, username or password beside it")
        if dsn is not None:
            address = of_url(dsn, index_name, username, password, use_ssl, verify_certs, ca_certs)
        else:
            tls = use_ssl is None or use_ssl
            address = of_hosts(hosts, index_name or DEFAULT_INDEX, username, password, tls, verify_certs, ca_certs)
        driver = OpenSearchDriver(
            address,
            client=client,
            create_schema=create_schema,
            timeout=timeout,
            busy_timeout=busy_timeout,
            max_connections=max_connections,
            max_content_length=max_content_length,
            codec=options.get("codec"),
            client_options=client_options,
        )
        super().__init__(driver, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._driver!r})"


class OpenSearchCheckpointer(Checkpointer[AgentState]):
    """Agent states in an index of OpenSearch or Elasticsearch.

    Args:
        hosts: The servers.
        index_name: The index.
        **options: See `OpenSearchBackend`.
    """

    backend: OpenSearchBackend

    def __init__(self, hosts: str | Sequence[str] | None = None, index_name: str | None = None, **options: Any) -> None:
        super().__init__(OpenSearchBackend(hosts, index_name, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("OpenSearchBackend", type(self).__name__)
