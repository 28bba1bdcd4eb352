"""Threads in Oracle Database 19c or newer, over python-oracledb in thin mode."""

from __future__ import annotations

from locus_store.backends.oracle.backend import OracleBackend, OracleCheckpointer
from locus_store.backends.oracle.driver import OracleDriver

__all__ = ["OracleBackend", "OracleCheckpointer", "OracleDriver"]
