"""Ports to the S3 servers of the tests."""

from __future__ import annotations

from typing import Any

import s3_servers
import servers
from obstore.store import S3Store

from locus_store.backends.objects.obstore_port import ObstorePort

_buckets: dict[str, s3_servers.Bucket] = {}


def shared_bucket(server: s3_servers.S3Server) -> s3_servers.Bucket:
    """The bucket of a server that all tests of the session share; each uses keys of its own."""
    server.ensure_running()
    servers.note_ran(server.name, server.version)
    if server.endpoint not in _buckets:
        _buckets[server.endpoint] = server.create_bucket()
    return _buckets[server.endpoint]


def s3_port(server: s3_servers.S3Server, *, endpoint: str | None = None, **options: Any) -> ObstorePort:
    """A port to the shared bucket of a server, by way of a proxy if its endpoint is given."""
    bucket = shared_bucket(server)

    def make(singly: bool) -> S3Store:
        return S3Store(
            bucket.name,
            endpoint=endpoint or server.endpoint,
            access_key_id=s3_servers.ACCESS_KEY,
            secret_access_key=s3_servers.SECRET_KEY,
            region=s3_servers.REGION,
            disable_bulk_delete=singly,
            client_options={"allow_http": True},
        )

    return ObstorePort(make, f"the bucket {bucket.name!r}", **options)
