"""What a URL names, by its scheme: a driver, which is imported when it is asked for, and its classes' arguments.

    memory://                               threads that live as long as the object
    file:///var/agents, file:agents         a folder
    sqlite:///agents.db, sqlite:////var/…   a SQLite file, relative or absolute; sqlite:// is one in memory
    postgresql://user:password@host/db      PostgreSQL
    mysql://user:password@host/db           MySQL, or MariaDB: mariadb://user:password@host/db
    oracle://user:password@host/service     Oracle Database
    redis://user:password@host:6379/0       Redis or Valkey; over TLS rediss://…, a local socket unix:///path?db=0
    redis+sentinel://host,host/name/0       … behind sentinels; redis+cluster://host,host a cluster
    opensearch://user:password@host:9200/index  OpenSearch or Elasticsearch; over TLS opensearchs://…
    s3://bucket/prefix                      an S3 bucket; ?endpoint=http://host:9000&region=… where it is not Amazon's
    gs://bucket/prefix, az://container/prefix  Google's and Azure's; credentials and account from the environment
    oci://bucket@namespace/prefix           a bucket of OCI Object Storage; without @namespace, it is looked up

Options of the backend may be in the query: ``sqlite:///agents.db?tenant=acme&ttl_seconds=3600``. Those that are no
options of the backend are handed to the database's client where they are known to it, and refused otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import unquote

from pydantic import BaseModel

from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.errors import MissingDependencyError
from locus_store.core.state import AgentState
from locus_store.sql.client_parameters import MYSQL_CLIENT, ORACLE_CLIENT, POSTGRESQL_CLIENT
from locus_store.url import Url, parse


class Driver(NamedTuple):
    """A driver's module in `locus_store.backends` and its two public classes."""

    module: str
    backend_name: str
    checkpointer_name: str

    @property
    def name(self) -> str:
        """The scheme, and the name for `get_checkpointer`."""
        return self.module.rpartition(".")[2]

    def backend_class(self) -> type[Backend]:
        """Its backend; this imports it."""
        found: type[Backend] = self._named(self.backend_name)
        return found

    def checkpointer(self, state_type: type[BaseModel], options: Mapping[str, Any]) -> Checkpointer[Any]:
        """Make its checkpointer, or one of another type of state.

        Args:
            state_type: What to load.
            options: Options of the checkpointer.
        """
        if state_type is AgentState:
            found: Checkpointer[AgentState] = self._named(self.checkpointer_name)(**options)
            return found
        return self.backend_class()(**options).checkpointer(state_type)

    def _named(self, name: str) -> Any:
        return getattr(import_module(f"locus_store.backends.{self.module}"), name)


MEMORY = Driver("memory", "MemoryBackend", "MemoryCheckpointer")
FILE = Driver("file", "FileBackend", "FileCheckpointer")
SQLITE = Driver("sqlite", "SQLiteBackend", "SQLiteCheckpointer")
POSTGRESQL = Driver("postgresql", "PostgreSQLBackend", "PostgreSQLCheckpointer")
MYSQL = Driver("mysql", "MySQLBackend", "MySQLCheckpointer")
ORACLE = Driver("oracle", "OracleBackend", "OracleCheckpointer")
OPENSEARCH = Driver("opensearch", "OpenSearchBackend", "OpenSearchCheckpointer")
REDIS = Driver("redis", "RedisBackend", "RedisCheckpointer")
S3 = Driver("objects.s3", "S3Backend", "S3Checkpointer")
OCI = Driver("objects.oci", "OCIBucketBackend", "OCIBucketCheckpointer")


class Target(NamedTuple):
    """What a URL names: a driver, and the arguments that its classes take."""

    driver: Driver
    arguments: dict[str, Any]


def _memory(url: Url) -> Target:
    if url.place not in ("", "//"):
        raise ValueError("memory:// is the whole URL: what is in memory has no name")
    return Target(MEMORY, url.options(MEMORY.backend_class())[0])


def _file(url: Url) -> Target:
    place = url.place
    if place.startswith("//"):
        host, slash, rest = place[2:].partition("/")
        if host not in ("", "localhost"):
            raise ValueError("write file:///folder with three slashes, or file:folder for one in the working folder")
        place = slash + rest
    path = unquote(place)
    if os.name == "nt" and re.match(r"/[A-Za-z]:", path):
        path = path[1:]
    if not path:
        raise ValueError("a file: URL names a folder: file:///folder, or file:folder")
    return Target(FILE, {"base_dir": path, **url.options(FILE.backend_class())[0]})


