"""Threads in MySQL 8.0 or newer, or MariaDB 10.5 or newer, over asyncmy."""

from __future__ import annotations

from locus_store.backends.mysql.backend import MySQLBackend, MySQLCheckpointer
from locus_store.backends.mysql.driver import MySQLDriver

__all__ = ["MySQLBackend", "MySQLCheckpointer", "MySQLDriver"]
