"""The SDK's import path of what is in `locus_store.backends.opensearch`."""

from locus_store.backends.opensearch import OpenSearchBackend, OpenSearchCheckpointer

__all__ = ["OpenSearchBackend", "OpenSearchCheckpointer"]
