"""The double in a process of its own, and what tests tell it; and users who can sign in to it."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from oci_double.identity import REGION, TENANCY

NAMESPACE = "doublespace"
_NAMES = itertools.count(1)


class Process:
    """A running double. It ends with the process that started it.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        """Start it; with a certificate and its key it speaks TLS."""
        self._tls = [str(certificate), str(key)] if certificate else []
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self, *, busy: bool = False) -> None:
        """Start it, on the port that it had before if there was one; it has forgotten everything.

        Args:
            busy: Whether it answers with 503 until it is told that there are no faults.
        """
        tests = str(Path(__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oci_double.server", *self._tls],
            env={
                **os.environ,
                "PYTHONPATH": tests,
                "OCI_DOUBLE_PORT": str(self.port),
                "OCI_DOUBLE_BUSY": str(int(busy)),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        """Kill it: nobody answers at its port."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------------- commands

    def tell(self, command: str, given: Any = None) -> Any:
        """Give it one of the commands of `server.Double.control`; returns what it answers."""
        made: http.client.HTTPConnection
        if self._tls:
            # It is our own child on this machine.
            context = ssl.create_default_context(cafile=self._tls[0])
            made = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)
        else:
            made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            made.request("POST", "/control", json.dumps([command, given]))
            answer = made.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            return json.loads(body)
        finally:
            made.close()

    def fault(self, kind: str, **order: Any) -> None:
        """Order a fault; see `faults.Fault`."""
        self.tell("fault", {"kind": kind, **order})

    def make_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"bucket-{os.getpid()}-{next(_NAMES)}"
        self.tell("make bucket", name)
        return name

    def objects(self, bucket: str) -> dict[str, bytes]:
        """All that is stored in a bucket."""
        return {name: bytes.fromhex(data) for name, data in self.tell("objects", bucket).items()}

    def put_objects(self, bucket: str, objects: dict[str, bytes]) -> None:
        """Put these in the place of all that is stored in a bucket."""
        self.tell("put objects", [bucket, {name: data.hex() for name, data in objects.items()}])

    def requests(self) -> dict[str, int]:
        """How many requests of each kind there were, those that were refused for their signature left out."""
        found: dict[str, int] = self.tell("requests")
        return found


class User:
    """Somebody with an API key, and a configuration file of the SDK in a folder.

    Attributes:
        config_file: The file; its profile is DEFAULT.
        key_id: What the user's requests are signed as.
    """

    def __init__(self, folder: Path, *, user: str = "somebody") -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.folder = folder
        der = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashlib.md5(der).hexdigest()
        self.fingerprint = ":".join(digest[i : i + 2] for i in range(0, 32, 2))
        self.name = f"ocid1.user.oc1..{user}"
        self.key_id = f"{TENANCY}/{self.name}/{self.fingerprint}"
        self.key_file = folder / f"{user}.pem"
        self.key_file.write_text(self.private_pem)
        self.config_file = self.write_profile()

    @property
    def private_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def public_pem(self) -> str:
        return (
            self.key.public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            .decode()
        )

    def write_profile(self, profile: str = "DEFAULT", name: str = "config", **more: str) -> Path:
        """Write a configuration file with one profile, and return its path."""
        lines = {
            "user": self.name,
            "tenancy": TENANCY,
            "fingerprint": self.fingerprint,
            "key_file": str(self.key_file),
            "region": REGION,
            **more,
        }
        path = self.folder / name
        path.write_text("\n".join([f"[{profile}]", *[f"{k}={v}" for k, v in lines.items()], ""]))
        return path

    def known_to(self, double: Process) -> Self:
        """Make the double know the API key."""
        double.tell("know", {"key_id": self.key_id, "public_key": self.public_pem})
        return self

    def with_token(self, double: Process, token: str) -> None:
        """Make the double take a token that goes with this key."""
        double.tell("know", {"key_id": f"ST${token}", "public_key": self.public_pem})
