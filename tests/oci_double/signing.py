"""Checks the signature of a request: draft-cavage-http-signatures-08 with RSA-SHA256, as the service has it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from oci_double.answers import NOT_AUTHENTICATED, Refused

SKEW = 300
"""Seconds by which the client's clock may differ."""

ALWAYS = ("date", "(request-target)", "host")
"""What every request signs."""

BODY = ("content-length", "content-type", "x-content-sha256")
"""What a request with a body signs besides, unless it puts an object."""

_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"]*)"')


def refuse(reason: str) -> Refused:
    """The real service says no more than its usual sentence; here the reason follows it."""
    return Refused(401, "NotAuthenticated", f"{NOT_AUTHENTICATED} [{reason}]")


def read_public_key(pem: str) -> rsa.RSAPublicKey:
    key = serialization.load_pem_public_key(pem.encode())
    assert isinstance(key, rsa.RSAPublicKey)
    return key


def check(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: Mapping[str, rsa.RSAPublicKey],
    *,
    always: tuple[str, ...] = ALWAYS,
    signs_body: bool = False,
) -> str:
    """Who signed a request.

    Args:
        target: Path and query, as they were sent.
        headers: By names in lower case.
        keys: The public keys that are known, by key id.
        always: The headers that must be signed.
        signs_body: Whether those of the body must be, too.

    Raises:
        Refused: The request is not signed as it must be; 401.
    """
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    given = dict(_PARAMETER.findall(rest))
    if scheme.lower() != "signature" or {"keyId", "headers", "signature", "algorithm"} - set(given):
        raise refuse("no signature")
    if given["algorithm"] != "rsa-sha256" or given.get("version", "1") != "1":
        raise refuse("another algorithm or version")
    signed = given["headers"].split(" ")
    missing = [name for name in always + (BODY if signs_body else ()) if name not in signed]
    if missing:
        raise refuse(f"not signed: {', '.join(missing)}")
    _check_date(headers.get("date", ""))
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    if "x-content-sha256" in signed and headers.get("x-content-sha256") != digest:
        raise refuse("x-content-sha256 is not that of the body")
    key = keys.get(given["keyId"])
    if key is None:
        raise refuse("unknown key id")
    lines = []
    for name in signed:
        if name == "(request-target)":
            lines.append(f"{name}: {method.lower()} {target}")
        elif name not in headers:
            raise refuse(f"signed but not sent: {name}")
        else:
            lines.append(f"{name}: {headers[name]}")
    try:
        key.verify(
            base64.b64decode(given["signature"], validate=True),
            "\n".join(lines).encode(),
            padding.PKCS1v15(),
            hashes.SHA256(),
        )
    except (InvalidSignature, binascii.Error):
        raise refuse("the signature is not the key's") from None
    return given["keyId"]


def _check_date(text: str) -> None:
    try:
        sent = parsedate_to_datetime(text).timestamp()
    except ValueError:
        raise refuse("no date") from None
    if abs(time.time() - sent) > SKEW:
        raise refuse("the date is more than five minutes off")