def _sqlite(url: Url) -> Target:
    if url.place in ("//", "///"):
        path = ":memory:"
    elif url.place.startswith("///"):
        path = unquote(url.place[3:])
    else:
        raise ValueError("write sqlite:///name.db, sqlite:////folder/name.db, or sqlite:// for one in memory")
    return Target(SQLITE, {"path": path, **url.options(SQLITE.backend_class())[0]})


def _dsn(driver: Driver, url: Url, client: Collection[str], parameter: str = "dsn") -> Target:
    """A URL that the backend takes as it is, but for its own options."""
    options, passed = url.options(driver.backend_class(), client)
    dsn = f"{url.scheme}:{url.place}" + ("?" + "&".join(passed) if passed else "")
    return Target(driver, {parameter: dsn, **options})


def _postgresql(url: Url) -> Target:
    return _dsn(POSTGRESQL, url, POSTGRESQL_CLIENT)


def _mysql(url: Url) -> Target:
    # The character set is an option of the backend, which says why there is only one.
    return _dsn(MYSQL, url, MYSQL_CLIENT)


def _oracle(url: Url) -> Target:
    return _dsn(ORACLE, url, ORACLE_CLIENT)


def _opensearch(url: Url) -> Target:
    return _dsn(OPENSEARCH, url, ())


def _redis(url: Url) -> Target:
    from locus_store.backends.redis.address import CLIENT

    return _dsn(REDIS, url, CLIENT, "url")


def _bucket(url: Url, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a bucket, and the options with the prefix."""
    match = re.fullmatch(r"//([^/@:]+)(?:/(.*))?", url.place)
    if match is None:
        raise ValueError(f"write {url.scheme}://bucket/prefix; keys are no part of it")
    if match[2] and "prefix" in options:
        raise ValueError("the option 'prefix' is given twice")
    return unquote(match[1]), {**({"prefix": unquote(match[2])} if match[2] else {}), **options}


def _s3(url: Url) -> Target:
    options = url.options(S3.backend_class())[0]
    # A query ends up in logs and shells' histories.
    if secrets := [name for name in options if name.startswith("aws_")]:
        raise ValueError(f"{secrets[0]} is no option of a URL: pass it by name, or set the environment's variable")
    bucket, options = _bucket(url, options)
    return Target(S3, {"bucket": bucket, **options})


def _obstore(url: Url) -> Target:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore
    except ImportError as e:
        raise MissingDependencyError(f"a URL of {url.scheme}://", "obstore", "s3") from e
    bucket, options = _bucket(url, url.options(S3.backend_class())[0])
    try:
        store = (GCSStore if url.scheme == "gs" else AzureStore)(bucket)
    except BaseError as e:
        hint = "; the account is named by AZURE_STORAGE_ACCOUNT_NAME" if url.scheme == "az" else ""
        raise ValueError(f"{url.scheme}://{bucket} cannot be opened with what the environment says{hint}") from e
    return Target(S3, {"store": store, **options})


def _oci(url: Url) -> Target:
    match = re.fullmatch(r"//([^/@:]+)(?:@([^/@:]+))?(?:/(.*))?", url.place)
    if match is None:
        raise ValueError("write oci://bucket@namespace/prefix, or oci://bucket/prefix to have the namespace looked up")
    options = url.options(OCI.backend_class())[0]
    names = ("bucket_name", "namespace", "prefix")
    place = {name: unquote(text) for name, text in zip(names, match.groups(), strict=True) if text}
    if twice := [name for name in place if name in options]:
        raise ValueError(f"the option {twice[0]!r} is given twice")
    return Target(OCI, {**place, **options})


SCHEMES: dict[str, Callable[[Url], Target]] = {
    "memory": _memory,
    "file": _file,
    "sqlite": _sqlite,
    "sqlite+aiosqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "postgresql+asyncpg": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "mysql+asyncmy": _mysql,
    "mariadb+asyncmy": _mysql,
    "oracle": _oracle,
    "oracle+oracledb": _oracle,
    "oracle+oracledb_async": _oracle,
    "opensearch": _opensearch,
    "opensearchs": _opensearch,
    "redis": _redis,
    "rediss": _redis,
    "unix": _redis,
    "redis+sentinel": _redis,
    "rediss+sentinel": _redis,
    "redis+cluster": _redis,
    "rediss+cluster": _redis,
    "s3": _s3,
    "gs": _obstore,
    "az": _obstore,
    "oci": _oci,
}


def resolve(url: str) -> Target:
    """What a URL names.

    Raises:
        ValueError: Its scheme is unknown, or what follows it is wrong.
        MissingDependencyError: The database's client is not installed.
    """
    parsed = parse(url)
    found = SCHEMES.get(parsed.scheme)
    if found is None:
        raise ValueError(f"unknown scheme {parsed.scheme!r}; known: {', '.join(f'{name}:' for name in SCHEMES)}")
    return found(parsed)
