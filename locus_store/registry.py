"""Stores by URL, and by the short names of the locus SDK; a driver is imported when it is asked for.

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

import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, overload
from urllib.parse import unquote, unquote_plus

from pydantic import BaseModel

from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.compression import ZlibCodec
from locus_store.core.errors import MissingDependencyError
from locus_store.core.protocols import BaseCheckpointer
from locus_store.core.state import AgentState
from locus_store.sql.client_parameters import MYSQL_CLIENT, ORACLE_CLIENT, POSTGRESQL_CLIENT

State = TypeVar("State", bound=BaseModel)

ENVIRONMENT = "LOCUS_STORE_URL"
"""The environment variable that names the store where a program does not."""

DEFAULT_URL = "sqlite:///locus_store.db"
"""The store where neither does."""


def open_backend(url: str | None = None, **options: Any) -> Backend:
    """Make the backend that a URL names. Nothing is read, written or connected to before its first use.

    Args:
        url: Where to store. None takes the environment variable ``LOCUS_STORE_URL``, and without one a SQLite file
            ``locus_store.db`` in the working folder.
        **options: Options of the backend; they win over those in the URL.

    Raises:
        ValueError: The URL is none that is known here, or an option in it is unknown or not of its type.
        MissingDependencyError: The database's client is not installed.
    """
    target = _resolve(url)
    return target.driver.backend_class()(**{**target.arguments, **options})


@overload
def open_checkpointer(url: str | None = None, *, state_type: type[State], **options: Any) -> Checkpointer[State]: ...
@overload
def open_checkpointer(url: str | None, state_type: type[State], **options: Any) -> Checkpointer[State]: ...
@overload
def open_checkpointer(url: str | None = None, **options: Any) -> Checkpointer[AgentState]: ...
def open_checkpointer(
    url: str | None = None, state_type: type[BaseModel] = AgentState, **options: Any
) -> Checkpointer[Any]:
    """Make a checkpointer over the backend that a URL names.

    Args:
        url: As for `open_backend`.
        state_type: The pydantic model that `Checkpointer.load` returns.
        **options: As for `open_backend`.
    """
    target = _resolve(url)
    return target.driver.checkpointer(state_type, {**target.arguments, **options})


# ------------------------------------------------------------------------------------------------------------- drivers


class _Driver(NamedTuple):
    """A driver's module in `locus_store.backends` and its two public classes."""

    module: str
    backend_name: str
    checkpointer_name: str

    @property
    def name(self) -> str:
        """The scheme, and the name for `get_checkpointer`."""
        return self.module.rpartition(".")[2]

    def backend_class(self) -> type[Backend]:
        found: type[Backend] = self._named(self.backend_name)
        return found

    def checkpointer(self, state_type: type[BaseModel], options: Mapping[str, Any]) -> Checkpointer[Any]:
        if state_type is AgentState:
            found: Checkpointer[AgentState] = self._named(self.checkpointer_name)(**options)
            return found
        return self.backend_class()(**options).checkpointer(state_type)

    def _named(self, name: str) -> Any:
        return getattr(import_module(f"locus_store.backends.{self.module}"), name)


_MEMORY = _Driver("memory", "MemoryBackend", "MemoryCheckpointer")
_FILE = _Driver("file", "FileBackend", "FileCheckpointer")
_SQLITE = _Driver("sqlite", "SQLiteBackend", "SQLiteCheckpointer")
_POSTGRESQL = _Driver("postgresql", "PostgreSQLBackend", "PostgreSQLCheckpointer")
_MYSQL = _Driver("mysql", "MySQLBackend", "MySQLCheckpointer")
_ORACLE = _Driver("oracle", "OracleBackend", "OracleCheckpointer")
_OPENSEARCH = _Driver("opensearch", "OpenSearchBackend", "OpenSearchCheckpointer")
_REDIS = _Driver("redis", "RedisBackend", "RedisCheckpointer")
_S3 = _Driver("objects.s3", "S3Backend", "S3Checkpointer")
_OCI = _Driver("objects.oci", "OCIBucketBackend", "OCIBucketCheckpointer")


# ---------------------------------------------------------------------------------------------------------------- URLs


class _Parameter(NamedTuple):
    """One option of a query: its name, its value, and both as they were written."""

    name: str
    value: str
    text: str


