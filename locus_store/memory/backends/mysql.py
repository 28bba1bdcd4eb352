"""The SDK's import path of what is in `locus_store.backends.mysql`."""

from locus_store.backends.mysql import MySQLBackend, MySQLCheckpointer

__all__ = ["MySQLBackend", "MySQLCheckpointer"]
