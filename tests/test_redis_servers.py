"""The Redis and Valkey servers that the other tests stand on."""

from __future__ import annotations

import pytest
import redis
import redis_servers
import servers
from test_servers import assert_a_killed_run_leaves_no_server

LOST = (OSError, redis.RedisError)


def test_what_was_acknowledged_is_in_the_append_only_file(new_redis):
    server = new_redis({"appendonly": "yes", "appendfsync": "always"})
    port = server.port
    for crash in (server.kill, server.stop):
        server.command("RPUSH", "k", "x")
        crash()
        with pytest.raises(LOST):
            server.command("PING")
        server.start()
    assert server.port == port
    assert server.command("LRANGE", "k", 0, -1) == [b"x", b"x"]


def test_a_paused_server_goes_on_where_it_was(new_redis):
    server = new_redis()
    server.command("SET", "k", "v")
    server.pause()
    with server.client(socket_timeout=0.3) as client, pytest.raises(redis.TimeoutError):
        client.get("k")
    server.resume()
    assert server.command("GET", "k") == b"v"


def test_a_password_is_wanted(new_redis):
    server = new_redis({"requirepass": "a b@c"})
    assert server.command("PING") in (True, b"PONG")
    with pytest.raises(redis.AuthenticationError), redis.Redis(port=server.port) as client:
        client.ping()


def test_clients_are_counted_and_thrown_out(redis_server):
    redis_server.ensure_running()
    before = redis_server.clients()
    with redis_server.client() as client:
        client.ping()
        assert redis_server.clients() == before + 1
        redis_server.throw_out()
        assert redis_server.clients() == 0


def test_a_slot_moves_within_a_cluster(redis_cluster):
    redis_cluster.ensure_running()
    slot = redis_cluster.slot(b"key")
    source = redis_cluster.owner(slot)
    target = next(node for node in redis_cluster.nodes if node is not source)
    source.command("SET", "key", "value")
    asked = []

    def ask():
        with pytest.raises(redis.exceptions.RedisError) as caught:
            source.command("GET", "key")
        asked.append(caught.value)

    halves = iter([lambda: None, ask])
    redis_cluster.move(slot, target, lambda: next(halves)())
    assert [type(error) for error in asked] == [redis.exceptions.AskError]
    assert redis_cluster.owner(slot) is target
    assert target.command("GET", "key") == b"value"
    with pytest.raises(redis.exceptions.MovedError):
        source.command("GET", "key")
    redis_cluster.move(slot, source)
    source.command("DEL", "key")


@pytest.mark.endurance
def test_the_replica_takes_over():
    sentinels = redis_servers.start_sentinels()
    try:
        old = sentinels.primary
        old.command("SET", "k", "v")
        sentinels.wait_until_copied()
        old.kill()
        sentinels.wait_for_a_failover(old)
        assert sentinels.primary is not old
        assert sentinels.primary.command("GET", "k") == b"v"
        old.start()
        assert sentinels.replica is old
    finally:
        sentinels.close()


def test_a_killed_run_leaves_no_server(tmp_path, redis_server):
    if not redis_server.managed:
        pytest.skip("needs a server that the tests start")
    assert_a_killed_run_leaves_no_server("start_redis", "127.0.0.1:{}", tmp_path, "redis_servers")


def test_no_server_can_be_had(monkeypatch):
    monkeypatch.setenv(redis_servers.REDIS_SERVER, "/nowhere/redis-server")
    with pytest.raises(servers.ServerUnavailableError, match=r"no Redis server: /nowhere/redis-server: "):
        redis_servers.start_redis(external=False)
    monkeypatch.setenv(redis_servers.REDIS_URL, "redis://:secret@127.0.0.1:1")
    with pytest.raises(servers.ServerUnavailableError) as caught:
        redis_servers.start_redis()
    assert "secret" not in str(caught.value)
