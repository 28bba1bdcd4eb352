"""The public faces of the store in a bucket of OCI Object Storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from locus_store.backends.objects.driver import ObjectDriver
from locus_store.backends.objects.names import DEFAULT_PREFIX
from locus_store.backends.objects.oci_port import OCIPort
from locus_store.backends.objects.oci_sign_in import CONFIG_FILE, PROFILE, SignIn
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.options import check_count, check_span
from locus_store.core.state import AgentState

if TYPE_CHECKING:
    from oci.object_storage import ObjectStorageClient


class OCIBucketBackend(Backend):
    """Documents in a bucket of OCI Object Storage, over Oracle's SDK; several processes may use it at once.

    Args:
        bucket_name: The bucket.
        namespace: The tenancy's namespace; None looks it up at the first call.
        prefix: What the names of all objects begin with; stores with different ones do not see each other.
        profile_name: The profile in the configuration file.
        auth_type: How to sign in: ``"api_key"`` and ``"security_token"`` from a profile, ``"instance_principal"`` on a
            compute instance, ``"resource_principal"`` in a function and the like.
        region: The region, if it is not the one of the profile or the principal.
        compartment_id: A missing bucket is made in this compartment at the first call; None makes none.
        config_file: The SDK's configuration file.
        retry_strategy: One of the SDK's, in place of ``retry_timeout``.
        service_endpoint: The service's URL in place of the region's own, a private endpoint for example.
        client: An ``oci.object_storage.ObjectStorageClient`` of yours in place of all that says how to sign in. One
            call at a time goes through it, and it is never closed.
        connect_timeout: Seconds that a connection may take.
        timeout: Seconds between two pieces of an answer.
        retry_timeout: Seconds in which a call is made again that failed for want of the service.
        max_requests: How many requests are under way at most.
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    def __init__(
        self,
        bucket_name: str,
        namespace: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        profile_name: str = PROFILE,
        auth_type: Literal["api_key", "security_token", "instance_principal", "resource_principal"] = "api_key",
        region: str | None = None,
        compartment_id: str | None = None,
        config_file: str = CONFIG_FILE,
        *,
        retry_strategy: Any = None,
        service_endpoint: str | None = None,
        client: ObjectStorageClient | None = None,
        connect_timeout: float = 10.0,
        timeout: float = 60.0,
        retry_timeout: float = 20.0,
        max_requests: int = 16,
        **options: Unpack[BackendOptions],
    ) -> None:
        _check_names(bucket_name, namespace)
        for name, value in (("connect_timeout", connect_timeout), ("timeout", timeout)):
            check_span(value, name, 86_400)
        check_span(retry_timeout, "retry_timeout", 86_400)
        check_count(max_requests, "max_requests", 1)
        sign_in = SignIn(
            auth_type=auth_type,
            profile_name=profile_name,
            config_file=config_file,
            region=region,
            service_endpoint=service_endpoint,
            timeout=(connect_timeout, timeout),
            retry_strategy=retry_strategy,
        )
        if client is not None and sign_in != SignIn(timeout=sign_in.timeout):
            raise ValueError("a client that is handed in knows how to sign in, where, and what to repeat: say no more")
        port = OCIPort(
            bucket_name,
            namespace,
            sign_in=sign_in,
            client=client,
            compartment_id=compartment_id,
            max_requests=max_requests,
            retry_timeout=retry_timeout,
        )
        super().__init__(ObjectDriver(port, prefix=prefix, codec=options.get("codec")), **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._driver!r})"


class OCIBucketCheckpointer(Checkpointer[AgentState]):
    """Agent states in a bucket of OCI Object Storage.

    Args:
        bucket_name: The bucket.
        namespace: The tenancy's namespace; None looks it up.
        prefix: What the names of all objects begin with.
        **options: See `OCIBucketBackend`.
    """

    backend: OCIBucketBackend

    def __init__(
        self, bucket_name: str, namespace: str | None = None, prefix: str = DEFAULT_PREFIX, **options: Any
    ) -> None:
        super().__init__(OCIBucketBackend(bucket_name, namespace, prefix, **options), AgentState)

    def __repr__(self) -> str:
        return repr(self.backend).replace("OCIBucketBackend", type(self).__name__)


def _check_names(bucket_name: str, namespace: str | None) -> None:
    for what, value in (("bucket_name", bucket_name), ("namespace", namespace)):
        if value is None and what == "namespace":
            continue
        if not isinstance(value, str):
            raise TypeError(f"{what} must be a str, got {type(value).__name__}")
        if not value or set("/@: ") & set(value):
            raise ValueError(f"{what} must be a name without slashes, colons and spaces, got {value!r}")
