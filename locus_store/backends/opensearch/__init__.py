"""Threads in OpenSearch, or Elasticsearch 8, over opensearch-py's asynchronous client."""

from __future__ import annotations

from locus_store.backends.opensearch.backend import OpenSearchBackend, OpenSearchCheckpointer
from locus_store.backends.opensearch.driver import OpenSearchDriver

__all__ = ["OpenSearchBackend", "OpenSearchCheckpointer", "OpenSearchDriver"]
