"""The port to a bucket of OCI Object Storage, over Oracle's SDK, whose calls block and are made in worker threads."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from locus_store.backends.objects.oci_errors import is_transient, not_signed_in, says, translated
from locus_store.backends.objects.oci_sign_in import HandedIn, SignedIn, SignIn, require_sdk
from locus_store.backends.objects.port import (
    PAGE,
    Listed,
    Object,
    ObjectConflictError,
    ObjectExistsError,
    ObjectPort,
    Page,
)
from locus_store.backends.workers import Workers

T = TypeVar("T")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0


class OCIPort(ObjectPort):
    """A bucket of OCI Object Storage.

    Args:
        bucket: The bucket.
        namespace: The tenancy's namespace; None looks it up at the first call.
        sign_in: How to sign in.
        client: An ``ObjectStorageClient`` of the caller's in place of that; it is used by one thread at a time, and
            never closed.
        compartment_id: Where the bucket is made if it is missing at the first call; None makes none.
        max_requests: How many requests are under way at most.
        retry_timeout: Seconds in which a request is made again that failed for want of the service.
    """

    max_bytes = 50 * 2**30

    def __init__(
        self,
        bucket: str,
        namespace: str | None = None,
        *,
        sign_in: SignIn | None = None,
        client: Any = None,
        compartment_id: str | None = None,
        max_requests: int = 16,
        retry_timeout: float = 20.0,
    ) -> None:
        require_sdk()
        self._bucket = bucket
        self._given_namespace = namespace
        self._sign_in = sign_in or SignIn()
        self._client = client
        self._compartment_id = compartment_id
        self._workers = Workers(1 if client is not None else max_requests, "locus-store-oci")
        self._at_once = max_requests
        self._retry_timeout = retry_timeout
        self._opened: _Opened | None = None
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        namespace = f", namespace {self._given_namespace!r}" if self._given_namespace is not None else ""
        return f"{type(self).__name__}(bucket {self._bucket!r}{namespace})"

    # ------------------------------------------------------------------------------------------------------ the port

    async def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        only_new = {"if_none_match": "*"} if new else {}

        def work(opened: _Opened) -> str:
            answer = opened.client().put_object(
                opened.namespace,
                self._bucket,
                key,
                data,
                content_type="application/octet-stream",
                **only_new,
                **opened.options,
            )
            return str(answer.headers["etag"])

        def refused(error: Exception) -> Exception | None:
            if new and says(error, 412, "IfNoneMatchFailed"):
                return ObjectExistsError(key)
            return ObjectConflictError(key) if new and says(error, 409, "ConcurrentObjectUpdate") else None

        return await self._call(work, refused)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Object | None:
        part = {} if start == 0 and end is None else {"range": f"bytes={start}-{'' if end is None else end - 1}"}

        def work(opened: _Opened) -> Object | None:
            try:
                answer = opened.client().get_object(opened.namespace, self._bucket, key, **part, **opened.options)
            except Exception as error:
                if says(error, 404, "ObjectNotFound"):
                    return None
                if says(error, 416):
                    # It has no byte there; a HEAD request could not tell a missing bucket from a missing object.
                    listed = self._listed(opened, prefix=key, limit=1).objects
                    found = next((o for o in listed if o.key == key), None)
                    return None if found is None else Object(b"", found.size, found.etag)
                raise
            with answer.data as response:
                data: bytes = response.content
            etag = str(answer.headers["etag"])
            if answer.status == 206:
                return Object(data, int(answer.headers["content-range"].rpartition("/")[2]), etag)
            return Object(data[start:end], len(data), etag)

        return await self._call(work)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> Page:
        wanted = PAGE if limit is None else max(1, min(limit, PAGE))
        where = {} if after is None else {"start_after": after}
        return await self._call(lambda opened: self._listed(opened, prefix=prefix, limit=wanted, **where))

    def _listed(self, opened: _Opened, **query: Any) -> Page:
        while True:
            answer = opened.client().list_objects(
                opened.namespace, self._bucket, fields="name,size,etag", **query, **opened.options
            )
            found = [Listed(o.name, o.size, o.etag) for o in answer.data.objects]
            following = answer.data.next_start_with
            if found or following is None:
                return Page(found, following is not None)
            # A page may be empty although more follow.
            query = {**query, "start": following}
            query.pop("start_after", None)

    async def delete(self, keys: Sequence[str]) -> None:
        left = iter(keys)

        async def some() -> None:
            for key in left:
                await self._call(partial(self._deleted, key))

        done = await asyncio.gather(*[some() for _ in range(min(self._at_once, len(keys)))], return_exceptions=True)
        for failed in done:
            if isinstance(failed, BaseException):
                raise failed

    def _deleted(self, key: str, opened: _Opened) -> None:
        try:
            opened.client().delete_object(opened.namespace, self._bucket, key, **opened.options)
        except Exception as error:
            if not says(error, 404, "ObjectNotFound"):
                raise

    async def aclose(self) -> None:
        opened = None if self._opened is None else await self._workers.run(self._forget)
        await self._workers.close()
        if opened is not None:
            opened.close()

    # --------------------------------------------------------------------------------------------------------- calls

    async def _call(
        self, work: Callable[[_Opened], T], refused: Callable[[Exception], Exception | None] = lambda error: None
    ) -> T:
        """Do some work in a thread, and again while the service is busy or away.

        Args:
            work: The work.
            refused: Gives the error to raise for an answer that is part of what the call is for, or None.
        """
        deadline = time.monotonic() + self._retry_timeout
        pause = _FIRST_PAUSE
        renewed = False
        while True:
            try:
                return await self._workers.run(lambda: work(self._open()))
            except _SignInError as error:
                cause, told = error.cause, not_signed_in
            except Exception as error:
                expected = refused(error)
                if expected is not None:
                    raise expected from error
                cause, told = error, translated
            if says(cause, 401) and not renewed and await self._workers.run(self._outdated):
                renewed = True
                continue
            wait = random.uniform(pause / 2, pause)  # noqa: S311  only so that not all come back at once
            if not is_transient(cause) or self._sdk_retries() or time.monotonic() + wait > deadline:
                raise told(cause, self._place(), self._signed_in_by()) from cause
            await asyncio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _open(self) -> _Opened:
        with self._opening:
            opened = self._opened
            if opened is None or opened.pid != os.getpid():  # connections are not shared with a child
                try:
                    signed_in = HandedIn(self._client) if self._client is not None else self._sign_in.open()
                except Exception as error:
                    raise _SignInError(error) from error
                opened = _Opened(signed_in)
                try:
                    self._find(opened)
                except BaseException:
                    opened.close()
                    raise
                self._opened = opened
            return opened

    def _find(self, opened: _Opened) -> None:
        """Look up the namespace if it was not given, and make the bucket if it is missing and a place for it is."""
        client, compartment = opened.client(), self._compartment_id
        if self._given_namespace is not None:
            opened.namespace = self._given_namespace
        else:
            where = {} if compartment is None else {"compartment_id": compartment}
            opened.namespace = str(client.get_namespace(**where, **opened.options).data)
        if compartment is None:
            return
        try:
            client.head_bucket(opened.namespace, self._bucket, **opened.options)
        except Exception as error:
            if not says(error, 404):
                raise
            self._make_bucket(opened, compartment)

    def _make_bucket(self, opened: _Opened, compartment: str) -> None:
        import oci

        details = oci.object_storage.models.CreateBucketDetails(name=self._bucket, compartment_id=compartment)
        try:
            opened.client().create_bucket(opened.namespace, details, **opened.options)
        except Exception as error:
            # Another process was first; or it is somebody else's, which the next request tells.
            if not says(error, 409, "BucketAlreadyExists"):
                raise

    def _forget(self) -> _Opened | None:
        with self._opening:
            opened, self._opened = self._opened, None
            return opened

    def _outdated(self) -> bool:
        """Whether there are new credentials; if so, the next call signs in anew."""
        with self._opening:
            opened = self._opened
            if opened is None or not opened.outdated():
                return False
            self._opened = None
        opened.close()
        return True

    def _sdk_retries(self) -> bool:
        return self._opened is not None and self._opened.retries

    def _place(self) -> str:
        opened = self._opened
        namespace = opened.namespace if opened is not None else self._given_namespace
        return f"bucket {self._bucket!r}" + (f" in namespace {namespace!r}" if namespace is not None else "")

    def _signed_in_by(self) -> str:
        return "the client that was handed in" if self._client is not None else str(self._sign_in)


class _Opened:
    """What the calls between two closings use."""

    def __init__(self, signed_in: SignedIn | HandedIn) -> None:
        self.namespace = ""
        self.pid = os.getpid()
        self.client = signed_in.client
        self.options = signed_in.options
        self.retries = signed_in.retries
        self.outdated = signed_in.outdated
        self.close = signed_in.close


class _SignInError(Exception):
    """Signing in failed; inside of this module only."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause
