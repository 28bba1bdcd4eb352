"""The SDK's import path of what is in `locus_store.backends.postgresql`."""

from locus_store.backends.postgresql import PostgreSQLBackend, PostgreSQLCheckpointer

__all__ = ["PostgreSQLBackend", "PostgreSQLCheckpointer"]
