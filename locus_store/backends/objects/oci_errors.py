"""What went wrong at OCI Object Storage, as errors of this package."""

from __future__ import annotations

from typing import Any

from locus_store.core.errors import BackendError, BackendUnavailableError

TRANSIENT = frozenset({429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_REMEDIES = {
    "BucketNotFound": "there is no such bucket, or you may not use it; with compartment_id a missing one is made",
    "NamespaceNotFound": "there is no such namespace, or you may not use it; without one, your tenancy's is looked up",
    "NotAuthorizedOrNotFound": "you may not do that, or it is not there; look at the policies and the compartment",
    "NotAuthorized": "you may not do that; look at the policies",
}


def is_service_error(error: BaseException) -> bool:
    """Whether the service answered, and refused."""
    import oci

    return isinstance(error, oci.exceptions.ServiceError)


def says(error: Any, status: int, *codes: str) -> bool:
    """Whether the service answered with this status, and one of these codes if any are given."""
    return is_service_error(error) and error.status == status and (not codes or error.code in codes)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed: the service is busy, or it could not be reached or heard to the end."""
    if is_service_error(error):
        return getattr(error, "status", 0) in TRANSIENT or says(error, 409, "ConcurrentObjectUpdate")
    return is_connection_error(error)


def is_connection_error(error: BaseException) -> bool:
    """Whether the service, or one that gives tokens, could not be reached or heard to the end."""
    import oci
    from oci._vendor import requests

    inner = error.args[0] if isinstance(error, oci.exceptions.RequestException) and error.args else error
    known = requests.exceptions
    lost = (known.ConnectionError, known.Timeout, known.ChunkedEncodingError, ConnectionError, TimeoutError)
    return isinstance(inner, lost)


def translated(error: Exception, place: str, signed_in_by: str) -> BackendError:
    """An error of ours for one of the SDK's, which becomes its cause.

    Args:
        error: What the SDK raised; its own text may hold more than a message should.
        place: Which bucket it was about.
        signed_in_by: How the caller had signed in, for people.
    """
    if not is_service_error(error):
        if is_connection_error(error):
            return BackendUnavailableError(f"{place} cannot be reached, or the connection was lost")
        return BackendError(f"{place}: the SDK failed with {type(error).__name__}")
    status, code = getattr(error, "status", 0), getattr(error, "code", None) or "no code"
    request = getattr(error, "request_id", None)
    answer = f"{place} answered {status} {code}"
    told = f" (opc-request-id {request})" if request else ""
    if status in TRANSIENT:
        wish = "asks for fewer requests" if status == 429 else "is out of order"
        return BackendUnavailableError(f"{answer}: the service {wish}{told}")
    if status == 401:
        return BackendError(
            f"{answer}: it does not accept the sign-in by {signed_in_by}; look at the key or token, its user, and this"
            f" machine's clock{told}"
        )
    return BackendError(f"{answer}: {_REMEDIES.get(code, 'the service refuses')}{told}")


def not_signed_in(error: Exception, place: str, signed_in_by: str) -> BackendError:
    """The error where signing in failed before any request to the bucket was made."""
    if is_transient(error):
        return BackendUnavailableError(f"{place}: who gives the credentials for {signed_in_by} cannot be reached")
    return BackendError(
        f"{place}: cannot sign in by {signed_in_by} ({type(error).__name__}): look at the configuration, or the cause"
    )
