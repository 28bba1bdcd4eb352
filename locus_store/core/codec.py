"""Values as text: strict JSON in UTF-8, with `marks` for what JSON lacks or would change.

Equal values of the same types give equal text, but for the order of a dict's keys, which is kept. Nothing is imported,
called or unpickled when text is read; a mark that is not known is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from pydantic_core import from_json

from locus_store.core.errors import SerializationError
from locus_store.core.frames import (
    MARKED,
    PLAIN,
    RAW,
    Body,
    DamagedError,
    Entry,
    Lines,
    Taken,
    UnknownFormatError,
)
from locus_store.core.marks import MAX_DEPTH, SAFE, looks_like_a_mark, mark, to_json, unmark
from locus_store.core.paths import Path, show_path

_parse: Callable[[bytes], Any] = partial(from_json, allow_inf_nan=False, cache_strings="keys")
with suppress(ImportError):  # identical results for text of ours, in half the time
    from orjson import loads as _parse

_MARK = b'{"$'
"""How a mark begins; the text of plain values holds it only where a dict's first key begins with ``$``."""
_AT_ONCE = 64 * 1024
"""Lines are decoded in portions of so many bytes: larger ones cost more to copy than they save in calls."""


def encode(value: Any, path: Path = ()) -> Entry:
    """Encode a value as one line of text.

    Args:
        value: The value.
        path: Where it is, for the error.

    Raises:
        SerializationError: The value holds something that would not come back equal and of the same type; the error
            names where.
    """
    try:
        try:
            if _is_plain(value, 0):
                return Entry(to_json(value).encode(), PLAIN)
        except UnicodeEncodeError:
            pass  # a lone surrogate, which a mark can hold
        return Entry(to_json(mark(value, path, 0)).encode(), MARKED)
    except RecursionError as e:
        raise SerializationError(show_path(path), "nested too deeply for the stack that is left") from e


def encode_entry(value: Any, path: Path = ()) -> Entry:
    """Encode one element of a list; bytes are kept as they are.

    Args:
        value: The element.
        path: Where it is, for the error.

    Raises:
        SerializationError: As `encode` does.
    """
    if type(value) is bytes:
        return Entry(value, RAW)
    return encode(value, path)


def decode(entry: Entry) -> Any:
    """The value that `encode` or `encode_entry` was given.

    Raises:
        DamagedError: The text is not what they wrote.
        UnknownFormatError: It names a time zone that this system does not know.
    """
    found = decode_entries([entry])
    if len(found) != 1:
        raise DamagedError("the text is not one value")
    return found[0]


def decode_entries(entries: Sequence[Entry]) -> list[Any]:
    """Decode many entries, in as few calls as possible; raises what `decode` does."""
    kinds = {e.kind for e in entries}
    if kinds <= {PLAIN, MARKED}:
        return _decode_array(b"[%b]" % b",\n".join([e.data for e in entries]), MARKED in kinds)
    if not kinds <= {PLAIN, MARKED, RAW}:
        raise DamagedError("an entry was removed that is still referred to")
    return [e.data if e.kind == RAW else decode(e) for e in entries]


def decode_all(parts: Iterable[Taken]) -> list[Any]:
    """Decode the entries of a list, frame by frame; raises what `decode` does."""
    found: list[Any] = []
    some: list[Body] = []
    size, marked = 0, False
    for part in parts:
        lines = isinstance(part, Lines) and not part.array
        if some and (not lines or size > _AT_ONCE):
            found += _decode_array(_as_array(some), marked)
            some, size, marked = [], 0, False
        if not isinstance(part, Lines):
            found += decode_entries(part)
        elif part.array:
            found += _decode_array(bytes(part.text), part.kind == MARKED)
        else:
            some.append(part.text)
            size += len(part.text)
            marked |= part.kind == MARKED
    if some:
        found += _decode_array(_as_array(some), marked)
    return found


def _as_array(pieces: Sequence[Body]) -> bytes:
    """Lines, which all end in a newline, as an array with one element a line."""
    return b"[%b]" % b"".join(pieces)[:-1].replace(b"\n", b",\n")


def _decode_array(text: bytes, marked: bool) -> list[Any]:
    """Decode an array with one element a line; ``marked`` says whether there may be marks in it."""
    try:
        try:
            found: list[Any] = _parse(text)
        except ValueError:  # nested more deeply than the fast parser goes, or damaged
            found = json.loads(text, parse_constant=_refuse)
        if marked and _MARK in text:
            for i, line in enumerate(text.split(b"\n")):
                if _MARK in line:
                    found[i] = unmark(found[i])
    except ZoneInfoNotFoundError as e:
        raise UnknownFormatError(
            f"it holds a time of the zone {e.args[-1]!r}, which this system does not know; install the package tzdata"
        ) from e
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as e:
        raise DamagedError("the text does not parse") from e
    return found


def _is_plain(value: Any, depth: int) -> bool:
    """Whether JSON can hold the value as it is.

    It stops at the first thing that it cannot, so that what contains itself many times over ends it at once.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        if depth > MAX_DEPTH or (len(value) == 1 and looks_like_a_mark(next(iter(value)))):
            return False
        for key, item in value.items():
            if type(key) is not str or (type(item) is not str and not _is_plain(item, depth + 1)):
                return False
        return True
    if kind is list:
        if depth > MAX_DEPTH:
            return False
        for item in value:  # noqa: SIM110  # twice as fast as all() over a generator
            if type(item) is not str and not _is_plain(item, depth + 1):
                return False
        return True
    if kind is int:
        return bool(-SAFE <= value <= SAFE)
    return kind is float and isfinite(value)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
