"""The SDK's import path of the backends, which are in `locus_store.backends`; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locus_store.backends.adapter import StorageBackendAdapter
    from locus_store.backends.file import FileBackend, FileCheckpointer
    from locus_store.backends.memory import MemoryBackend, MemoryCheckpointer
    from locus_store.backends.mysql import MySQLBackend, MySQLCheckpointer
    from locus_store.backends.objects.oci import OCIBucketBackend, OCIBucketCheckpointer
    from locus_store.backends.objects.s3 import S3Backend, S3Checkpointer
    from locus_store.backends.opensearch import OpenSearchBackend, OpenSearchCheckpointer
    from locus_store.backends.oracle import OracleBackend, OracleCheckpointer
    from locus_store.backends.postgresql import PostgreSQLBackend, PostgreSQLCheckpointer
    from locus_store.backends.redis import RedisBackend, RedisCheckpointer
    from locus_store.backends.sqlite import SQLiteBackend, SQLiteCheckpointer
    from locus_store.memory.backends.adapters import (
        mysql_checkpointer,
        oci_bucket_checkpointer,
        opensearch_checkpointer,
        oracle_checkpointer,
        postgresql_checkpointer,
        redis_checkpointer,
        s3_checkpointer,
        sqlite_checkpointer,
    )

__all__ = [
    "FileBackend",
    "FileCheckpointer",
    "MemoryBackend",
    "MemoryCheckpointer",
    "MySQLBackend",
    "MySQLCheckpointer",
    "OpenSearchBackend",
    "OpenSearchCheckpointer",
    "OCIBucketBackend",
    "OCIBucketCheckpointer",
    "OracleBackend",
    "OracleCheckpointer",
    "PostgreSQLBackend",
    "PostgreSQLCheckpointer",
    "RedisBackend",
    "RedisCheckpointer",
    "S3Backend",
    "S3Checkpointer",
    "SQLiteBackend",
    "SQLiteCheckpointer",
    "StorageBackendAdapter",
    "mysql_checkpointer",
    "opensearch_checkpointer",
    "oci_bucket_checkpointer",
    "oracle_checkpointer",
    "postgresql_checkpointer",
    "redis_checkpointer",
    "s3_checkpointer",
    "sqlite_checkpointer",
]

_MODULES = {
    "FileBackend": "locus_store.backends.file",
    "FileCheckpointer": "locus_store.backends.file",
    "MemoryBackend": "locus_store.backends.memory",
    "MemoryCheckpointer": "locus_store.backends.memory",
    "MySQLBackend": "locus_store.backends.mysql",
    "MySQLCheckpointer": "locus_store.backends.mysql",
    "OpenSearchBackend": "locus_store.backends.opensearch",
    "OpenSearchCheckpointer": "locus_store.backends.opensearch",
    "OCIBucketBackend": "locus_store.backends.objects.oci",
    "OCIBucketCheckpointer": "locus_store.backends.objects.oci",
    "OracleBackend": "locus_store.backends.oracle",
    "OracleCheckpointer": "locus_store.backends.oracle",
    "PostgreSQLBackend": "locus_store.backends.postgresql",
    "PostgreSQLCheckpointer": "locus_store.backends.postgresql",
    "RedisBackend": "locus_store.backends.redis",
    "RedisCheckpointer": "locus_store.backends.redis",
    "S3Backend": "locus_store.backends.objects.s3",
    "S3Checkpointer": "locus_store.backends.objects.s3",
    "SQLiteBackend": "locus_store.backends.sqlite",
    "SQLiteCheckpointer": "locus_store.backends.sqlite",
    "StorageBackendAdapter": "locus_store.backends.adapter",
    "mysql_checkpointer": "locus_store.memory.backends.adapters",
    "opensearch_checkpointer": "locus_store.memory.backends.adapters",
    "oci_bucket_checkpointer": "locus_store.memory.backends.adapters",
    "oracle_checkpointer": "locus_store.memory.backends.adapters",
    "postgresql_checkpointer": "locus_store.memory.backends.adapters",
    "redis_checkpointer": "locus_store.memory.backends.adapters",
    "s3_checkpointer": "locus_store.memory.backends.adapters",
    "sqlite_checkpointer": "locus_store.memory.backends.adapters",
}

if not TYPE_CHECKING:  # a type checker knows the names, and is to find those that are misspelt

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
