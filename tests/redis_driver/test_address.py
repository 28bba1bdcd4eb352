"""URLs of Redis servers: what they name, what is refused, and that no password is shown."""

from __future__ import annotations

from typing import Any

import pytest

from locus_store.backends.redis import RedisBackend
from locus_store.backends.redis.address import parse


@pytest.mark.parametrize(
    ("url", "shown", "hosts"),
    [
        ("redis://", "redis://localhost:6379", [("localhost", 6379)]),
        ("redis://h", "redis://h:6379", [("h", 6379)]),
        ("REDISS://h:1/", "rediss://h:1", [("h", 1)]),
        ("redis://u:p@h:1/2", "redis://h:1/2", [("h", 1)]),
        ("redis://[::1]:7/3", "redis://[::1]:7/3", [("::1", 7)]),
        ("redis+sentinel://u:p@a,b:3/my%20db/2", "redis+sentinel://a:26379,b:3/my db/2", [("a", 26379), ("b", 3)]),
        ("rediss+cluster://a:1,b", "rediss+cluster://a:1,b:6379", [("a", 1), ("b", 6379)]),
    ],
)
def test_hosts(url: str, shown: str, hosts: list[tuple[str, int]]) -> None:
    found = parse(url)
    assert found.shown == shown
    assert list(found.hosts) == hosts
    assert found.tls is url.lower().startswith("rediss")
    assert "my db" in (found.master, "my db")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://h", {}),
        ("redis://u:p@h/3", {"username": "u", "password": "p", "db": 3}),
        ("redis://:p%40%2F%3F%25@h", {"password": "p@/?%"}),
        ("redis://u:p#q:r@h", {"username": "u", "password": "p#q:r"}),
        ("redis://u@h?db=4", {"username": "u", "db": 4}),
        ("unix://u:p@/run/a@b?db=1&client_name=a+b", {"username": "u", "password": "p", "db": 1, "client_name": "a b"}),
        (
            "rediss://h?ssl_ca_certs=%2Fca.pem&ssl_check_hostname=no&socket_keepalive=1&protocol=3&socket_timeout=1.5",
            {
                "ssl_ca_certs": "/ca.pem",
                "ssl_check_hostname": False,
                "socket_keepalive": True,
                "protocol": 3,
                "socket_timeout": 1.5,
            },
        ),
    ],
)
def test_options(url: str, options: dict[str, Any]) -> None:
    assert parse(url).options == options


def test_a_socket_has_a_path_and_no_host() -> None:
    found = parse("unix:///run/redis%20a.sock")
    assert (found.path, found.hosts, found.shown) == ("/run/redis a.sock", (), "unix:///run/redis%20a.sock")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("secret@h", "not a URL like"),
        ("http://u:secret@h", "not a URL like"),
        ("redis:u:secret@h", "not a URL like"),
        ("redis://u:p@secret@h", "an '@' in a user or a password is written %40"),
        ("redis://u:p/secret@h", "an '@' in a user or a password is written %40"),
        ("redis://u:p?secret@h", "'?' in a password is written %3F"),
        ("redis://u:12?secret@h", "'?' in a password is written %3F"),
        ("redis://h:secret", "host:port"),
        ("redis://h/secret", "number of a database"),
        ("redis://h/1/2", "number of a database"),
        ("redis://h/1?db=2", "two different databases"),
        ("redis://h?secret=1", "'?' in a password is written %3F"),
        ("redis://h?protocol=secret", "'protocol'"),
        ("redis://h?socket_keepalive=secret", "'socket_keepalive'"),
        ("redis://h?ssl_password=secret", "ssl_password is no option of redis://"),
        ("redis+cluster://h?sentinel_password=secret", "sentinel_password is no option of redis+cluster://"),
        ("redis+sentinel://u:secret@h", "the name of the primary"),
        ("redis://u:secret@a,b", "several hosts"),
        ("unix://secret/run/a", "unix:///path"),
        ("unix://", "unix:///path"),
    ],
)
def test_what_is_refused_is_not_repeated(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        RedisBackend(url)
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_url_is_text() -> None:
    with pytest.raises(TypeError, match="url must be a str, got bytes"):
        RedisBackend(b"redis://h")  # type: ignore[arg-type]


def test_the_database_is_named_once() -> None:
    assert repr(RedisBackend("redis://h", db=3)) == "RedisBackend(RedisDriver(redis://h:6379/3, prefix='locus_store:'))"
    RedisBackend("redis://h/3", db=3)
    with pytest.raises(ValueError, match="db=2, but the URL names database 3"):
        RedisBackend("redis://h/3", db=2)
    with pytest.raises(ValueError, match="a cluster has one database only"):
        RedisBackend("redis+cluster://h", db=2)
