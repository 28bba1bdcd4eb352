"""Certificates for servers of the tests that speak TLS on 127.0.0.1."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def tls_server(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server needs whose certificate an authority of its own has signed, and the file of that authority."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _name("an authority of the tests")
    root = _certificate(authority, authority, authority_key.public_key(), authority=True)
    leaf = _certificate(_name("127.0.0.1"), authority, key.public_key(), authority=False)
    root_file, leaf_file = folder / "authority.pem", folder / "server.pem"
    root_file.write_bytes(root.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    leaf_file.write_bytes(
        leaf.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf_file)
    return context, root_file


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
