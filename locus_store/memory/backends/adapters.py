"""The SDK's functions that make a checkpointer over a database, and its adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from locus_store.backends.adapter import StorageBackendAdapter
from locus_store.backends.objects.names import DEFAULT_PREFIX as OBJECTS_PREFIX
from locus_store.backends.redis.backend import DEFAULT_URL as REDIS_URL
from locus_store.backends.redis.keys import DEFAULT_PREFIX as REDIS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from locus_store.backends.mysql import MySQLCheckpointer
    from locus_store.backends.objects.oci import OCIBucketCheckpointer
    from locus_store.backends.objects.s3 import S3Checkpointer
    from locus_store.backends.opensearch import OpenSearchCheckpointer
    from locus_store.backends.oracle import OracleCheckpointer
    from locus_store.backends.postgresql import PostgreSQLCheckpointer
    from locus_store.backends.redis import RedisCheckpointer
    from locus_store.backends.sqlite import SQLiteCheckpointer

__all__ = [
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


def sqlite_checkpointer(path: str = "locus_checkpoints.db", **kwargs: Any) -> SQLiteCheckpointer:
    """Make a checkpointer over a SQLite file.

    Args:
        path: The file.
        **kwargs: Options of `SQLiteCheckpointer`.
    """
    from locus_store.backends.sqlite import SQLiteCheckpointer

    return SQLiteCheckpointer(path=path, **kwargs)


def postgresql_checkpointer(
    host: str = "localhost",
    port: int = 5432,
    database: str = "locus",
    user: str = "postgres",
    password: str = "",
    dsn: str | None = None,
    **kwargs: Any,
) -> PostgreSQLCheckpointer:
    """Make a checkpointer over PostgreSQL.

    Args:
        host: The server.
        port: Its port.
        database: The database.
        user: Who connects.
        password: Their password.
        dsn: All of that as one URL; the other arguments then do not count.
        **kwargs: Options of `PostgreSQLCheckpointer`.
    """
    from locus_store.backends.postgresql import PostgreSQLCheckpointer

    if dsn is not None:
        return PostgreSQLCheckpointer(dsn=dsn, **kwargs)
    return PostgreSQLCheckpointer(host=host, port=port, database=database, user=user, password=password, **kwargs)


def mysql_checkpointer(
    host: str = "localhost",
    port: int = 3306,
    database: str = "locus",
    user: str = "root",
    password: str = "",
    dsn: str | None = None,
    **kwargs: Any,
) -> MySQLCheckpointer:
    """Make a checkpointer over MySQL or MariaDB.

    Args:
        host: The server.
        port: Its port.
        database: The database.
        user: Who connects.
        password: Their password.
        dsn: All of that as one URL; the other arguments then do not count.
        **kwargs: Options of `MySQLCheckpointer`.
    """
    from locus_store.backends.mysql import MySQLCheckpointer

    if dsn is not None:
        return MySQLCheckpointer(dsn=dsn, **kwargs)
    return MySQLCheckpointer(host=host, port=port, database=database, user=user, password=password, **kwargs)


def opensearch_checkpointer(
    hosts: str | Sequence[str] | None = None, index_name: str | None = None, **kwargs: Any
) -> OpenSearchCheckpointer:
    """Make a checkpointer over OpenSearch or Elasticsearch.

    Args:
        hosts: The servers; None for localhost:9200.
        index_name: The index; None for ``locus-checkpoints``.
        **kwargs: Options of `OpenSearchCheckpointer`.
    """
    from locus_store.backends.opensearch import OpenSearchCheckpointer

    return OpenSearchCheckpointer(hosts, index_name, **kwargs)


def oracle_checkpointer(
    dsn: str | None = None,
    user: str = "admin",
    password: str = "",
    wallet_location: str | None = None,
    wallet_password: str | None = None,
    host: str | None = None,
    port: int = 1521,
    service_name: str | None = None,
    **kwargs: Any,
) -> OracleCheckpointer:
    """Make a checkpointer over Oracle Database.

    Args:
        dsn: A name of ``tnsnames.ora``, ``host:port/service``, a connect descriptor, or a URL.
        user: Who connects.
        password: Their password.
        wallet_location: The folder of a wallet.
        wallet_password: Its password.
        host: The server, where there is no dsn.
        port: The port of its listener.
        service_name: The service there.
        **kwargs: Options of `OracleCheckpointer`.
    """
    from locus_store.backends.oracle import OracleCheckpointer

    return OracleCheckpointer(
        dsn,
        user=user,
        password=password,
        wallet_location=wallet_location,
        wallet_password=wallet_password,
        host=host,
        port=port,
        service_name=service_name,
        **kwargs,
    )


def redis_checkpointer(url: str = REDIS_URL, prefix: str = REDIS_PREFIX, **kwargs: Any) -> RedisCheckpointer:
    """Make a checkpointer over Redis or Valkey.

    Args:
        url: Where the server is.
        prefix: What all keys begin with.
        **kwargs: Options of `RedisCheckpointer`.
    """
    from locus_store.backends.redis import RedisCheckpointer

    return RedisCheckpointer(url, prefix=prefix, **kwargs)


def s3_checkpointer(bucket: str, prefix: str = OBJECTS_PREFIX, **kwargs: Any) -> S3Checkpointer:
    """Make a checkpointer over an S3 bucket.

    Args:
        bucket: The bucket.
        prefix: What the keys of all objects begin with.
        **kwargs: Options of `S3Checkpointer`.
    """
    from locus_store.backends.objects.s3 import S3Checkpointer

    return S3Checkpointer(bucket, prefix, **kwargs)


def oci_bucket_checkpointer(
    bucket_name: str, namespace: str | None = None, prefix: str = OBJECTS_PREFIX, **kwargs: Any
) -> OCIBucketCheckpointer:
    """Make a checkpointer over a bucket of OCI Object Storage.

    Args:
        bucket_name: The bucket.
        namespace: The tenancy's namespace; None looks it up.
        prefix: What the names of all objects begin with.
        **kwargs: Options of `OCIBucketCheckpointer`.
    """
    from locus_store.backends.objects.oci import OCIBucketCheckpointer

    return OCIBucketCheckpointer(bucket_name, namespace, prefix, **kwargs)
