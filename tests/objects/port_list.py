"""The ports that `test_port_contract.py` is run with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from objects.memory_port import MemoryPort
from objects.s3_ports import s3_port

from locus_store.backends.objects.port import ObjectPort

PORTS: dict[str, Callable[[pytest.FixtureRequest], ObjectPort]] = {
    "memory-double": lambda request: MemoryPort(),
    "oci-double": lambda request: request.getfixturevalue("oci_port"),
    "s3": lambda request: s3_port(request.getfixturevalue("seaweedfs")),
    "s3-moto": lambda request: s3_port(request.getfixturevalue("moto")),
}
"""Each makes a port from the fixtures of a test (``request.getfixturevalue``); the test uses keys of its own. A port to
a server that cannot be had here skips the test."""
