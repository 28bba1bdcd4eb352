"""A URL taken apart, and the options in its query, read as the constructors' annotations say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from locus_store.core.backend import Backend
from locus_store.core.compression import ZlibCodec


class Parameter(NamedTuple):
    """One option of a query: its name, its value, and both as they were written."""

    name: str
    value: str
    text: str


class Url(NamedTuple):
    """A URL taken apart.

    Attributes:
        scheme: In lower case.
        place: What lies between the scheme's colon and the query, as written.
        parameters: The options of the query.
    """

    scheme: str
    place: str
    parameters: tuple[Parameter, ...]

    def options(self, backend: type[Backend], client: Collection[str] = ()) -> tuple[dict[str, Any], list[str]]:
        """The backend's options, and, as written, what goes to the client.

        Args:
            backend: Its parameters are the options.
            client: The names of what the client takes.
        """
        readers = _option_readers(backend)
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
            raise ValueError(f"{backend.__name__} has no option {', '.join(map(repr, unknown))}; known: {known}")
        return found, passed


# The underscore is in no RFC, but in SQLAlchemy's names of drivers.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*):(.*)", re.S)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def parse(url: str) -> Url:
    """Take a URL apart.

    Raises:
        ValueError: It has no scheme, or its query is no list of options.
    """
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
        parameters.append(Parameter(name, unquote_plus(value), text))
    return Url(match[1].lower(), place, tuple(parameters))


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
