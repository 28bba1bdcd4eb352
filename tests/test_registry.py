"""Stores by URL and by name: what is made, with which options, and what is refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
import pytest
from pydantic import BaseModel

from locus_store import registry, schemes
from locus_store.backends.file import FileBackend, FileCheckpointer
from locus_store.backends.memory import MemoryBackend, MemoryCheckpointer
from locus_store.backends.mysql import MySQLBackend, MySQLCheckpointer
from locus_store.backends.objects.oci import OCIBucketBackend, OCIBucketCheckpointer
from locus_store.backends.objects.s3 import S3Backend, S3Checkpointer
from locus_store.backends.opensearch import OpenSearchBackend, OpenSearchCheckpointer
from locus_store.backends.oracle import OracleBackend
from locus_store.backends.postgresql import PostgreSQLBackend, PostgreSQLCheckpointer
from locus_store.backends.redis import RedisBackend, RedisCheckpointer
from locus_store.backends.sqlite import SQLiteBackend, SQLiteCheckpointer
from locus_store.core.compression import ZlibCodec
from locus_store.core.state import AgentState
from locus_store.migrations import urls
from locus_store.registry import (
    get_checkpointer,
    list_checkpointers,
    open_backend,
    open_checkpointer,
    register_checkpointer,
)
from locus_store.url import parse


class Note(BaseModel):
    text: str


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the class that a URL names was called with; it is not made."""
    seen: dict[str, Any] = {}
    backend_class = schemes.Driver.backend_class

    def recording(driver: schemes.Driver) -> type:
        cls = backend_class(driver)
        # Not through __init__, whose parameters are the options.
        return type(cls.__name__, (cls,), {"__new__": lambda _, **given: seen.update(given, cls=cls)})

    monkeypatch.setattr(schemes.Driver, "backend_class", recording)
    return seen


