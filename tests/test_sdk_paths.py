"""The import paths of the locus SDK under our root, and checkpointers derived from the SDK's base class."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import locus_store
from locus_store import registry
from locus_store.backends.adapter import StorageBackendAdapter
from locus_store.core.capabilities import Capabilities
from locus_store.core.errors import UnsupportedOperationError
from locus_store.core.protocols import BaseCheckpointer, CheckpointerProtocol


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("core.messages", "Message Role ToolCall ToolResult"),
        ("core.state", "AgentState ToolExecution ReasoningStep"),
        ("core.protocols", "CheckpointerCapabilities CheckpointerProtocol"),
        ("core.errors", "CheckpointError CheckpointNotFoundError"),
        (
            "memory",
            "BaseCheckpointer CheckpointerCapabilities get_checkpointer list_checkpointers register_checkpointer",
        ),
        ("memory.checkpointer", "BaseCheckpointer CheckpointerCapabilities"),
        ("memory.registry", "_CHECKPOINTERS get_checkpointer list_checkpointers register_checkpointer"),
        (
            "memory.backends",
            "FileCheckpointer MemoryCheckpointer PostgreSQLBackend SQLiteBackend StorageBackendAdapter",
        ),
        ("memory.backends", "mysql_checkpointer oracle_checkpointer postgresql_checkpointer sqlite_checkpointer"),
        ("memory.backends.adapters", "StorageBackendAdapter mysql_checkpointer oracle_checkpointer"),
        ("memory.backends.oracle", "OracleBackend OracleCheckpointer"),
        ("memory.backends.file", "FileCheckpointer"),
        ("memory.backends.memory", "MemoryCheckpointer"),
        ("memory.backends.mysql", "MySQLBackend"),
        ("memory.backends.postgresql", "PostgreSQLBackend"),
        ("memory.backends.sqlite", "SQLiteBackend"),
        ("memory.backends.opensearch", "OpenSearchBackend OpenSearchCheckpointer"),
        ("memory.backends", "OpenSearchBackend OpenSearchCheckpointer opensearch_checkpointer"),
        ("memory.backends.adapters", "opensearch_checkpointer"),
        ("memory.backends.redis", "RedisBackend RedisCheckpointer"),
        ("memory.backends", "RedisBackend RedisCheckpointer redis_checkpointer"),
        ("memory.backends.adapters", "redis_checkpointer"),
        ("memory.backends.s3", "S3Backend S3Checkpointer"),
        ("memory.backends", "S3Backend S3Checkpointer s3_checkpointer"),
        ("memory.backends.adapters", "s3_checkpointer"),
        ("memory.backends.oci_bucket", "OCIBucketBackend OCIBucketCheckpointer"),
        ("memory.backends", "OCIBucketBackend OCIBucketCheckpointer oci_bucket_checkpointer"),
        ("memory.backends.adapters", "oci_bucket_checkpointer"),
    ],
)
def test_the_names_are_where_the_sdk_has_them(module: str, names: str) -> None:
    found = import_module(f"locus_store.{module}")
    for name in names.split():
        assert getattr(found, name) is not None


def test_they_are_the_very_same_objects() -> None:
    memory, backends = import_module("locus_store.memory"), import_module("locus_store.memory.backends")
    assert backends.SQLiteBackend is locus_store.SQLiteBackend
    assert backends.FileCheckpointer is locus_store.FileCheckpointer
    assert backends.StorageBackendAdapter is StorageBackendAdapter
    assert memory.BaseCheckpointer is BaseCheckpointer
    assert memory.CheckpointerCapabilities is Capabilities is locus_store.Capabilities
    assert memory.get_checkpointer is registry.get_checkpointer
    assert import_module("locus_store.memory.registry")._CHECKPOINTERS is registry._CHECKPOINTERS
    assert set(backends.__all__) <= set(dir(backends))
    with pytest.raises(AttributeError, match="HTTPBackend"):
        _ = backends.HTTPBackend
    assert not hasattr(memory, "ConversationManager")


async def test_sqlite_checkpointer(tmp_path: Path) -> None:
    from locus_store.memory.backends import sqlite_checkpointer

    assert "locus_checkpoints.db" in repr(sqlite_checkpointer())
    made = sqlite_checkpointer(path=str(tmp_path / "a.db"), tenant="acme")
    assert isinstance(made, locus_store.SQLiteCheckpointer)
    await made.save(locus_store.AgentState(agent_id="a"), "t")
    assert await made.tenant("default").load("t") is None
    assert await made.exists("t")
    await made.close()
    with pytest.raises(TypeError, match="nonsense"):
        sqlite_checkpointer(nonsense=1)


def test_postgresql_checkpointer() -> None:
    from locus_store.memory.backends import postgresql_checkpointer

    made = postgresql_checkpointer()
    assert isinstance(made, locus_store.PostgreSQLCheckpointer)
    assert "localhost:5432/locus" in repr(made)
    made = postgresql_checkpointer("h", 5, "d", "u", "secret", schema_name="agents")
    assert "h:5/d" in repr(made)
    assert "secret" not in repr(made)
    assert "h:6/e" in repr(postgresql_checkpointer(host="other", dsn="postgresql://u:p@h:6/e", max_pool_size=2))
    with pytest.raises(TypeError, match="nonsense"):
        postgresql_checkpointer(nonsense=1)


def test_mysql_checkpointer() -> None:
    from locus_store.memory.backends import mysql_checkpointer

    made = mysql_checkpointer()
    assert isinstance(made, locus_store.MySQLCheckpointer)
    assert "localhost:3306/locus" in repr(made)
    made = mysql_checkpointer("h", 5, "d", "u", "secret", schema_name="agents")
    assert "h:5/d" in repr(made)
    assert "secret" not in repr(made)
    assert "h:6/e" in repr(mysql_checkpointer(host="other", dsn="mariadb://u:p@h:6/e", max_pool_size=2))
    with pytest.raises(TypeError, match="nonsense"):
        mysql_checkpointer(nonsense=1)
    refused = {"charset": "latin1", "collation": "utf8mb4_unicode_ci", "autocommit": True, "use_pure": True}
    for name, value in {**refused, "table_name": "checkpoints"}.items():
        with pytest.raises(ValueError, match=f"{name}={value!r}: "):
            mysql_checkpointer(**{name: value})


def test_opensearch_checkpointer() -> None:
    from locus_store.memory.backends import opensearch_checkpointer

    made = opensearch_checkpointer()
    assert isinstance(made, locus_store.OpenSearchCheckpointer)
    assert repr(made) == "OpenSearchCheckpointer(OpenSearchDriver(localhost:9200/locus-checkpoints))"
    made = opensearch_checkpointer(["h:5", "i"], "agents", username="u", password="secret", verify_certs=False)
    assert repr(made) == "OpenSearchCheckpointer(OpenSearchDriver(h:5,i:9200/agents))"
    with pytest.raises(TypeError, match="nonsense"):
        opensearch_checkpointer(nonsense=1)


def test_redis_checkpointer() -> None:
    from locus_store.memory.backends import redis_checkpointer

    made = redis_checkpointer()
    assert isinstance(made, locus_store.RedisCheckpointer)
    assert "redis://localhost:6379" in repr(made)
    made = redis_checkpointer("redis://u:secret@h:5/2", "agents:", ttl_seconds=60, tenant="acme")
    assert repr(made) == "RedisCheckpointer(RedisDriver(redis://h:5/2, prefix='agents:'))"
    assert made._options.ttl_seconds == 60
    with pytest.raises(TypeError, match="nonsense"):
        redis_checkpointer(nonsense=1)


def test_s3_checkpointer() -> None:
    from locus_store.memory.backends import s3_checkpointer

    made = s3_checkpointer("b")
    assert isinstance(made, locus_store.S3Checkpointer)
    assert "the S3 bucket 'b'" in repr(made)
    assert "'locus/checkpoints/'" in repr(made)
    made = s3_checkpointer(
        bucket="b",
        prefix="agents/",
        endpoint_url="http://h:9000",
        region_name="r",
        aws_access_key_id="k",
        aws_secret_access_key="secret",
        create_bucket=False,
        tenant="acme",
    )
    assert "'b' at http://h:9000" in repr(made)
    assert "'agents/'" in repr(made)
    with pytest.raises(TypeError, match="nonsense"):
        s3_checkpointer("b", nonsense=1)


def test_oci_bucket_checkpointer() -> None:
    from locus_store.memory.backends import oci_bucket_checkpointer

    made = oci_bucket_checkpointer("b", "n")
    assert isinstance(made, locus_store.OCIBucketCheckpointer)
    assert "bucket 'b', namespace 'n'" in repr(made)
    assert "locus/checkpoints/" in repr(made)
    made = oci_bucket_checkpointer(bucket_name="b", namespace="n", prefix="agents/", profile_name="P", region="r")
    assert "agents/" in repr(made)
    # As the SDK has it, by position.
    assert "'p/'" in repr(locus_store.OCIBucketBackend("b", "n", "p/", "PROFILE", "security_token", "region"))
    with pytest.raises(TypeError, match="nonsense"):
        oci_bucket_checkpointer("b", "n", nonsense=1)


# ------------------------------------------------------------------------------------------ a checkpointer of one's own


class Least(BaseCheckpointer):
    """No more than must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, dict[str, Any]] = {}

    async def save(
        self,
        state: Any,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        thread = self.states.setdefault(thread_id, {})
        made = checkpoint_id or str(len(thread))
        thread[made] = state
        return made

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Any:
        thread = self.states.get(thread_id, {})
        return thread.get(checkpoint_id or next(reversed(thread), ""))

    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        return list(reversed(self.states.get(thread_id, {})))[:limit]


class More(Least):
    """Deletes threads, and says that it can search."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(search=True)

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        return self.states.pop(thread_id, None) is not None


def test_what_must_be_written() -> None:
    with pytest.raises(TypeError, match="abstract"):
        BaseCheckpointer()  # type: ignore[misc]
    with pytest.raises(TypeError, match="list_checkpoints"):
        type("Nothing", (BaseCheckpointer,), {})()


async def test_what_the_base_gives() -> None:
    own = Least()
    assert own.capabilities == Capabilities()
    assert own.deletes_single_checkpoints is False
    await own.save("a", "t")
    await own.save("b", "t")
    assert (await own.exists("t"), await own.exists("u")) == (True, False)
    assert (await own.exists("t", "0"), await own.exists("t", "7")) == (True, False)
    await own.close()
    for call, name in [
        (own.delete("t"), "delete"),
        (own.list_threads(), "list_threads"),
        (own.search("a"), "search"),
        (own.get_metadata("t"), "get_metadata"),
        (own.query_by_metadata("a", 1), "query_by_metadata"),
        (own.list_with_metadata(), "list_with_metadata"),
        (own.copy_thread("t", "u"), "copy_thread"),
        (own.vacuum(), "vacuum"),
    ]:
        with pytest.raises(NotImplementedError, match=f"^Least does not support {name}$"):
            await call
    with pytest.raises(UnsupportedOperationError, match="Least does not support search"):
        own._require_capability("search")


def test_what_a_subclass_adds() -> None:
    own = More()
    own._require_capability("search")
    assert own.deletes_single_checkpoints is True
    assert asyncio.run(own.delete("t")) is False


def test_what_counts_as_a_checkpointer(tmp_path: Path) -> None:
    checkpointers: list[object] = [
        Least(),
        More(),
        locus_store.MemoryCheckpointer(),
        locus_store.FileCheckpointer(tmp_path),
        locus_store.SQLiteCheckpointer(),
        locus_store.PostgreSQLCheckpointer(),
        locus_store.MySQLCheckpointer(),
        locus_store.RedisCheckpointer(),
        locus_store.S3Checkpointer("b"),
        locus_store.OpenSearchCheckpointer(),
        locus_store.OCIBucketCheckpointer("b", "n"),
        locus_store.MemoryBackend().checkpointer(),
        locus_store.MemoryCheckpointer().tenant("acme"),
    ]
    for checkpointer in checkpointers:
        assert isinstance(checkpointer, BaseCheckpointer)
        assert isinstance(checkpointer, CheckpointerProtocol)
    for other in (locus_store.MemoryBackend(), locus_store.SQLiteBackend(), object()):
        assert not isinstance(other, BaseCheckpointer)
