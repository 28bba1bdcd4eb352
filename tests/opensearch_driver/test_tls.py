"""TLS, by a relay that has a certificate of its own."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from opensearch_driver.relay import Relay
from opensearch_servers import Double

from locus_store import BackendUnavailableError, OpenSearchBackend


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.fixture
async def secured(server: Double, certificate: Path) -> AsyncIterator[Relay]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with Relay(server.url, context) as relay:
        yield relay


async def test_a_certificate_that_is_trusted(secured: Relay, index: str, certificate: Path) -> None:
    place = f"127.0.0.1:{secured.port}"
    for store in (
        OpenSearchBackend(place, index, "u", "p", ca_certs=str(certificate)),
        OpenSearchBackend(dsn=f"opensearchs://u:p@{place}/{index}", ca_certs=str(certificate)),
        OpenSearchBackend(dsn=f"opensearch://u:p@{place}/{index}", use_ssl=True, ca_certs=str(certificate)),
        OpenSearchBackend(f"https://{place}", index, verify_certs=False),
    ):
        async with store:
            await store.save("t", {"n": 1})
            assert await store.load("t") == {"n": 1}


async def test_one_that_is_not(secured: Relay, index: str) -> None:
    async with OpenSearchBackend(f"127.0.0.1:{secured.port}", index) as store:
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await store.load("t")
    assert secured.requests == []