# ------------------------------------------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("url", "cls", "expected"),
    [
        ("memory://", MemoryBackend, {}),
        ("memory:", MemoryBackend, {}),
        ("MEMORY://", MemoryBackend, {}),
        ("file:///var/agents", FileBackend, {"base_dir": "/var/agents"}),
        ("file://localhost/var/agents", FileBackend, {"base_dir": "/var/agents"}),
        ("file:/var/agents", FileBackend, {"base_dir": "/var/agents"}),
        ("file:agents/a", FileBackend, {"base_dir": "agents/a"}),
        ("file:a%20b%3F", FileBackend, {"base_dir": "a b?"}),
        ("sqlite:///agents.db", SQLiteBackend, {"path": "agents.db"}),
        ("sqlite:////var/agents.db", SQLiteBackend, {"path": "/var/agents.db"}),
        ("sqlite:///a%20b.db", SQLiteBackend, {"path": "a b.db"}),
        ("sqlite://", SQLiteBackend, {"path": ":memory:"}),
        ("sqlite:///", SQLiteBackend, {"path": ":memory:"}),
        ("sqlite:///:memory:", SQLiteBackend, {"path": ":memory:"}),
        ("sqlite+aiosqlite:///agents.db", SQLiteBackend, {"path": "agents.db"}),
        ("postgresql://h/db", PostgreSQLBackend, {"dsn": "postgresql://h/db"}),
        ("postgres://h/db", PostgreSQLBackend, {"dsn": "postgres://h/db"}),
        ("postgresql+asyncpg://h/db", PostgreSQLBackend, {"dsn": "postgresql+asyncpg://h/db"}),
        ("mysql://h/db", MySQLBackend, {"dsn": "mysql://h/db"}),
        ("mariadb://h/db", MySQLBackend, {"dsn": "mariadb://h/db"}),
        ("mysql+asyncmy://h/db", MySQLBackend, {"dsn": "mysql+asyncmy://h/db"}),
        ("mariadb+asyncmy://h/db", MySQLBackend, {"dsn": "mariadb+asyncmy://h/db"}),
        ("redis://u:p@h:1/2", RedisBackend, {"url": "redis://u:p@h:1/2"}),
        ("rediss://h", RedisBackend, {"url": "rediss://h"}),
        ("unix:///run/a%20b?db=1", RedisBackend, {"url": "unix:///run/a%20b", "db": 1}),
        ("redis+sentinel://h,i:2/name/0", RedisBackend, {"url": "redis+sentinel://h,i:2/name/0"}),
        ("rediss+cluster://h:1,i:2", RedisBackend, {"url": "rediss+cluster://h:1,i:2"}),
        ("opensearch://u:p@h:1,i/x", OpenSearchBackend, {"dsn": "opensearch://u:p@h:1,i/x"}),
        ("opensearchs://h?use_ssl=1", OpenSearchBackend, {"dsn": "opensearchs://h", "use_ssl": True}),
        ("s3://b/a/b%20c/", S3Backend, {"bucket": "b", "prefix": "a/b c/"}),
        ("s3://b", S3Backend, {"bucket": "b"}),
        (
            "s3://b?endpoint=http://h:9000&region=r&prefix=p&profile_name=q&timeout=3&verify=false&addressing_style=path",
            S3Backend,
            {
                "bucket": "b",
                "endpoint_url": "http://h:9000",
                "region_name": "r",
                "prefix": "p",
                "profile_name": "q",
                "timeout": 3,
                "verify": False,
                "addressing_style": "path",
            },
        ),
        ("oci://b@n/a/b%20c/", OCIBucketBackend, {"bucket_name": "b", "namespace": "n", "prefix": "a/b c/"}),
        ("oci://b", OCIBucketBackend, {"bucket_name": "b"}),
        (
            "oci://b/?auth_type=instance_principal&region=r&max_requests=3&compartment_id=c",
            OCIBucketBackend,
            {
                "bucket_name": "b",
                "auth_type": "instance_principal",
                "region": "r",
                "max_requests": 3,
                "compartment_id": "c",
            },
        ),
    ],
)
def test_a_url_names_a_place(url: str, cls: type, expected: dict[str, Any], arguments: dict[str, Any]) -> None:
    open_backend(url)
    assert arguments == {**expected, "cls": cls}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:p%40ss%3Fw%2Ford@host:5433/my%20db?sslmode=require&application_name=a%26b",
        "postgresql://user@/db?host=%2Fvar%2Frun%2Fpostgresql",
        "postgresql+asyncpg://u:p@h/d?ssl=require&statement_cache_size=0",
    ],
)
def test_what_belongs_to_postgresql_stays_as_it_was_written(url: str, arguments: dict[str, Any]) -> None:
    open_backend(url)
    assert arguments == {"dsn": url, "cls": PostgreSQLBackend}


def test_options_are_taken_out_of_the_dsn(arguments: dict[str, Any]) -> None:
    open_backend(
        "postgresql://u:p%40@h/db?schema=agents&sslmode=require&create_schema=false&max_pool_size=3&tenant=%C3%A9"
    )
    assert arguments == {
        "cls": PostgreSQLBackend,
        "dsn": "postgresql://u:p%40@h/db?sslmode=require",
        "schema": "agents",
        "create_schema": False,
        "max_pool_size": 3,
        "tenant": "é",
    }


def test_what_is_passed_on_is_known_to_the_driver() -> None:
    of_asyncpg = set(inspect.signature(asyncpg.connect).parameters)
    of_the_driver = {"application_name", "connect_timeout", "prepared_statement_cache_size", "sslmode"}
    assert schemes.POSTGRESQL_CLIENT - of_asyncpg <= of_the_driver
    made = open_backend("postgresql://u:secret@h:6/d?sslmode=require&connect_timeout=2&application_name=a&timeout=3")
    assert "h:6/d" in repr(made)
    assert "secret" not in repr(made)


