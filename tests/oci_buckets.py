"""Buckets of OCI Object Storage that stores of the shared suite lie in: of the double, or one that the environment names.

``LOCUS_STORE_TEST_OCI_BUCKET``  ``bucket`` or ``bucket@namespace``; without it, the service is not tested
``LOCUS_STORE_TEST_OCI_AUTH``    ``api_key``, ``security_token`` or ``instance_principal``; the first if it is not set
``LOCUS_STORE_TEST_OCI_PROFILE``, ``_CONFIG``, ``_REGION``, ``_ENDPOINT``
                                 ``profile_name``, ``config_file``, ``region``, ``service_endpoint``
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from oci_double.process import NAMESPACE, Process, User

from locus_store.backends.objects.oci_sign_in import SignIn

OCI_BUCKET = "LOCUS_STORE_TEST_OCI_BUCKET"
_OPTIONS = {"AUTH": "auth_type", "PROFILE": "profile_name", "CONFIG": "config_file"}
_OPTIONS |= {"REGION": "region", "ENDPOINT": "service_endpoint"}


class OCIBucket(ABC):
    """A bucket, looked at past the store; nothing stays open.

    Attributes:
        version: What the summary says of it.
        arguments: What `OCIBucketBackend` needs.
    """

    version: str
    arguments: dict[str, Any]

    @property
    def url(self) -> str:
        """What `locus_store.open_backend` takes."""
        names = ("bucket_name", "namespace", "prefix")
        bucket, namespace, prefix = (quote(self.arguments.get(name) or "") for name in names)
        options = {name: value for name, value in self.arguments.items() if name not in names}
        return f"oci://{bucket}{namespace and '@'}{namespace}/{prefix}?{urlencode(options)}"

    @abstractmethod
    def objects(self) -> dict[str, bytes]:
        """What is stored under the prefix, by name without it."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write an object under the prefix."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete an object under the prefix."""

    def empty(self) -> None:
        """Delete all that is stored under the prefix."""
        for name in self.objects():
            self.remove(name)


class DoubleBucket(OCIBucket):
    """A bucket of the double, which is emptied."""

    version = "tests/oci_double; no OCI"

    def __init__(self, double: Process, user: User) -> None:
        self._double = double
        self._name = f"place-{os.getpid()}"
        double.tell("make bucket", self._name)
        self.arguments = {
            "bucket_name": self._name,
            "namespace": NAMESPACE,
            "prefix": "agents/",
            "config_file": str(user.config_file),
            "service_endpoint": double.url,
        }

    def objects(self) -> dict[str, bytes]:
        prefix = self.arguments["prefix"]
        found = self._double.objects(self._name)
        return {name.removeprefix(prefix): data for name, data in found.items() if name.startswith(prefix)}

    def put(self, name: str, data: bytes) -> None:
        self._double.tell("put object", [self._name, self.arguments["prefix"] + name, data.hex()])

    def remove(self, name: str) -> None:
        self._double.tell("remove object", [self._name, self.arguments["prefix"] + name])

    def empty(self) -> None:
        self._double.tell("make bucket", self._name)


class NamedBucket(OCIBucket):
    """The bucket that the environment names; a prefix of this process's own is emptied.

    Args:
        environment: In place of this process's.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        bucket, _, namespace = environment[OCI_BUCKET].partition("@")
        given = {name: environment.get(f"LOCUS_STORE_TEST_OCI_{end}") for end, name in _OPTIONS.items()}
        how = {name: value for name, value in given.items() if value}
        self.arguments = {
            "bucket_name": bucket,
            "namespace": namespace or None,
            "prefix": f"locus-store-{os.getpid()}/",
        }
        self.arguments |= how
        self.version = f"the bucket {bucket!r}" + (
            f" at {how['service_endpoint']}" if "service_endpoint" in how else ""
        )
        self._sign_in = SignIn(**how)

    @contextlib.contextmanager
    def _client(self) -> Iterator[tuple[Any, str, str]]:
        """A client of the SDK's, and the names of namespace and bucket."""
        signed_in = self._sign_in.open()
        try:
            client = signed_in.client()
            yield client, self.arguments["namespace"] or client.get_namespace().data, self.arguments["bucket_name"]
        finally:
            signed_in.close()

    def objects(self) -> dict[str, bytes]:
        from oci.pagination import list_call_get_all_results_generator as listed

        prefix = self.arguments["prefix"]
        with self._client() as (client, *where):
            names = [one.name for one in listed(client.list_objects, "record", *where, prefix=prefix)]
            return {name.removeprefix(prefix): client.get_object(*where, name).data.content for name in names}

    def put(self, name: str, data: bytes) -> None:
        with self._client() as (client, *where):
            client.put_object(*where, self.arguments["prefix"] + name, data)

    def remove(self, name: str) -> None:
        with self._client() as (client, *where):
            client.delete_object(*where, self.arguments["prefix"] + name)