class _Url(NamedTuple):
    """A URL taken apart.

    Attributes:
        scheme: In lower case.
        place: What lies between the scheme's colon and the query, as written.
        parameters: The options of the query.
    """

    scheme: str
    place: str
    parameters: tuple[_Parameter, ...]

    def options(self, driver: _Driver, client: Collection[str] = ()) -> tuple[dict[str, Any], list[str]]:
        """The backend's options, and, as written, what goes to the client.

        Args:
            driver: The parameters of its backend are the options.
            client: The names of what the client takes.
        """
        readers = _option_readers(driver.backend_class())
        found: dict[str, Any] = {}
        passed: list[str] = []
        unknown: list[str] = []
        for name, value, text in self.parameters:
            option = name if name in readers else _ALIASES.get(name, name)
            if option in found:
                raise ValueError(f"the option {option!r} is given twice")
            if option in readers:
                found[option] = readers[option](option, value)
            elif name in client:
                passed.append(text)
            else:
                unknown.append(name)
        if unknown:
            known = ", ".join(sorted(readers))
            raise ValueError(f"{driver.backend_name} has no option {', '.join(map(repr, unknown))}; known: {known}")
        return found, passed


# The underscore is in no RFC, but in SQLAlchemy's names of drivers.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*):(.*)", re.S)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def _parse(url: str) -> _Url:
    # No message repeats more of the URL than its scheme and the names of its options: it may hold a password.
    if not isinstance(url, str):
        raise TypeError(f"a URL must be a str, got {type(url).__name__}")
    match = _SCHEME.fullmatch(url)
    if match is None:
        raise ValueError("a URL begins with its scheme; that of a SQLite file is sqlite:///name.db")
    place, _, query = match[2].partition("?")
    parameters = []
    for text in filter(None, query.split("&")):
        name, _, value = text.partition("=")
        name = unquote_plus(name)
        if not _NAME.fullmatch(name):
            raise ValueError("what follows the '?' is no list of options; a '?' in a password is written %3F")
        parameters.append(_Parameter(name, unquote_plus(value), text))
    return _Url(match[1].lower(), place, tuple(parameters))


class _Target(NamedTuple):
    """What a URL names: a driver, and the arguments that its classes take."""

    driver: _Driver
    arguments: dict[str, Any]


def _resolve(url: str | None) -> _Target:
    parsed = _parse((os.environ.get(ENVIRONMENT) or DEFAULT_URL) if url is None else url)
    resolve = _SCHEMES.get(parsed.scheme)
    if resolve is None:
        raise ValueError(f"unknown scheme {parsed.scheme!r}; known: {', '.join(f'{name}:' for name in _SCHEMES)}")
    return resolve(parsed)


def _memory(url: _Url) -> _Target:
    if url.place not in ("", "//"):
        raise ValueError("memory:// is the whole URL: what is in memory has no name")
    return _Target(_MEMORY, url.options(_MEMORY)[0])


def _file(url: _Url) -> _Target:
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
    return _Target(_FILE, {"base_dir": path, **url.options(_FILE)[0]})


def _sqlite(url: _Url) -> _Target:
    if url.place in ("//", "///"):
        path = ":memory:"
    elif url.place.startswith("///"):
        path = unquote(url.place[3:])
    else:
        raise ValueError("write sqlite:///name.db, sqlite:////folder/name.db, or sqlite:// for one in memory")
    return _Target(_SQLITE, {"path": path, **url.options(_SQLITE)[0]})


def _server(driver: _Driver, client: Collection[str]) -> Callable[[_Url], _Target]:
    def resolve(url: _Url) -> _Target:
        options, passed = url.options(driver, client)
        dsn = f"{url.scheme}:{url.place}" + ("?" + "&".join(passed) if passed else "")
        return _Target(driver, {"dsn": dsn, **options})

    return resolve


_postgresql = _server(_POSTGRESQL, POSTGRESQL_CLIENT)
# The character set is an option of the backend, which says why there is only one.
_mysql = _server(_MYSQL, MYSQL_CLIENT)
_oracle = _server(_ORACLE, ORACLE_CLIENT)
_opensearch = _server(_OPENSEARCH, ())


def _redis(url: _Url) -> _Target:
    from locus_store.backends.redis.address import CLIENT

    options, passed = url.options(_REDIS, CLIENT)
    place = f"{url.scheme}:{url.place}" + ("?" + "&".join(passed) if passed else "")
    return _Target(_REDIS, {"url": place, **options})


