"""Stores by URL (see `locus_store.schemes`), and by the short names of the locus SDK."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from locus_store import schemes
from locus_store.core.backend import Backend
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.protocols import BaseCheckpointer
from locus_store.core.state import AgentState
from locus_store.schemes import Driver, Target

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


def _resolve(url: str | None) -> Target:
    return schemes.resolve((os.environ.get(ENVIRONMENT) or DEFAULT_URL) if url is None else url)


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
        if hint.startswith("//") and name.lower() in schemes.SCHEMES:
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
    driver: Driver,
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
        target = _resolve(url) if "://" in url else Target(driver, {parameter: config_hint})
        if target.driver is not driver:
            raise ValueError(f"the hint of {driver.name!r} is the URL of another kind of store")
        options = {**target.arguments, **options}
    return driver.checkpointer(state_type, options)


def _made_redis(*, config_hint: str | None = None, **options: Any) -> Checkpointer[Any]:
    """As the SDK has it, the hint may also be a host without a scheme."""
    if config_hint is not None and "//" not in config_hint:
        config_hint = f"redis://{config_hint}"
    return _made(schemes.REDIS, "url", config_hint=config_hint, **options)


def _made_opensearch(*, config_hint: str | None = None, **options: Any) -> Checkpointer[Any]:
    """As the SDK has it, the hint is hosts, split at commas."""
    if config_hint is not None and config_hint.startswith(("http://", "https://")):
        return _made(schemes.OPENSEARCH, **{"hosts": config_hint, **options})
    return _made(schemes.OPENSEARCH, "hosts", config_hint=config_hint, **options)


def _made_oci(*, config_hint: str | None = None, **options: Any) -> Checkpointer[Any]:
    """As the SDK has it, the hint may also be a bucket, a slash and the namespace."""
    if config_hint is not None and "//" not in config_hint:
        config_hint = "oci://" + "@".join(filter(None, config_hint.split("/", 1)))
    return _made(schemes.OCI, "bucket_name", config_hint=config_hint, **options)


_CHECKPOINTERS: dict[str, Callable[..., BaseCheckpointer]] = {
    "memory": partial(_made, schemes.MEMORY),
    "file": partial(_made, schemes.FILE, "base_dir"),
    "sqlite": partial(_made, schemes.SQLITE, "path"),
    "postgresql": partial(_made, schemes.POSTGRESQL, "database"),
    "mysql": partial(_made, schemes.MYSQL, "database"),
    "oracle": partial(_made, schemes.ORACLE, "dsn"),
    "redis": _made_redis,
    "opensearch": _made_opensearch,
    "s3": partial(_made, schemes.S3, "bucket"),
    "oci": _made_oci,
}
