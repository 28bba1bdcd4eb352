"""The server goes away in the middle of saves, in order or by a crash, and comes back."""

from __future__ import annotations

import asyncio

import pytest
from many_saves import ManySaves

from locus_store import open_backend

# What a server acknowledged must survive its crash; the machine does not crash here, so nothing is forced to the disk.
SETTINGS = {
    "postgresql": {"synchronous_commit": "on", "full_page_writes": "on"},
    "mariadb": {"innodb-flush-log-at-trx-commit": "1"},
}


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(("saves", "restarts"), [(200, 1), pytest.param(1000, 5, marks=pytest.mark.endurance)])
async def test_a_restart_in_the_middle_of_saves(request, name, how, saves, restarts):
    """Each save raised or is there, whole; the first call after the server came back works."""
    server = request.getfixturevalue(f"new_{name}")(SETTINGS[name])
    async with open_backend(server.create_database()) as store:
        many = ManySaves(store, saves)

        async def disturb() -> None:
            for n in range(restarts):
                await many.until(saves * (n + 1) // (restarts + 1))
                async with many.away():
                    await asyncio.to_thread(getattr(server, how))
                    await asyncio.to_thread(server.start)

        await many.during(disturb)
