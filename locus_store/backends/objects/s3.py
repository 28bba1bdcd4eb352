"""The public faces of the store in an S3 bucket, or whatever else obstore has a store for."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Unpack

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.names import DEFAULT_PREFIX
from locus_store.backends.objects.obstore_port import ObstorePort
from locus_store.backends.objects.s3_create import create_bucket as make_bucket
from locus_store.backends.objects.s3_options import S3Options
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.errors import MissingDependencyError
from locus_store.core.options import check_count
from locus_store.core.state import AgentState

if TYPE_CHECKING:
    from locus_store.backends.objects.obstore_port import ObstoreStore


class S3Backend(Backend):
    """Documents in an S3 bucket: Amazon's, MinIO's, Cloudflare's, Ceph's …; several processes may use it at once.

    Args:
        bucket: The bucket.
        prefix: What the keys of all objects begin with; stores with different ones do not see each other.
        endpoint_url: The service, if it is not Amazon's: ``https://host`` or ``http://host:port``. Without one the
            environment variables ``AWS_ENDPOINT_URL_S3`` and ``AWS_ENDPOINT_URL`` are looked at.
        region_name: The region; None for the one of the profile or of the environment, else ``us-east-1``.
        aws_access_key_id: Who signs in. Without keys and profile they are taken from the environment, or from the
            metadata service of the machine or container.
        aws_secret_access_key: The key's secret; never shown.
        aws_session_token: The token of temporary keys.
        profile_name: A profile of ``~/.aws``, in place of keys; this needs boto3. ``AWS_PROFILE`` names one, too.
        addressing_style: ``"path"`` has the bucket in the URL's path, ``"virtual"`` before the host's name; ``"auto"``
            takes the first with an ``endpoint_url`` and the second without.
        verify: False does not check certificates; a path names a file with certificates to trust, too.
        connect_timeout: Seconds that a connection may take.
        timeout: Seconds that one request may take, from its beginning to its last byte.
        max_retries: How often a request is made again that failed for want of the service.
        max_pool_connections: How many requests are under way at most, in each event loop.
        create_bucket: Make the bucket if it turns out to be missing.
        single_writer: Put up with a service that has no conditional writes; then this object alone may write.
        store: A store of obstore's of your own (`S3Store`, `GCSStore`, `AzureStore`) in place of all that says where
            the bucket is and how it is reached. It is used, and otherwise left as it is.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        bucket: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        *,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
        profile_name: str | None = None,
        addressing_style: Literal["auto", "path", "virtual"] = "auto",
        verify: bool | str = True,
        connect_timeout: float = 5.0,
        timeout: float = 60.0,
        max_retries: int = 5,
        max_pool_connections: int = 50,
        create_bucket: bool = False,
        single_writer: bool = False,
        store: ObstoreStore | None = None,
        **options: Unpack[BackendOptions],
    ) -> None:
        if find_spec("obstore") is None:
            raise MissingDependencyError("S3Backend", "obstore", "s3")
        check_count(max_pool_connections, "max_pool_connections", 1)
        said = S3Options(
            "handed-in" if bucket is None and store is not None else bucket,  # type: ignore[arg-type]  # it checks it
            endpoint_url,
            region_name,
            aws_access_key_id,
            aws_secret_access_key,
            aws_session_token,
            profile_name,
            addressing_style,
            verify,
            connect_timeout,
            timeout,
            max_retries,
        )
        if store is None:
            port = ObstorePort(
                lambda singly: said.make(singly=singly),
                said.where,
                max_requests=max_pool_connections,
                create=partial(make_bucket, options=said) if create_bucket else None,
            )
        else:
            if said != S3Options("handed-in") or create_bucket:
                raise TypeError("a store that is handed in knows its bucket and how to sign in: say no more")
            port = ObstorePort.over(store, max_requests=max_pool_connections)
        super().__init__(
            ObjectDriver(port, prefix=prefix, codec=options.get("codec"), single_writer=single_writer), **options
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._driver!r})"


class S3Checkpointer(Checkpointer[AgentState]):
    """Agent states in an S3 bucket.

    Args:
        bucket: The bucket.
        prefix: What the keys of all objects begin with.
        **options: See `S3Backend`.
    """

    backend: S3Backend

    def __init__(self, bucket: str | None = None, prefix: str = DEFAULT_PREFIX, **options: Any) -> None:
        super().__init__(S3Backend(bucket, prefix, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("S3Backend", type(self).__name__)
