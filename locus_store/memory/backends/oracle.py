"""The SDK's import path of what is in `locus_store.backends.oracle`."""

from locus_store.backends.oracle import OracleBackend, OracleCheckpointer

__all__ = ["OracleBackend", "OracleCheckpointer"]