def test_what_is_passed_on_to_mysql_is_known_to_its_driver() -> None:
    of_ssl = {name for name in schemes.MYSQL_CLIENT if name.startswith("ssl_")}
    assert schemes.MYSQL_CLIENT - of_ssl <= set(inspect.signature(asyncmy.connect).parameters)
    made = open_backend("mariadb://u:secret@h:6/d?tenant=a&ssl_ca=ca.pem&connect_timeout=2&read_timeout=3")
    assert "h:6/d" in repr(made)
    assert "secret" not in repr(made)
    made = open_backend("mysql://h/d?charset=utf8mb4&schema=other&max_pool_size=2&lock_timeout=2.5")
    assert "h:3306/d" in repr(made)
    with pytest.raises(ValueError, match="charset='latin1'"):
        open_backend("mysql://h/d?charset=latin1")
    with pytest.raises(ValueError, match="no option 'sql_mode'"):
        open_backend("mysql://h/d?sql_mode=ANSI")


def test_what_belongs_to_redis_is_passed_on(arguments: dict[str, Any]) -> None:
    open_backend("redis://u:p@h?prefix=a:&ttl_seconds=60&timeout=2.5&max_connections=3&client_name=me&protocol=3")
    assert arguments == {
        "cls": RedisBackend,
        "url": "redis://u:p@h?client_name=me&protocol=3",
        "prefix": "a:",
        "ttl_seconds": 60,
        "timeout": 2.5,
        "max_connections": 3,
    }


# ------------------------------------------------------------------------------------------------------------ options


def test_options_have_their_types(arguments: dict[str, Any]) -> None:
    open_backend(
        "sqlite:///a.db?tenant=7&ttl_seconds=1.5&keep_checkpoints=5&create_schema=No&synchronous=NORMAL&codec=zlib"
    )
    assert isinstance(arguments.pop("codec"), ZlibCodec)
    assert arguments == {
        "cls": SQLiteBackend,
        "path": "a.db",
        "tenant": "7",
        "ttl_seconds": 1.5,
        "keep_checkpoints": 5,
        "create_schema": False,
        "synchronous": "NORMAL",
    }


@pytest.mark.parametrize(("text", "value"), [("true", True), ("ON", True), ("1", True), ("false", False), ("0", False)])
def test_booleans(text: str, value: bool, arguments: dict[str, Any]) -> None:
    open_backend(f"file:a?pretty={text}")
    assert arguments["pretty"] is value


def test_keywords_win_over_the_url(arguments: dict[str, Any]) -> None:
    clock = lambda: 5  # noqa: E731
    open_backend("memory://?tenant=a&ttl_seconds=1", tenant="b", clock=clock)
    assert arguments == {"cls": MemoryBackend, "tenant": "b", "ttl_seconds": 1, "clock": clock}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://?tenent=acme", "no option 'tenent'; known: .*tenant"),
        ("memory://?schema=a", "no option 'schema'"),
        ("memory://?sslmode=require", "no option 'sslmode'"),
        ("memory://?clock=5", "no option 'clock'"),
        ("sqlite:///a.db?path=b.db", "no option 'path'"),
        ("sqlite:///a.db?mode=ro&uri=true", "no option 'mode', 'uri'"),
        ("postgresql://h/d?tenent=acme", "no option 'tenent'"),
        ("postgresql://h/d?schema=a&schema_name=b", "name one thing"),
        ("memory://?tenant=a&tenant=b", "'tenant' is given twice"),
        ("memory://?ttl_seconds=soon", "'ttl_seconds' must be a number, got 'soon'"),
        ("memory://?keep_checkpoints=1.5", "'keep_checkpoints' must be an integer"),
        ("file:a?pretty=maybe", "'pretty' must be true or false"),
        ("memory://?codec=rot13", "'codec' must be 'zlib'"),
        ("memory://here", "no name"),
        ("file://host/folder", "file:///folder"),
        ("file://", "names a folder"),
        ("sqlite:a.db", "sqlite:///name.db"),
        ("sqlite://host/a.db", "sqlite:///name.db"),
        ("agents.db", "begins with its scheme"),
        ("", "begins with its scheme"),
        ("nosql://localhost", "unknown scheme 'nosql'; known: memory:, file:, sqlite:, .*postgresql:"),
        ("s3://", "write s3://bucket/prefix"),
        ("s3://key:secret@bucket", "write s3://bucket/prefix"),
        ("s3://b/p?prefix=q", "the option 'prefix' is given twice"),
        ("s3://b?aws_session_token=t", "aws_session_token is no option of a URL"),
        ("s3://b?bucket=c", "no option 'bucket'"),
        ("oci://", "oci://bucket@namespace/prefix"),
        ("oci:bucket", "oci://bucket@namespace/prefix"),
        ("oci://user:secret@bucket/prefix", "oci://bucket@namespace/prefix"),
        ("oci://b/p?prefix=q", "the option 'prefix' is given twice"),
        ("oci://b?auth_type=password", "auth_type must be one of"),
        ("postgresql+psycopg://h/d", "unknown scheme"),
    ],
)
def test_what_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_backend(url)