def _bucket(url: _Url, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a bucket, and the options with the prefix."""
    match = re.fullmatch(r"//([^/@:]+)(?:/(.*))?", url.place)
    if match is None:
        raise ValueError(f"write {url.scheme}://bucket/prefix; keys are no part of it")
    if match[2] and "prefix" in options:
        raise ValueError("the option 'prefix' is given twice")
    return unquote(match[1]), {**({"prefix": unquote(match[2])} if match[2] else {}), **options}


def _s3(url: _Url) -> _Target:
    options = url.options(_S3)[0]
    # A query ends up in logs and shells' histories.
    if secrets := [name for name in options if name.startswith("aws_")]:
        raise ValueError(f"{secrets[0]} is no option of a URL: pass it by name, or set the environment's variable")
    bucket, options = _bucket(url, options)
    return _Target(_S3, {"bucket": bucket, **options})


def _obstore(url: _Url) -> _Target:
    try:
        from obstore.store import AzureStore, GCSStore
    except ImportError as e:
        raise MissingDependencyError(f"{url.scheme}:// URLs", "obstore", "s3") from e
    bucket, options = _bucket(url, url.options(_S3)[0])
    return _Target(_S3, {"store": (GCSStore if url.scheme == "gs" else AzureStore)(bucket), **options})


def _oci(url: _Url) -> _Target:
    match = re.fullmatch(r"//([^/@:]+)(?:@([^/@:]+))?(?:/(.*))?", url.place)
    if match is None:
        raise ValueError("write oci://bucket@namespace/prefix, or oci://bucket/prefix to have the namespace looked up")
    options = url.options(_OCI)[0]
    names = ("bucket_name", "namespace", "prefix")
    place = {name: unquote(text) for name, text in zip(names, match.groups(), strict=True) if text}
    if twice := [name for name in place if name in options]:
        raise ValueError(f"the option {twice[0]!r} is given twice")
    return _Target(_OCI, {**place, **options})


_SCHEMES: dict[str, Callable[[_Url], _Target]] = {
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


# ------------------------------------------------------------------------------------------------ options in a query

_ALIASES = {"table": "table_name", "endpoint": "endpoint_url", "region": "region_name"}

_NO_OPTIONS = frozenset(
    """
    base_dir bucket bucket_name database dsn host hosts password path port service_name url user username
    wallet_location wallet_password
    """.split()  # noqa: SIM905
)
"""Parameters of backends that are the URL's place, or parts of it."""


def _read_bool(name: str, value: str) -> bool:
    found = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if value.lower() not in found:
        raise ValueError(f"the option {name!r} must be true or false, got {value!r}")
    return found[value.lower()]


def _read_number(name: str, value: str, *, kind: type[int] | type[float]) -> int | float:
    try:
        return int(value) if re.fullmatch(r"[+-]?[0-9]+", value) else kind(value)
    except ValueError:
        wanted = "an integer" if kind is int else "a number"
        raise ValueError(f"the option {name!r} must be {wanted}, got {value!r}") from None


def _read_codec(name: str, value: str) -> ZlibCodec:
    if value != "zlib":
        raise ValueError(f"the option {name!r} must be 'zlib', got {value!r}")
    return ZlibCodec()


_READERS: dict[str, Callable[[str, str], Any]] = {
    "bool": _read_bool,
    "float": partial(_read_number, kind=float),
    "int": partial(_read_number, kind=int),
    "Codec": _read_codec,
    "str": lambda name, value: value,
}


def _option_readers(backend: type[Backend]) -> dict[str, Callable[[str, str], Any]]:
    """How the options that can be written as text are read, by name: what the constructors' annotations say."""
    readers: dict[str, Callable[[str, str], Any]] = {}
    for cls in backend.__mro__:
        if "__init__" not in vars(cls):
            continue
        parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
        for parameter in parameters:
            kinds = {re.sub(r"Literal\[.*", "str", kind.strip()) for kind in str(parameter.annotation).split("|")}
            reader = next((_READERS[kind] for kind in _READERS if kind in kinds), None)
            if reader is not None and parameter.name not in _NO_OPTIONS and parameter.kind is not parameter.VAR_KEYWORD:
                readers.setdefault(parameter.name, reader)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return readers


# ----------------------------------------------------------------------------------------------- names, as in the SDK


def register_checkpointer(name: str, factory: Callable[..., BaseCheckpointer]) -> None:
    """Give a factory of checkpointers a name for `get_checkpointer`; a name that is in use is given anew.

    Args:
        name: The name, without a colon.
        factory: Called with the keywords of `get_checkpointer`, and with ``config_hint`` if there is a hint.
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise ValueError(f"a checkpointer's name must be a str that is not empty and has no colon, got {name!r}")
    _CHECKPOINTERS[name] = factory


def get_checkpointer(checkpointer_string: str, **kwargs: Any) -> Any:
    """Make a checkpointer by name.

    Args:
        checkpointer_string: A name, or a name, a colon and a hint: ``file:folder``, ``sqlite:name.db``,
            ``postgresql:database``. A URL is taken as well, by itself or as a hint.
        **kwargs: Options of the checkpointer, which win over the hint, and ``state_type``.

    Raises:
        ValueError: The name is unknown.
    """
    name, _, hint = checkpointer_string.partition(":")
    factory = _CHECKPOINTERS.get(name)
    if factory is None:
        if hint.startswith("//") and name.lower() in _SCHEMES:
            return open_checkpointer(checkpointer_string, **kwargs)
        raise ValueError(
            f"Unknown checkpointer provider: {name!r}. Available providers: {list_checkpointers()}. "
            "Install optional dependencies, or make it known with register_checkpointer()."
        )
    if hint:
        kwargs["config_hint"] = hint
    return factory(**kwargs)


def list_checkpointers() -> list[str]:
    """The names that `get_checkpointer` knows, in the order in which they were registered."""
    return list(_CHECKPOINTERS)


def _made(
    driver: _Driver,
    parameter: str | None = None,
    *,
    config_hint: str | None = None,
    state_type: type[BaseModel] = AgentState,
    **options: Any,
) -> Checkpointer[Any]:
    """What the built-in names stand for.

    Args:
        driver: The driver.
        parameter: The parameter that a hint is for, or None if hints are ignored.
        config_hint: The hint.
        state_type: What to load.
        **options: Options of the checkpointer.
    """
    if config_hint is not None and parameter is not None:
        url = f"{driver.name}:{config_hint}" if config_hint.startswith("//") else config_hint
        target = _resolve(url) if "://" in url else _Target(driver, {parameter: config_hint})
        if target.driver is not driver:
            raise ValueError(f"the hint of {driver.name!r} is the URL of another kind of store")
        options = {**target.arguments, **options}
    return driver.checkpointer(state_type, options)


def _made_redis(*, config_hint: str | None = None, **options: Any) -> Checkpointer[Any]:
    """As the SDK has it, the hint may also be a host without a scheme."""
    if config_hint is not None and "//" not in config_hint:
        config_hint = f"redis://{config_hint}"
    return _made(_REDIS, "url", config_hint=config_hint, **options)


def _made_opensearch(*, config_hint: str | None = None, **options: Any) -> Checkpointer[Any]:
    """As the SDK has it, the hint is hosts, split at commas."""
    if config_hint is not None and config_hint.startswith(("http://", "https://")):
        return _made(_OPENSEARCH, **{"hosts": config_hint, **options})
    return _made(_OPENSEARCH, "hosts", config_hint=config_hint, **options)


def _made_oci(*, config_hint: str | None = None, **options: Any) -> Checkpointer[Any]:
    """As the SDK has it, the hint may also be a bucket, a slash and the namespace."""
    if config_hint is not None and "//" not in config_hint:
        config_hint = "oci://" + "@".join(filter(None, config_hint.split("/", 1)))
    return _made(_OCI, "bucket_name", config_hint=config_hint, **options)


_CHECKPOINTERS: dict[str, Callable[..., BaseCheckpointer]] = {
    "memory": partial(_made, _MEMORY),
    "file": partial(_made, _FILE, "base_dir"),
    "sqlite": partial(_made, _SQLITE, "path"),
    "postgresql": partial(_made, _POSTGRESQL, "database"),
    "mysql": partial(_made, _MYSQL, "database"),
    "oracle": partial(_made, _ORACLE, "dsn"),
    "redis": _made_redis,
    "opensearch": _made_opensearch,
    "s3": partial(_made, _S3, "bucket"),
    "oci": _made_oci,
}
