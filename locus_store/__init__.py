"""locus_store: where an AI agent's state lives between runs.

Threads and versioned checkpoints in memory, in files, in SQLite, in PostgreSQL and in MySQL, behind one interface::

    store = locus_store.open_backend("sqlite:///agents.db")
    await store.save("thread-1", {"messages": ["hello"]})
    await store.load("thread-1")

What `__all__` lists is the public interface. It is imported when it is asked for, so that importing this package loads
no database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from locus_store.core.backend import Backend
    from locus_store.core.capabilities import Capabilities
    from locus_store.core.checkpointer import Checkpointer
    from locus_store.core.compression import ZlibCodec
    from locus_store.core.errors import (
        BackendError,
        BackendUnavailableError,
        CheckpointError,
        CheckpointExistsError,
        CheckpointNotFoundError,
        ConflictError,
        CorruptCheckpointError,
        LocusStoreError,
        MissingDependencyError,
        PayloadTooLargeError,
        PlainTextError,
        ReferencedError,
        RetryableError,
        SchemaAheadError,
        SchemaError,
        SchemaIncompleteError,
        SchemaNotReadyError,
        SearchNotEnabledError,
        SerializationError,
        StoreBusyError,
        ThreadExistsError,
        TransactionConflictError,
        TransactionNotAllowedError,
        UnsupportedFormatError,
        UnsupportedOperationError,
    )
    from locus_store.core.frames import Codec, ThreadName
    from locus_store.core.infos import CheckpointInfo, SearchHit
    from locus_store.core.messages import Message, Role, ToolCall, ToolResult
    from locus_store.core.state import AgentState, ReasoningStep, ToolExecution
    from locus_store.core.synchronous import SyncBackend, SyncCheckpointer
    from locus_store.registry import open_backend, open_checkpointer

    __version__: str

__all__ = [
    "AgentState",
    "Backend",
    "BackendError",
    "BackendUnavailableError",
    "Capabilities",
    "CheckpointError",
    "CheckpointExistsError",
    "CheckpointInfo",
    "CheckpointNotFoundError",
    "Checkpointer",
    "Codec",
    "ConflictError",
    "CorruptCheckpointError",
    "FileBackend",
    "FileCheckpointer",
    "LocusStoreError",
    "MemoryBackend",
    "MemoryCheckpointer",
    "Message",
    "MissingDependencyError",
    "MySQLBackend",
    "MySQLCheckpointer",
    "OCIBucketBackend",
    "OCIBucketCheckpointer",
    "OpenSearchBackend",
    "OpenSearchCheckpointer",
    "OracleBackend",
    "OracleCheckpointer",
    "PayloadTooLargeError",
    "PlainTextError",
    "PostgreSQLBackend",
    "PostgreSQLCheckpointer",
    "ReasoningStep",
    "RedisBackend",
    "RedisCheckpointer",
    "ReferencedError",
    "RetryableError",
    "Role",
    "S3Backend",
    "S3Checkpointer",
    "SQLiteBackend",
    "SQLiteCheckpointer",
    "SchemaAheadError",
    "SchemaError",
    "SchemaIncompleteError",
    "SchemaNotReadyError",
    "SearchHit",
    "SearchNotEnabledError",
    "SerializationError",
    "StoreBusyError",
    "SyncBackend",
    "SyncCheckpointer",
    "ThreadExistsError",
    "ThreadName",
    "ToolCall",
    "ToolExecution",
    "ToolResult",
    "TransactionConflictError",
    "TransactionNotAllowedError",
    "UnsupportedFormatError",
    "UnsupportedOperationError",
    "ZlibCodec",
    "__version__",
    "open_backend",
    "open_checkpointer",
]

_PLACES = {
    "backends.file": ("FileBackend", "FileCheckpointer"),
    "backends.memory": ("MemoryBackend", "MemoryCheckpointer"),
    "backends.mysql": ("MySQLBackend", "MySQLCheckpointer"),
    "backends.objects.oci": ("OCIBucketBackend", "OCIBucketCheckpointer"),
    "backends.objects.s3": ("S3Backend", "S3Checkpointer"),
    "backends.opensearch": ("OpenSearchBackend", "OpenSearchCheckpointer"),
    "backends.oracle": ("OracleBackend", "OracleCheckpointer"),
    "backends.postgresql": ("PostgreSQLBackend", "PostgreSQLCheckpointer"),
    "backends.redis": ("RedisBackend", "RedisCheckpointer"),
    "backends.sqlite": ("SQLiteBackend", "SQLiteCheckpointer"),
    "core.backend": ("Backend",),
    "core.capabilities": ("Capabilities",),
    "core.checkpointer": ("Checkpointer",),
    "core.compression": ("ZlibCodec",),
    "core.frames": ("Codec", "ThreadName"),
    "core.messages": ("Message", "Role", "ToolCall", "ToolResult"),
    "core.state": ("AgentState", "ReasoningStep", "ToolExecution"),
    "core.synchronous": ("SyncBackend", "SyncCheckpointer"),
    "core.infos": ("CheckpointInfo", "SearchHit"),
    "registry": ("open_backend", "open_checkpointer"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:  # a type checker knows the names, and is to find those that are misspelt

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                found: Any = version("locus-store")
            except PackageNotFoundError:
                found = "0+unknown"
        elif name in __all__:
            # What is not in the table is an error class.
            found = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'core.errors')}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
