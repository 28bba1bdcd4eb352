"""The parts of the driver, over one client."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from typing import Any

from opensearchpy import AIOHttpConnection, AsyncOpenSearch

from locus_store.backends.opensearch.address import Address
from locus_store.backends.opensearch.clients import Opened
from locus_store.backends.opensearch.copying import Copier
from locus_store.backends.opensearch.index import prepare
from locus_store.backends.opensearch.listing import Lister
from locus_store.backends.opensearch.reading import Reader, Recent
from locus_store.backends.opensearch.records import Records
from locus_store.backends.opensearch.removing import Remover
from locus_store.backends.opensearch.saving import Saver
from locus_store.backends.opensearch.searching import Searcher
from locus_store.backends.opensearch.trimming import Trimmer
from locus_store.backends.opensearch.wire import Wire
from locus_store.core.frames import Codec


class Parts:
    """What carries out the primitives in one event loop.

    Args:
        opened: The client.
        index: The index's name.
        limit: Bytes that a request may have.
        patience: Seconds for which a busy server is asked again.
        codec: What frames go through.
        recent: What this process wrote last.
    """

    def __init__(
        self, opened: Opened, index: str, *, limit: int, patience: float, codec: Codec | None, recent: Recent
    ) -> None:
        self.opened = opened
        self.wire = Wire(opened, index, limit=limit, patience=patience)
        remover = Remover(self.wire, codec)
        self.reader = Reader(self.wire)
        self.lister = Lister(self.wire)
        self.searcher = Searcher(self.wire)
        self.saver = Saver(self.wire, remover, recent)
        self.records = Records(self.wire, self.saver)
        self.copier = Copier(self.wire, self.saver, self.records, codec)
        self.trimmer = Trimmer(self.wire, self.saver)

    async def prepare(self, *, create: bool, again: bool = False) -> None:
        """Make sure, once, that the index is there."""
        async with self.opened.preparing:
            if again or not self.opened.prepared:
                await prepare(self.wire, create=create)
                self.opened.prepared = True


_LARGE = 1024 * 1024
"""From this size on aiohttp wants a body as a file, of which it sends one piece after another."""


class Connection(AIOHttpConnection):
    """opensearch-py's connection, for large bodies too."""

    async def perform_request(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,
        ignore: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request."""
        if isinstance(body, bytes) and len(body) >= _LARGE and not self.http_compress:
            body = io.BytesIO(body)
        return await super().perform_request(method, url, params, body, timeout, ignore, headers)


def make_client(address: Address, timeout: float, max_connections: int, options: dict[str, Any]) -> AsyncOpenSearch:
    """A client of our own."""
    return AsyncOpenSearch(
        hosts=[dict(host) for host in address.hosts],
        timeout=timeout,
        maxsize=max_connections,
        connection_class=Connection,
        # One host that does not answer is tried again at once, several after another.
        max_retries=max(2, len(address.hosts)),
        **{**address.options, **options},
    )
