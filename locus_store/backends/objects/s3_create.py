"""Making a bucket: the one request that obstore has no call for; it signs its URL."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING

from locus_store.core.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from obstore.store import S3Store

    from locus_store.backends.objects.s3_options import S3Options


async def create_bucket(store: S3Store, options: S3Options) -> None:
    """Make the bucket of a store; one that is there already and ours is left as it is.

    Raises:
        BackendError: It may not be made, or its name is somebody else's.
    """
    import obstore

    try:
        url = await obstore.sign_async(store, "PUT", "", timedelta(minutes=5))
    except Exception as e:
        raise BackendError(f"{options.where}: it is not there, and no request to make it can be signed") from e
    region = store.config.get("region", "us-east-1")
    await asyncio.to_thread(_send, url, region, options)


def _send(url: str, region: str, options: S3Options) -> None:
    body = b""
    if options.endpoint_url is None and region != "us-east-1":
        place = f"<LocationConstraint>{region}</LocationConstraint>"
        body = f"<CreateBucketConfiguration>{place}</CreateBucketConfiguration>".encode()
    context = ssl.create_default_context(cafile=options.verify if isinstance(options.verify, str) else None)
    if options.verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, data=body, method="PUT")  # noqa: S310  obstore made the URL
    try:
        with urllib.request.urlopen(request, timeout=options.timeout, context=context):  # noqa: S310
            pass
    except urllib.error.HTTPError as e:
        said = e.read()
        # Others may have made it meanwhile.
        if e.code != 409 or (b"BucketAlreadyOwnedByYou" not in said and b"OperationAborted" not in said):
            raise BackendError(f"{options.where}: it is not there, and making it was refused ({e.code})") from None
    except OSError as e:
        raise BackendUnavailableError(f"{options.where}: it is not there, and making it failed") from e
