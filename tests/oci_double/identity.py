"""Who may sign: keys of users, tokens, and how an instance comes by one (metadata service and token service)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from oci_double import signing
from oci_double.answers import Answer, Refused, as_json

REGION = "eu-double-1"
TENANCY = "ocid1.tenancy.oc1..double"


class Identity:
    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPublicKey] = {}  # by key id: tenancy/user/fingerprint, or ST$token
        self.tokens_given = 0
        self._instance: tuple[rsa.RSAPrivateKey, x509.Certificate] | None = None

    def know(self, key_id: str, public_key: str) -> None:
        self.keys[key_id] = signing.read_public_key(public_key)

    def forget(self, key_id: str) -> None:
        self.keys.pop(key_id, None)

    # ------------------------------------------------------------------------------ the metadata of an instance

    def metadata(self, path: str, headers: Mapping[str, str]) -> Answer:
        """``/opc/v2/…``, as an instance asks it."""
        if headers.get("authorization") != "Bearer Oracle":
            raise Refused(403, "Forbidden", "the header 'Authorization: Bearer Oracle' is missing")
        key, certificate = self._made()
        pem = serialization.Encoding.PEM
        known = {
            "instance/region": REGION.encode(),
            "identity/cert.pem": certificate.public_bytes(pem),
            "identity/intermediate.pem": certificate.public_bytes(pem),
            "identity/key.pem": key.private_bytes(
                pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            ),
        }
        if path not in known:
            raise Refused(404, "NotFound", "no such metadata")
        return Answer(200, {"content-type": "text/plain"}, known[path])

    def _made(self) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
        if self._instance is None:
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            name = x509.Name(
                [
                    x509.NameAttribute(NameOID.COMMON_NAME, "ocid1.instance.oc1..double"),
                    x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"opc-tenant:{TENANCY}"),
                ]
            )
            now = datetime.now(UTC)
            certificate = (
                x509.CertificateBuilder()
                .subject_name(name)
                .issuer_name(name)
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - timedelta(hours=1))
                .not_valid_after(now + timedelta(hours=1))
                .sign(key, hashes.SHA256())
            )
            self._instance = key, certificate
        return self._instance

    # ------------------------------------------------------------------------------------------ tokens for them

    def federate(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """``POST /v1/x509``: a token for the key that an instance made, if the instance's own key signed the request."""
        _, certificate = self._made()
        fingerprint = ":".join(f"{byte:02X}" for byte in certificate.fingerprint(hashes.SHA1()))
        public = certificate.public_key()
        assert isinstance(public, rsa.RSAPublicKey)
        known = {f"{TENANCY}/fed-x509/{fingerprint}": public}
        always = ("date", "(request-target)")
        signing.check(method, target, headers, body, known, always=always, signs_body=True)
        given = json.loads(body)
        pem = f"-----BEGIN PUBLIC KEY-----\n{given['publicKey']}\n-----END PUBLIC KEY-----\n"
        token = make_token()
        self.tokens_given += 1
        self.know(f"ST${token}", pem)
        return as_json({"token": token})


def make_token(**claims: Any) -> str:
    """A token as the SDK reads it: it looks at when it ends, and takes the rest as it is."""
    now = int(time.time())
    parts = ({"alg": "RS256", "typ": "JWT"}, {"iat": now, "exp": now + 3600, **claims})
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*text, base64.urlsafe_b64encode(b"not signed" + time.time_ns().to_bytes(8)).decode().rstrip("=")])
