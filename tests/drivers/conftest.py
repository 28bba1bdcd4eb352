"""What the tests of this folder are run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import servers
from drivers.driver_list import DRIVERS, SERVERS, OpenDriver

from locus_store.core.driver import Driver


@pytest.fixture(scope="session")
def open_driver(request: pytest.FixtureRequest) -> OpenDriver:
    """Makes a driver of `DRIVERS` by its name, from the path of a folder that is not there yet and a codec or None."""

    def make(name: str, folder: Path, codec: Any) -> Driver:
        server = request.getfixturevalue(SERVERS[name]) if name in SERVERS else None
        servers.note_ran(name, *([server.version] if server is not None else []))
        return DRIVERS[name](folder, codec, server)

    return make
