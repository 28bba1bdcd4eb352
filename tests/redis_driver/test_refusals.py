"""What the server refuses is an error that says what to do; none is taken for "no such thread", none shows a password."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions
from redis_driver.all_calls import calls, refused
from redis_driver.conftest import Open
from redis_servers import RedisCluster, RedisServer
from servers import free_port

from locus_store import BackendError, BackendUnavailableError, PayloadTooLargeError, RedisBackend
from locus_store.backends.redis.refusals import translated

NewRedis = Callable[..., RedisServer]


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisBackend]:
    async with RedisBackend(url, **options) as store:
        yield store


# ------------------------------------------------------------------------------------------------ who may not, or cannot


@pytest.mark.parametrize("login", ["", ":secret@", "nobody:secret@"])
async def test_a_wrong_password(new_redis: NewRedis, login: str) -> None:
    server = new_redis({"requirepass": "right"})
    async with opened(f"redis://{login}127.0.0.1:{server.port}") as store:
        for call in calls(store).values():
            error = await refused(call)
            assert f"redis://127.0.0.1:{server.port}: the server refuses this user or password" in str(error)
            assert not isinstance(error, BackendUnavailableError)
    async with opened(f"redis://:right@127.0.0.1:{server.port}") as store:
        await store.save("t", {"a": 1})
        assert "right" not in repr(store)


async def test_a_user_who_may_not_run_scripts(new_redis: NewRedis) -> None:
    server = new_redis()
    server.command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", "-evalsha", "-eval")
    async with opened(f"redis://me:secret@127.0.0.1:{server.port}") as store:
        assert "this user may not do that" in str(await refused(lambda: store.load("t")))
    server.command("ACL", "SETUSER", "me", "+evalsha", "+eval", "-hset")
    async with opened(f"redis://me:secret@127.0.0.1:{server.port}") as store:
        assert "this user may not do that" in str(await refused(lambda: store.save("t", {"a": 1})))


async def test_the_server_is_down() -> None:
    async with opened(f"redis://:secret@127.0.0.1:{free_port()}", timeout=5) as store:
        for error in await asyncio.gather(*[refused(call) for call in calls(store).values()]):
            assert isinstance(error, BackendUnavailableError)
            assert "the server cannot be reached" in str(error)


async def test_a_socket_that_is_not_there() -> None:
    async with opened("unix:///nowhere/redis.sock") as store:
        error = await refused(lambda: store.load("t"))
        assert isinstance(error, BackendUnavailableError)
        assert "unix:///nowhere/redis.sock" in str(error)


async def test_the_server_does_not_answer(new_redis: NewRedis) -> None:
    server: Any = new_redis()
    async with opened(server.store_url, timeout=0.3) as store:
        await store.save("t", {"a": 1})
        server.pause()
        try:
            for name in ("save", "load"):
                error = await refused(calls(store)[name])
                assert isinstance(error, BackendUnavailableError)
                assert "did not answer in time" in str(error)
        finally:
            server.resume()
        for _ in range(200):  # it works off what has waited
            with contextlib.suppress(BackendUnavailableError):
                assert await store.load("t") is not None
                break
        else:
            raise AssertionError("it does not come back")


async def test_a_read_only_replica(new_redis: NewRedis) -> None:
    primary = new_redis({"repl-diskless-sync-delay": "0"})
    async with opened(primary.store_url) as store:
        await store.save("t", {"a": 1})
    replica = new_redis({"replicaof": ["127.0.0.1", str(primary.port)]})
    async with opened(replica.store_url) as store:
        async with asyncio.timeout(60):
            while await store.load("t") != {"a": 1}:
                await asyncio.sleep(0.02)
        for name in ("save", "delete"):
            error = await refused(calls(store)[name])
            assert "the server is a read-only replica and wrote nothing; connect to its primary" in str(error)
        assert await store.list_threads() == ["t"]
    async with opened(primary.store_url) as store:
        assert len(await store.list_checkpoints("t")) == 1


async def test_out_of_memory(new_redis: NewRedis) -> None:
    server = new_redis({"maxmemory": "8mb", "maxmemory-policy": "noeviction"})
    async with opened(server.store_url) as store:
        kept: list[str] = []

        async def fill() -> None:
            for i in range(200):
                await store.save("t", {"i": i, "a": f"{i}" + "x" * 200_000}, f"c{i}", metadata={"i": i})
                kept.append(f"c{i}")

        error = await refused(fill)
        assert "no memory left (maxmemory) and wrote nothing" in str(error)
        assert isinstance(error.__cause__, exceptions.OutOfMemoryError)
        assert await store.list_checkpoints("t", limit=None) == kept[::-1]
        for i, checkpoint_id in enumerate(kept):
            assert await store.load("t", checkpoint_id) == {"i": i, "a": f"{i}" + "x" * 200_000}
        assert await store.list_threads() == ["t"]
        server.command("CONFIG", "SET", "maxmemory", "1mb")  # below what it has
        for name in ("new thread", "t"):
            with pytest.raises(BackendError, match="no memory left"):
                await store.save(name, {"a": "x" * 100})
        assert await store.list_threads() == ["t"]
        assert await store.load("t", kept[0]) is not None
        # What gives memory back works.
        assert await store.delete("t")
        assert await store.list_threads() == []
        server.command("CONFIG", "SET", "maxmemory", "8mb")
        await store.save("t", {"a": 1})


async def test_out_of_memory_a_checkpoint_goes_whole_or_not_at_all(new_redis: NewRedis) -> None:
    server = new_redis()
    async with opened(server.store_url) as store:
        for i in range(5):
            await store.save("t", {"i": i, "messages": ["x"] * i}, f"c{i}", metadata={"i": i})

        def stored() -> tuple[Any, Any]:
            with server.client() as client:
                return client.hgetall("locus_store:{default:t}:h"), client.zrange("locus_store:{default:t}:v", 0, -1)

        before = stored()
        server.command("CONFIG", "SET", "maxmemory", "1")
        for call in (lambda: store.delete("t", "c2"), lambda: store.delete("t", ["c0", "c4"])):
            assert "no memory left (maxmemory) and wrote nothing" in str(await refused(call))
        assert stored() == before
        assert [len(await store.query_by_metadata("i", i, versions="all")) for i in range(5)] == [1] * 5
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert await store.delete("t", "c2")
        assert await store.query_by_metadata("i", 2, versions="all") == []


async def test_a_key_of_another_program(redis_server: RedisServer, open_store: Open, prefix: str) -> None:
    store = open_store()
    redis_server.command("SET", f"{prefix}{{default:t}}:h", "mine")
    for name in ("save", "load", "exists", "delete", "copy_thread"):
        error = await refused(calls(store)[name])
        assert "a key of the store's holds something else" in str(error)
    assert redis_server.command("GET", f"{prefix}{{default:t}}:h") == b"mine"
    redis_server.command("SET", f"{prefix}{{default}}:i", "mine")
    error = await refused(lambda: store.save("u", {"a": 1}))
    assert "a key of the store's holds something else" in str(error)
    assert await store.load("u") is None
    await refused(store.list_threads)


async def test_too_many_clients(new_redis: NewRedis) -> None:
    server = new_redis({"maxclients": "2"})
    async with opened(server.store_url) as one, opened(server.store_url) as two, opened(server.store_url) as three:
        await one.save("t", {"a": 1})
        await two.load("t")
        error = await refused(lambda: three.load("t"))
        assert isinstance(error, BackendUnavailableError)
        assert "takes no more connections (maxclients)" in str(error) or "connection was lost" in str(error)
        await two.close()
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(BackendUnavailableError):
                    assert await three.load("t") == {"a": 1}
                    break


async def test_a_node_of_a_cluster_that_is_taken_for_a_server(redis_cluster: RedisCluster, prefix: str) -> None:
    async with opened(redis_cluster.nodes[0].store_url, prefix=prefix) as store:
        for i in range(20):
            error = await refused(lambda i=i: store.save(f"t{i}", {"a": 1}))
            assert "redis+cluster://" in str(error)
        error = await refused(store.list_threads)


async def test_a_server_that_is_taken_for_a_cluster(redis_server: RedisServer) -> None:
    async with opened(f"redis+cluster://127.0.0.1:{redis_server.port}") as store:
        error = await refused(lambda: store.save("t", {"a": 1}))
        assert "cluster" in str(error)


# ------------------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize(
    ("error", "unavailable", "text"),
    [
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), True, "still loading"),
        (exceptions.ResponseError("BUSY Redis is busy running a script."), True, "busy with a script"),
        (exceptions.ResponseError("DENIED Redis is running in protected mode"), False, "protected mode"),
        (exceptions.ResponseError("MISCONF Redis is configured to save RDB"), False, "cannot write to its disk"),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), False, "too few replicas"),
        (exceptions.MasterDownError("Link with MASTER is down"), True, "lost its primary"),
        (exceptions.ClusterDownError("The cluster is down"), True, "a part of the cluster is down"),
        (exceptions.MaxConnectionsError("Too many connections"), True, "no connection free"),
        (exceptions.ConnectionError("max number of clients reached"), True, "takes no more connections"),
        (exceptions.TimeoutError("Timeout reading from h:1"), True, "did not answer in time"),
        (TimeoutError(), True, "did not answer in time: TimeoutError"),
        (ConnectionResetError("reset"), True, "connection was lost"),
        (exceptions.ResponseError("ERR unknown command"), False, "the server refused: ERR unknown command"),
        # As servers before 7.0 say it of a script.
        (
            exceptions.ResponseError(
                "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed"
            ),
            False,
            "no memory left",
        ),
        (
            exceptions.ResponseError(
                "ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write"
            ),
            False,
            "read-only replica",
        ),
    ],
)
def test_meanings(error: Exception, unavailable: bool, text: str) -> None:
    found = translated(error, "redis://h:1")
    assert str(found).startswith("redis://h:1: ")
    assert text in str(found)
    assert isinstance(found, BackendUnavailableError) is unavailable


async def test_a_piece_that_is_too_large(open_store: Open) -> None:
    store = open_store(max_piece=10_000)
    await store.save("t", {"a": "x" * 5000})
    for document in ({"a": "x" * 20_000}, {"messages": ["y" * 300] * 100}):
        with pytest.raises(PayloadTooLargeError) as caught:
            await store.save("t", document)
        assert caught.value.limit == 10_000
    with pytest.raises(PayloadTooLargeError):
        await store.put_records("t", "s", {"k": b"x" * 20_000})
    assert await store.load("t") == {"a": "x" * 5000}


@pytest.mark.endurance
async def test_the_limit_is_256_megabytes(open_store: Open) -> None:
    store = open_store(timeout=120)
    await store.save("t", {"a": 1})
    with pytest.raises(PayloadTooLargeError):
        await store.save("t", {"a": "x" * (256 * 1024 * 1024 + 1)})
    whole = {"a": "x" * (255 * 1024 * 1024)}
    await store.save("t", whole)
    assert await store.load("t") == whole


async def test_the_rights_that_the_documentation_names_are_enough(new_redis: NewRedis) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "redis.md").read_text()
    rights = re.findall(r"\+[a-z|]+", text[text.index("**Rights**") :].split(";")[0])
    server = new_redis()
    server.command("ACL", "SETUSER", "me", "on", ">secret", "~locus_store:*", *rights)
    async with opened(f"redis://me:secret@127.0.0.1:{server.port}", ttl_seconds=60, renew_on_load=True) as store:
        for i in range(3):
            await store.save("t", {"messages": [str(n) * 300 for n in range(i)]}, f"c{i}", metadata={"i": i})
        await store.save("t", {"a": 1}, "c1")
        await store.put_records("t", "s", {"k": 1})
        assert await store.records("t", "s") == {"k": 1}
        assert await store.copy_thread("t", "u")
        assert await store.load("u", "c2") is not None
        assert await store.delete("t", "c0")
        assert await store.delete_records("t") == 1
        assert len(await store.query_by_metadata("i", 2, versions="all")) == 2
        server.command("DEL", "locus_store:{default}:i")
        assert sorted(await store.list_threads(pattern="*")) == ["t", "u"]
        await store.vacuum(older_than_days=0)
        assert await store.delete("u")
