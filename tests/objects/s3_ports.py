"""Ports to the S3 servers of the tests."""

from __future__ import annotations

from functools import partial
from typing import Any

import s3_servers
import servers

from locus_store.backends.objects.obstore_port import ObstorePort
from locus_store.backends.objects.s3_create import create_bucket
from locus_store.backends.objects.s3_options import S3Options


def shared_bucket(server: s3_servers.S3Server) -> s3_servers.Bucket:
    """The bucket of a server that all tests of the session share; each uses keys of its own."""
    server.ensure_running()
    servers.note_ran(server.name, server.version)
    return server.shared_bucket()


def options_for(server: s3_servers.S3Server, **options: Any) -> S3Options:
    """Where the shared bucket of a server is; the options win."""
    found = {
        "bucket": shared_bucket(server).name,
        "endpoint_url": server.endpoint,
        "region_name": s3_servers.REGION,
        "aws_access_key_id": s3_servers.ACCESS_KEY,
        "aws_secret_access_key": s3_servers.SECRET_KEY,
        "max_retries": 2,
    }
    return S3Options(**{**found, **options})


def port_of(options: S3Options, *, create: bool = False, **more: Any) -> ObstorePort:
    """A port, which makes the bucket if it is told to."""
    made = partial(create_bucket, options=options) if create else None
    return ObstorePort(lambda singly: options.make(singly=singly), options.where, create=made, **more)


def s3_port(server: s3_servers.S3Server) -> ObstorePort:
    """A port to the shared bucket of a server."""
    return port_of(options_for(server))
