"""A server that is there, and cannot do now what it is asked for: nothing is lost, and it works again afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis
from redis_driver.all_calls import calls, refused
from redis_servers import RedisServer, wait_for

from locus_store import BackendError, BackendUnavailableError, RedisBackend

NewRedis = Callable[..., RedisServer]

WRITES = ("save", "delete", "copy_thread")
LOOKS = ("load", "exists", "list_checkpoints", "list_threads")


@contextlib.asynccontextmanager
async def with_a_thread(server: RedisServer) -> AsyncIterator[RedisBackend]:
    """A store with one thread, which is as it was at the end, and can be written."""
    async with RedisBackend(server.store_url) as store:
        await store.save("t", {"a": 1}, "first")
        yield store
        assert await store.list_checkpoints("t") == ["first"]
        assert await store.list_threads() == ["t"]
        await store.save("t", {"a": 2})
        assert await store.load("t") == {"a": 2}


async def test_a_script_that_runs_too_long(new_redis: NewRedis) -> None:
    server = new_redis({"lua-time-limit": "20"})

    def run_for_ever() -> None:
        with contextlib.suppress(redis.ResponseError):
            server.command("EVAL", "while true do end", 0)

    async with with_a_thread(server) as store:
        running = asyncio.create_task(asyncio.to_thread(run_for_ever))
        try:
            async with asyncio.timeout(30):
                while True:
                    try:
                        await store.load("t")
                    except BackendUnavailableError as error:
                        assert "busy with a script that takes long; try again" in str(error)
                        break
            for name in (*WRITES, *LOOKS):
                assert "busy with a script" in str(await refused(calls(store)[name]))
        finally:
            server.command("SCRIPT", "KILL")
            await running


async def test_a_server_that_is_loading(new_redis: NewRedis) -> None:
    server: Any = new_redis({"appendonly": "yes", "appendfsync": "always", "aof-use-rdb-preamble": "no"})
    with server.client() as client:
        pipe = client.pipeline(transaction=False)
        for n in range(8000):
            pipe.set(f"other-{n}", "x")
        pipe.execute()
    async with with_a_thread(server) as store:
        server.kill()
        server._settings |= {"key-load-delay": "400"}  # microseconds
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        said = set()
        while not starting.done():
            try:
                assert await store.load("t") == {"a": 1}
            except BackendUnavailableError as error:
                said.add("still loading its data" in str(error))
        await starting
        assert True in said


async def test_a_disk_that_cannot_be_written(new_redis: NewRedis) -> None:
    server: Any = new_redis({"save": ["3600", "1000000"]})
    in_the_way = server._folder.path / "dump.rdb"

    def write(status: str) -> None:
        server.command("BGSAVE")
        wait_for(lambda: server.info("persistence")["rdb_bgsave_in_progress"] == "0", "the snapshot takes too long")
        assert server.info("persistence")["rdb_last_bgsave_status"] == status

    async with with_a_thread(server) as store:
        in_the_way.mkdir()
        (in_the_way / "file").touch()
        await asyncio.to_thread(write, "err")
        for name in WRITES:
            error = await refused(calls(store)[name])
            assert "cannot write to its disk, so it wrote nothing" in str(error)
            assert not isinstance(error, BackendUnavailableError)
        assert await store.load("t") == {"a": 1}
        (in_the_way / "file").unlink()
        in_the_way.rmdir()
        await asyncio.to_thread(write, "ok")


async def test_a_primary_with_too_few_replicas(new_redis: NewRedis) -> None:
    server = new_redis()
    async with with_a_thread(server) as store:
        server.command("CONFIG", "SET", "min-replicas-to-write", 1)
        for name in WRITES:
            assert "too few replicas (min-replicas-to-write) and wrote nothing" in str(
                await refused(calls(store)[name])
            )
        assert await store.load("t") == {"a": 1}
        server.command("CONFIG", "SET", "min-replicas-to-write", 0)


async def test_a_replica_that_has_lost_its_primary(new_redis: NewRedis) -> None:
    server = new_redis()
    async with with_a_thread(server) as store:
        server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
        server.command("REPLICAOF", "127.0.0.1", 1)
        for name in (*LOOKS, "save"):
            error = await refused(calls(store)[name])
            assert isinstance(error, BackendUnavailableError)
            assert "the replica has lost its primary" in str(error)
        server.command("REPLICAOF", "NO", "ONE")


async def test_rights_that_are_taken_away_and_given_back(new_redis: NewRedis) -> None:
    server = new_redis()
    server.command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all")
    async with with_a_thread(server), RedisBackend(f"redis://me:secret@127.0.0.1:{server.port}") as store:
        assert await store.load("t") == {"a": 1}
        for taken, given in {"resetkeys ~another:*": "~*", "-evalsha -eval": "+evalsha +eval"}.items():
            server.command("ACL", "SETUSER", "me", *taken.split())
            for name in (*WRITES, *LOOKS):
                error = await refused(calls(store)[name])
                assert "this user may not do that (see the server's ACL)" in str(error)
            server.command("ACL", "SETUSER", "me", *given.split())
            assert await store.load("t") == {"a": 1}
        # A user who is removed, or has another password, is thrown out or not let in.
        server.command("ACL", "SETUSER", "me", "resetpass", ">other")
        server.throw_out()
        for name in (*WRITES, *LOOKS):
            assert "refuses this user or password" in str(await refused(calls(store)[name]))


@pytest.mark.endurance
async def test_256_megabytes_are_filled(new_redis: NewRedis) -> None:
    """By several tasks, until each was refused: all that was acknowledged loads; what is deleted makes room again."""
    server = new_redis({"maxmemory": "256mb", "maxmemory-policy": "noeviction"})
    acknowledged: dict[str, list[str]] = {}
    refusals = []

    def document(thread: str, i: int) -> dict[str, Any]:
        return {"messages": [random.Random(f"{thread} {n}").randbytes(2000).hex() for n in range(2 * i + 1)]}

    async def fill(store: RedisBackend, task: int) -> None:
        for n in range(1000):
            thread = f"{task}-{n}"
            for i in range(40):
                try:
                    checkpoint_id = await store.save(thread, document(thread, i), metadata={"i": i})
                except BackendError as error:
                    refusals.append(error)
                    return
                acknowledged.setdefault(thread, []).append(checkpoint_id)

    async def look(store: RedisBackend) -> None:
        assert sorted(await store.list_threads(limit=None)) == sorted(acknowledged)
        for thread, ids in acknowledged.items():
            assert await store.list_checkpoints(thread, limit=None) == ids[::-1]
            for i in {0, len(ids) // 2, len(ids) - 1}:
                assert await store.load(thread, ids[i]) == document(thread, i)

    async with RedisBackend(server.store_url) as store:
        await asyncio.gather(*[fill(store, task) for task in range(8)])
        assert len(refusals) == 8
        assert all("no memory left (maxmemory) and wrote nothing; remove threads" in str(error) for error in refusals)
        assert int(server.info("memory")["used_memory"]) > 250_000_000
        await look(store)
        for _ in range(20):  # it is not refused for once only
            assert "no memory left" in str(await refused(lambda: store.save("more", {"a": "x" * 100_000})))
        assert not await store.exists("more")
        for thread in list(acknowledged)[::2]:
            assert await store.delete(thread)
            del acknowledged[thread]
        for n in range(50):
            thread = f"new-{n}"
            acknowledged[thread] = [await store.save(thread, document(thread, 0))]
        async with RedisBackend(server.store_url) as other:
            for opened in (store, other):
                await look(opened)
