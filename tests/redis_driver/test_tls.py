"""TLS on real servers: whom a store trusts, and what it says of others. The wheel's server has no TLS, Debian's has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis_servers
from conftest import unavailable
from oci_double.certificates import self_signed
from redis_servers import RedisServer
from servers import ServerUnavailableError

from locus_store import BackendUnavailableError, RedisBackend


@pytest.fixture(scope="module")
def program() -> str:
    found = redis_servers.os_redis_server()
    if found is None:
        unavailable("redis", ServerUnavailableError("install redis-server: the wheel's server has no TLS"))
    return found


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of a server whose certificate is for 127.0.0.1, and that wants none of its clients."""
    certificate, key = map(str, self_signed(tmp_path_factory.mktemp("tls")))
    files = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": certificate}
    return {**files, "tls-auth-clients": "no"}


@pytest.fixture
def secured(new_redis: Callable[..., RedisServer], program: str, settings: dict[str, str]) -> RedisServer:
    return new_redis({**settings, "requirepass": "secret"}, program=program)


async def test_a_certificate_that_is_trusted(secured: RedisServer, settings: dict[str, str]) -> None:
    ca = settings["tls-ca-cert-file"]
    place = f"rediss://:secret@127.0.0.1:{secured.port}"
    for store in (
        RedisBackend(f"{place}?ssl_ca_certs={ca}"),
        RedisBackend(place, client_options={"ssl_ca_certs": ca}),
        RedisBackend(f"{place}?ssl_cert_reqs=none"),
        RedisBackend(f"rediss://:secret@localhost:{secured.port}?ssl_ca_certs={ca}&ssl_check_hostname=false"),
    ):
        async with store:
            await store.save("t", {"n": 1})
            assert await store.load("t") == {"n": 1}


async def test_one_that_is_not(secured: RedisServer, settings: dict[str, str], tmp_path: Path) -> None:
    another, _ = self_signed(tmp_path)
    here = f":secret@127.0.0.1:{secured.port}"
    for url in (
        f"rediss://{here}",
        f"rediss://{here}?ssl_ca_certs={another}",
        f"rediss://:secret@localhost:{secured.port}?ssl_ca_certs={settings['tls-ca-cert-file']}",
        f"rediss+cluster://{here}",
        f"rediss+sentinel://{here}/mymaster?sentinel_password=secret",
    ):
        async with RedisBackend(url) as store:
            with pytest.raises(
                BackendUnavailableError, match="certificate is not trusted, or is for another"
            ) as caught:
                await store.load("t")
        assert caught.value.__cause__ is not None
        assert "secret" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_server_that_is_spoken_to_without(secured: RedisServer) -> None:
    async with RedisBackend(f"redis://:secret@127.0.0.1:{secured.port}", timeout=5) as store:
        with pytest.raises(BackendUnavailableError, match="cannot be reached, or the connection was lost"):
            await store.load("t")


async def test_a_server_that_has_none(redis_server: RedisServer) -> None:
    async with RedisBackend(f"rediss://127.0.0.1:{redis_server.port}", timeout=1) as store:
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            await store.load("t")


@pytest.mark.endurance
async def test_sentinels_over_tls(program: str, settings: dict[str, str]) -> None:
    sentinels = redis_servers.start_sentinels({**settings, "tls-replication": "yes"}, program=program)
    try:
        url = f"{sentinels.store_url}?ssl_ca_certs={settings['tls-ca-cert-file']}"
        async with RedisBackend(url) as store:
            await store.save("t", {"n": 1})
            assert await store.load("t") == {"n": 1}
        async with RedisBackend(sentinels.store_url) as store:
            with pytest.raises(BackendUnavailableError, match="certificate is not trusted"):
                await store.load("t")
    finally:
        sentinels.close()
