"""Behind sentinels: a replica takes over while stores save, and what sentinels say that do not help."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis_servers
from conftest import unavailable
from many_saves import ManySaves
from redis_servers import RedisServer, Sentinels
from servers import ServerUnavailableError, free_port

from locus_store import BackendError, BackendUnavailableError, ConflictError, RedisBackend

NewRedis = Callable[..., RedisServer]


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    try:
        started = redis_servers.start_sentinels()
    except ServerUnavailableError as error:
        unavailable("redis", error)
    yield started
    started.close()


@pytest.fixture
async def store(sentinels: Sentinels) -> AsyncIterator[RedisBackend]:
    async with RedisBackend(sentinels.store_url) as opened:
        yield opened


async def fail_over(saves: ManySaves, sentinels: Sentinels, begin: Callable[[], object]) -> None:
    """In the middle of the saves; what was acknowledged before the replica had all is not risked."""
    await saves.until(100)
    old = sentinels.primary
    settled = set(saves.acknowledged)
    await asyncio.to_thread(sentinels.wait_until_copied)
    async with saves.away():
        begin()
        await asyncio.to_thread(sentinels.wait_for_a_failover, old)
        saves.risked = set(saves.acknowledged) - settled


async def test_the_primary_is_killed_in_the_middle_of_200_saves(sentinels: Sentinels, store: RedisBackend) -> None:
    old = sentinels.primary
    saves = ManySaves(store)
    await saves.during(lambda: fail_over(saves, sentinels, old.kill))
    for error in saves.errors:
        assert "name no primary that is up" in str(error) or "the connection was lost" in str(error)
    old.start()  # it comes back as a replica, and is not spoken to
    assert await store.load("t") == {}
    await store.save("t", {"n": 1})
    assert await store.load("t") == {"n": 1}


@pytest.mark.endurance
async def test_an_ordered_failover_in_the_middle_of_200_saves(sentinels: Sentinels, store: RedisBackend) -> None:
    """The old primary lives on as a replica: it refuses to write, and the store asks the sentinels again."""
    old = sentinels.primary
    saves = ManySaves(store)
    await saves.during(lambda: fail_over(saves, sentinels, sentinels.order_a_failover))
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(old.info, "replication"))["role"] != "slave":
            await asyncio.sleep(0.05)
    await store.save("t", {"n": 1})
    assert await store.load("t") == {"n": 1}


@pytest.mark.endurance
async def test_what_the_replica_did_not_have_is_lost_and_noticed(sentinels: Sentinels, store: RedisBackend) -> None:
    """Replication is asynchronous. Whoever remembers what is lost saves whole documents again, or is told."""
    old, replica = sentinels.primary, sentinels.replica
    lines = [f"{n} " * 100 for n in range(40)]
    await store.save("t", {"messages": lines[:10]}, "kept")
    await asyncio.to_thread(sentinels.wait_until_copied)
    replica.pause()
    old.command("CLIENT", "KILL", "TYPE", "replica")  # what comes now never gets there
    for n in range(11, 21):
        await store.save("t", {"messages": lines[:n]}, f"lost-{n}")
    await store.save("u", {"messages": lines}, "lost")
    old.kill()
    replica.resume()
    await asyncio.to_thread(sentinels.wait_for_a_failover, old)
    assert sentinels.primary is replica
    assert await store.list_checkpoints("t") == ["kept"]
    assert await store.load("u") is None
    with pytest.raises(ConflictError):
        await store.save("t", {"messages": lines[:21]}, expected_version=11)
    await store.save("t", {"messages": lines[:21]}, "after")
    await store.save("u", {"messages": lines}, "after")
    async with RedisBackend(sentinels.store_url) as other:
        for opened in (store, other):
            assert await opened.list_checkpoints("t") == ["after", "kept"]
            assert await opened.load("t") == {"messages": lines[:21]}
            assert await opened.load("t", "kept") == {"messages": lines[:10]}
            assert await opened.load("u") == {"messages": lines}
            assert sorted(await opened.list_threads()) == ["t", "u"]


# ------------------------------------------------------------------------------------------------------ what is said


async def refused(url: str) -> BackendError:
    async with RedisBackend(url, timeout=5) as store:
        with pytest.raises(BackendError) as caught:
            await store.load("t")
    assert caught.value.__cause__ is not None
    assert "secret" not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__cause__}"
    return caught.value


async def assert_the_login_is_refused(url: str) -> None:
    error = await refused(url)
    assert "the sentinels refuse this user or password (sentinel_username, sentinel_password)" in str(error)
    assert " - AuthenticationError: " in str(error)
    assert not isinstance(error, BackendUnavailableError)


@pytest.mark.parametrize("login", ["sentinel_password=secret", "sentinel_username=me&sentinel_password=secret"])
async def test_sentinels_that_want_another_password(new_redis: NewRedis, login: str) -> None:
    """What stands for the sentinel is a server; it refuses in the same way."""
    server = new_redis({"requirepass": "right"})
    await assert_the_login_is_refused(f"redis+sentinel://:secret@127.0.0.1:{server.port}/mymaster?{login}")


async def test_sentinels_that_cannot_be_reached() -> None:
    ports = free_port(), free_port()
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    error = await refused(f"redis+sentinel://:secret@{hosts}/mymaster?sentinel_password=secret")
    assert isinstance(error, BackendUnavailableError)
    assert "the sentinels name no primary that is up" in str(error)
    assert all(f"127.0.0.1:{port} - ConnectionError: " in str(error) for port in ports)


async def test_a_server_that_is_taken_for_a_sentinel(redis_server: RedisServer) -> None:
    error = await refused(f"redis+sentinel://127.0.0.1:{redis_server.port}/mymaster")
    assert "the server is no sentinel; connect with redis://" in str(error)


@pytest.mark.endurance
async def test_what_real_sentinels_refuse(sentinels: Sentinels) -> None:
    error = await refused(sentinels.store_url.replace("mymaster", "another"))
    assert "the sentinels name no primary that is up: No master found for 'another'" in str(error)
    place = sentinels.store_url.removeprefix("redis+sentinel://").split(",")[0]
    error = await refused(f"redis://{place}")
    assert "if it is a sentinel, connect with redis+sentinel://" in str(error)
    sentinels._sentinels[0].command("ACL", "SETUSER", "default", "resetpass", ">right")
    for login in ("", "sentinel_password=secret", "sentinel_username=me&sentinel_password=secret"):
        await assert_the_login_is_refused(f"redis+sentinel://:secret@{place}/mymaster?{login}")
    async with RedisBackend(f"redis+sentinel://{place}/mymaster?sentinel_password=right") as store:
        assert await store.load("t") is None