@pytest.mark.parametrize(
    "url", ["nosql://u:secret@h/d", "postgresql://u:a?secret@h/d", "postgresql://u:secret@h/d?tenent=1", "u:secret@h"]
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        open_backend(url)
    assert "secret" not in str(caught.value)


def test_a_url_is_text() -> None:
    with pytest.raises(TypeError, match="URL must be a str"):
        open_backend(Path("a.db"))  # type: ignore[arg-type]


def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="tenent"):
        open_backend("memory://", tenent="acme")


def test_refusals_of_the_class_come_through() -> None:
    with pytest.raises(ValueError, match="ttl_seconds"):
        open_backend("memory://?ttl_seconds=0")
    with pytest.raises((TypeError, ValueError), match="table_name"):
        open_backend("sqlite:///a.db?table_name=mine")


# ------------------------------------------------------------------------------------- the environment and the default


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]) -> None:
    monkeypatch.setenv("LOCUS_STORE_URL", "memory://?tenant=env")
    open_backend(tenant="kw")
    assert arguments == {"cls": MemoryBackend, "tenant": "kw"}
    arguments.clear()
    open_backend("file:a")
    assert arguments == {"cls": FileBackend, "base_dir": "a"}


@pytest.mark.parametrize("value", [None, ""])
def test_the_default_is_a_sqlite_file(
    value: str | None, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.delenv("LOCUS_STORE_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("LOCUS_STORE_URL", value)
    open_backend()
    assert arguments == {"cls": SQLiteBackend, "path": "locus_store.db"}


def test_the_commands_use_the_same_names() -> None:
    assert (registry.ENVIRONMENT, registry.DEFAULT_URL) == (urls.ENVIRONMENT, urls.DEFAULT)


@pytest.mark.parametrize(
    "url",
    ["sqlite:///{}/a%20b.db", "sqlite:///{}/x.db?tenant=acme", "file:{}/folder", "memory://", "sqlite://"],
)
async def test_opened_stores_work_and_nothing_is_made_before(url: str, tmp_path: Path) -> None:
    async with open_backend(url.format(tmp_path)) as backend:
        assert not list(tmp_path.iterdir())
        await backend.save("t", {"a": 1})
        assert await backend.load("t") == {"a": 1}
    async with open_checkpointer(url.format(tmp_path), Note) as checkpointer:
        await checkpointer.save(Note(text="hello"), "n")
        assert await checkpointer.load("n") == Note(text="hello")


async def test_a_postgresql_url_opens_it(postgresql_url: str) -> None:
    mark = "&" if "?" in postgresql_url else "?"
    async with open_backend(f"{postgresql_url}{mark}tenant=acme&max_pool_size=1&application_name=t") as backend:
        await backend.save("t", {"a": 1})
        assert await backend.load("t") == {"a": 1}
        assert await backend.tenant("default").load("t") is None


async def test_a_mariadb_url_opens_it(mariadb_url: str) -> None:
    mark = "&" if "?" in mariadb_url else "?"
    for url in (mariadb_url, mariadb_url.replace("mariadb:", "mysql+asyncmy:")):
        async with open_backend(f"{url}{mark}tenant=acme&max_pool_size=1&program_name=t") as backend:
            await backend.save("t", {"a": 1})
            assert await backend.load("t") == {"a": 1}
            assert await backend.tenant("default").load("t") is None


# ------------------------------------------------------------------------------------------------------- checkpointers


@pytest.mark.parametrize(
    ("url", "cls"),
    [
        ("memory://", MemoryCheckpointer),
        ("file:a", FileCheckpointer),
        ("sqlite://", SQLiteCheckpointer),
        ("postgresql://h/d", PostgreSQLCheckpointer),
        ("mariadb://h/d", MySQLCheckpointer),
        ("redis://h/1", RedisCheckpointer),
        ("opensearch://h/x", OpenSearchCheckpointer),
        ("s3://b/p", S3Checkpointer),
        ("oci://b@n", OCIBucketCheckpointer),
    ],
)
def test_a_checkpointer_of_agent_states_has_its_class(url: str, cls: type) -> None:
    checkpointer = open_checkpointer(url + "?tenant=acme")
    assert type(checkpointer) is cls
    assert checkpointer.state_type is AgentState
    assert checkpointer._options.tenant == "acme"


def test_a_checkpointer_of_another_type() -> None:
    checkpointer = open_checkpointer("memory://", state_type=Note, tenant="acme")
    assert checkpointer.state_type is Note
    assert isinstance(checkpointer.backend, MemoryBackend)


# --------------------------------------------------------------------------------------------------------------- names


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CHECKPOINTERS", dict(registry._CHECKPOINTERS))


def test_the_names_that_are_there() -> None:
    assert list_checkpointers() == (
        ["memory", "file", "sqlite", "postgresql", "mysql", "oracle", "redis", "opensearch", "s3", "oci"]
    )


@pytest.mark.parametrize(
    ("text", "cls", "shown"),
    [
        ("memory", MemoryCheckpointer, None),
        ("memory:ignored", MemoryCheckpointer, None),
        ("file", FileCheckpointer, "'.locus_checkpoints'"),
        ("file:/a:b", FileCheckpointer, "'/a:b'"),
        ("file:", FileCheckpointer, "'.locus_checkpoints'"),
        ("file:///a/b", FileCheckpointer, "'/a/b'"),
        ("sqlite:a.db", SQLiteCheckpointer, "'a.db'"),
        ("sqlite::memory:", SQLiteCheckpointer, "':memory:'"),
        ("sqlite:sqlite:///a.db", SQLiteCheckpointer, "'a.db'"),
        ("sqlite:///a.db", SQLiteCheckpointer, "'a.db'"),
        ("sqlite+aiosqlite:///a.db", SQLiteCheckpointer, "'a.db'"),
        ("postgresql:agents", PostgreSQLCheckpointer, "localhost:5432/agents"),
        ("postgresql://u:p@h:5/agents", PostgreSQLCheckpointer, "h:5/agents"),
        ("postgresql:postgres://u:p@h:5/agents", PostgreSQLCheckpointer, "h:5/agents"),
        ("postgres://u:p@h:5/agents", PostgreSQLCheckpointer, "h:5/agents"),
        ("mysql:agents", MySQLCheckpointer, "localhost:3306/agents"),
        ("mysql://u:p@h:5/agents", MySQLCheckpointer, "h:5/agents"),
        ("mysql:mariadb://u:p@h:5/agents", MySQLCheckpointer, "h:5/agents"),
        ("mariadb://u:p@h:5/agents", MySQLCheckpointer, "h:5/agents"),
        ("redis", RedisCheckpointer, "redis://localhost:6379"),
        ("redis:h:7", RedisCheckpointer, "redis://h:7"),
        ("redis:redis://u:p@h:7/1", RedisCheckpointer, "redis://h:7/1"),
        ("redis://u:p@h:7/1", RedisCheckpointer, "redis://h:7/1"),
        ("rediss://u:p@h", RedisCheckpointer, "rediss://h:6379"),
        ("redis+cluster://u:p@h,i", RedisCheckpointer, "redis+cluster://h:6379,i:6379"),
        ("opensearch", OpenSearchCheckpointer, "localhost:9200/locus-checkpoints"),
        ("opensearch:h:7,i", OpenSearchCheckpointer, "h:7,i:9200/locus-checkpoints"),
        ("opensearch:https://h", OpenSearchCheckpointer, "h:9200/locus-checkpoints"),
        ("opensearch://u:p@h/x", OpenSearchCheckpointer, "h:9200/x"),
        ("opensearch:opensearchs://u:p@h/x", OpenSearchCheckpointer, "h:9200/x"),
        ("s3:b", S3Checkpointer, "the S3 bucket 'b'"),
        ("s3:s3://b/p", S3Checkpointer, "prefix='p/'"),
        ("s3://b/p", S3Checkpointer, "prefix='p/'"),
        ("oci:b/n", OCIBucketCheckpointer, "bucket 'b', namespace 'n'"),
        ("oci:b", OCIBucketCheckpointer, "bucket 'b'"),
        ("oci:oci://b@n/p/", OCIBucketCheckpointer, "bucket 'b', namespace 'n'"),
        ("oci://b@n/p/", OCIBucketCheckpointer, "bucket 'b', namespace 'n'"),
    ],
)
def test_a_name_and_a_hint(text: str, cls: type, shown: str | None) -> None:
    made = get_checkpointer(text)
    assert type(made) is cls
    assert shown is None or shown in repr(made)
    assert "u:p@" not in repr(made)


def test_keywords_win_over_the_hint(tmp_path: Path) -> None:
    assert get_checkpointer("file:/a", base_dir=tmp_path, pretty=True).base_dir == tmp_path
    assert get_checkpointer("sqlite:a.db", tenant="acme")._options.tenant == "acme"
    assert get_checkpointer("sqlite:///a.db?tenant=x", tenant="acme")._options.tenant == "acme"
    assert get_checkpointer("memory", state_type=Note).state_type is Note
    with pytest.raises(TypeError, match="nonsense"):
        get_checkpointer("memory", nonsense=1)


@pytest.mark.parametrize("text", ["http", "http:host:6379", "", "Memory", "http://h"])
def test_an_unknown_name(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"Unknown checkpointer provider: '.*Available providers: \['memory', "
    ) as caught:
        get_checkpointer(text)
    assert "Install optional dependencies" in str(caught.value)


def test_a_hint_for_something_else() -> None:
    with pytest.raises(ValueError, match="another kind of store"):
        get_checkpointer("file:postgresql://h/d")


@pytest.mark.usefixtures("names")
def test_a_name_of_ones_own() -> None:
    calls: list[dict[str, Any]] = []

    def factory(**kwargs: Any) -> MemoryCheckpointer:
        calls.append(kwargs)
        return MemoryCheckpointer()

    register_checkpointer("mine", factory)
    assert list_checkpointers()[-1] == "mine"
    assert isinstance(get_checkpointer("mine"), MemoryCheckpointer)
    get_checkpointer("mine:a:b//c", x=1)
    get_checkpointer("mine:")
    get_checkpointer("mine://x")
    assert calls == [{}, {"config_hint": "a:b//c", "x": 1}, {}, {"config_hint": "//x"}]

    register_checkpointer("memory", lambda **_: "replaced")  # type: ignore[arg-type]
    assert get_checkpointer("memory") == "replaced"


@pytest.mark.parametrize("name", ["", "a:b", None])
def test_what_is_no_name(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        register_checkpointer(name, MemoryCheckpointer)


@pytest.mark.parametrize("scheme", schemes.SCHEMES)
def test_every_known_scheme_is_read_from_a_url(scheme: str) -> None:
    assert parse(f"{scheme}://h/d").scheme == scheme


def test_the_name_of_sqlalchemys_asynchronous_oracle_dialect_is_a_scheme() -> None:
    assert isinstance(open_backend("oracle+oracledb_async://u:p@h:1/service"), OracleBackend)


@pytest.mark.parametrize(
    "scheme", ["postgresql", "mysql", "mariadb", "oracle", "redis", "rediss+cluster", "opensearch"]
)
def test_the_rest_of_a_password_is_not_taken_for_the_server(scheme: str) -> None:
    with pytest.raises(ValueError, match="password is written %40") as caught:
        open_backend(f"{scheme}://u:first@second@h/d")
    assert "second" not in str(caught.value)
