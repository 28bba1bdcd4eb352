"""Values as text: strict JSON in UTF-8, with marks for what JSON lacks or would change.

A mark is an object with one key that begins with ``$``: ``{"$tuple":[1,2]}``, ``{"$bytes":"iVBORw=="}``. A user's dict
with exactly one such key is itself written as a mark (``$dict``), so it comes back as that dict. Equal values of the
same types give equal text, but for the order of a dict's keys, which is kept.

Nothing is imported, called or unpickled when text is read; a mark that is not known is an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic_core import TzInfo, from_json

from locus_store.core.errors import SerializationError
from locus_store.core.frames import MARKED, PLAIN, RAW, DamagedError, Entry, UnknownFormatError

_parse: Callable[[bytes], Any] = partial(from_json, allow_inf_nan=False, cache_strings="keys")
with suppress(ImportError):  # identical results for text of ours, in half the time
    from orjson import loads as _parse


MAX_DEPTH = 200
"""How deep values may be nested."""

_SAFE = 2**53
_MARK = b'{"$'
"""How a mark begins; the text of plain values holds it only where a dict's first key begins with ``$``."""
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode
_LONGEST_STEP = 80
_AT_ONCE = 64 * 1024
"""Lines are decoded in portions of so many bytes: larger ones cost more to copy than they save in calls."""
Path = tuple[Any, ...]


class Label(str):
    """A step of a path that is no key or index: a member of a set, a key."""

    __slots__ = ()


MEMBER, KEY = Label("member"), Label("key")


def show_path(path: Path) -> str:
    """A path as people read it: ``$.messages[3].content``."""
    return "$" + "".join(map(_show_step, path))


def _show_step(step: Any) -> str:
    if type(step) is Label:
        return f".<{step}>"
    if type(step) is str and step.isidentifier() and len(step) <= _LONGEST_STEP:
        return f".{step}"
    try:
        text = ascii(step)
    except Exception:  # somebody's __repr__, or an integer of more digits than Python shows
        text = f"<{type(step).__name__}>"
    return f"[{text}]" if len(text) <= _LONGEST_STEP else f"[{text[:_LONGEST_STEP]}…]"


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
                return Entry(_to_json(value).encode(), PLAIN)
        except UnicodeEncodeError:
            pass  # a lone surrogate, which a mark can hold
        return Entry(_to_json(_mark(value, path, 0)).encode(), MARKED)
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
        return decode_lines([e.data + b"\n" for e in entries], marked=MARKED in kinds)
    if not kinds <= {PLAIN, MARKED, RAW}:
        raise DamagedError("an entry was removed that is still referred to")
    return [e.data if e.kind == RAW else decode(e) for e in entries]


def decode_lines(pieces: Iterable[bytes | memoryview], *, marked: bool) -> list[Any]:
    """Decode lines; raises what `decode` does.

    Args:
        pieces: Some lines each, which all end in a newline.
        marked: Whether there may be marks in them.
    """
    found: list[Any] = []
    some: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece)
        if size > _AT_ONCE:
            found += _decode_lines(b"".join(some), marked)
            some.clear()
            size = 0
    found += _decode_lines(b"".join(some), marked)
    return found


def _decode_lines(lines: bytes, marked: bool) -> list[Any]:
    text = b"[%b]" % lines[:-1].replace(b"\n", b",")
    try:
        try:
            found: list[Any] = _parse(text)
        except ValueError:  # nested more deeply than the fast parser goes, or damaged
            found = json.loads(text, parse_constant=_refuse)
        if marked and _MARK in lines:
            for i, line in enumerate(lines.split(b"\n")):
                if _MARK in line:
                    found[i] = _unmark(found[i])
    except ZoneInfoNotFoundError as e:
        raise UnknownFormatError(
            f"it holds a time of the zone {e.args[-1]!r}, which this system does not know; install the package tzdata"
        ) from e
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as e:
        raise DamagedError("the text does not parse") from e
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ------------------------------------------------------------------------------------------------------------ writing


def _is_plain(value: Any, depth: int) -> bool:
    """Whether JSON can hold the value as it is.

    It stops at the first thing that it cannot, so that what contains itself many times over ends it at once.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        if depth > MAX_DEPTH or (len(value) == 1 and _looks_like_a_mark(next(iter(value)))):
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
        return bool(-_SAFE <= value <= _SAFE)
    return kind is float and isfinite(value)


def _looks_like_a_mark(key: Any) -> bool:
    return type(key) is str and key[:1] == "$"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mark(value: Any, path: Path, depth: int) -> Any:
    """The value with marks where JSON needs them."""
    kind = type(value)
    if kind is str:
        # Not JSON's own escapes: two lone surrogates side by side would come back as one character.
        return value if _encodable(value) else {"$str": value.encode("unicode_escape").decode("ascii")}
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_SAFE <= value <= _SAFE else {"$int": format(value, "x")}
    if kind is float:
        return value if isfinite(value) else {"$float": repr(value)}
    if depth > MAX_DEPTH:
        raise SerializationError(
            show_path(path[:12]) + " …", f"nested more than {MAX_DEPTH} levels deep, or contains itself"
        )
    if kind is list:
        return [_mark(item, (*path, i), depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        return _mark_dict(value, path, depth)
    writer = _WRITERS.get(kind)
    if writer is None:
        raise SerializationError(show_path(path), why_not(value))
    return writer(value, path, depth)


def _mark_dict(value: dict[Any, Any], path: Path, depth: int) -> Any:
    if all([type(k) is str and _encodable(k) for k in value]) and not (
        len(value) == 1 and _looks_like_a_mark(next(iter(value)))
    ):
        return {k: _mark(v, (*path, k), depth + 1) for k, v in value.items()}
    return {"$dict": [[_mark(k, (*path, KEY), depth + 1), _mark(v, (*path, k), depth + 1)] for k, v in value.items()]}


def why_not(value: Any) -> str:
    """Why a value of another type cannot be stored, and what to do."""
    name = type(value).__name__
    for known in (str, bool, int, float, dict, list, *_WRITERS):
        if isinstance(value, known):
            return (
                f"{name} is a subclass of {known.__name__} and would come back as {known.__name__}; convert it "
                f"with {known.__name__}(…) first"
            )
    return f"values of type {name} cannot be stored; convert it to plain data first"


def _members(value: Iterable[Any], path: Path, depth: int) -> list[Any]:
    """The members of a set in an order that depends on nothing but them."""
    items = [_mark(item, (*path, MEMBER), depth + 1) for item in value]
    return sorted(items) if all([type(i) is str for i in items]) else sorted(items, key=_to_json)


def _zone(value: tzinfo, path: Path) -> list[Any]:
    kind = type(value)
    if kind is timezone:
        offset = value.utcoffset(None)
        name = value.tzname(None)
        assert offset is not None
        seconds = [offset.days, offset.seconds, offset.microseconds]
        if name == timezone(offset).tzname(None):
            return ["offset", *seconds]
        return ["offset", *seconds, _mark(name, path, 0)]
    if kind is TzInfo:
        offset = value.utcoffset(None)
        assert offset is not None
        return ["pydantic", offset.days * 86_400 + offset.seconds]
    if isinstance(value, ZoneInfo) and kind is ZoneInfo and value.key is not None:
        try:
            ZoneInfo(value.key)
        except (ZoneInfoNotFoundError, ValueError) as e:  # it was made from a file, under a name of its own
            raise SerializationError(show_path(path), f"the time zone {value.key!r} is not one that is known") from e
        return ["zone", value.key]
    raise SerializationError(show_path(path), f"a time zone of type {kind.__name__} cannot be stored; use zoneinfo")


def _write_time(mark: str, value: Any, path: Path) -> dict[str, Any]:
    """A datetime or a time."""
    zone = value.tzinfo
    if zone is None and not value.fold:
        return {mark: [value.isoformat(), 0]}
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return {mark: [naive, value.fold] if zone is None else [naive, value.fold, _zone(zone, path)]}


_Writer = Callable[[Any, Path, int], Any]
_WRITERS: dict[type, _Writer] = {
    tuple: lambda v, p, d: {"$tuple": [_mark(item, (*p, i), d + 1) for i, item in enumerate(v)]},
    set: lambda v, p, d: {"$set": _members(v, p, d)},
    frozenset: lambda v, p, d: {"$frozenset": _members(v, p, d)},
    bytes: lambda v, p, d: {"$bytes": base64.b64encode(v).decode()},
    datetime: lambda v, p, d: _write_time("$datetime", v, p),
    date: lambda v, p, d: {"$date": v.isoformat()},
    time: lambda v, p, d: _write_time("$time", v, p),
    timedelta: lambda v, p, d: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    Decimal: lambda v, p, d: {"$decimal": str(v)},
    UUID: lambda v, p, d: {"$uuid": v.hex},
}

# ------------------------------------------------------------------------------------------------------------ reading


def _unmark(value: Any) -> Any:
    """A parsed value with what its marks stand for, changed in place where it can be."""
    if type(value) is list:
        for i, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                value[i] = _unmark(item)
        return value
    if type(value) is dict:
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                value[key] = _unmark(item)
        if len(value) == 1:
            ((key, item),) = value.items()
            if key[:1] == "$":
                return _READERS[key](item)
    return value


def _read_zone(value: list[Any]) -> tzinfo:
    if value[0] == "zone":
        return ZoneInfo(value[1])
    if value[0] == "pydantic":
        return TzInfo(value[1])
    if value[0] != "offset":
        raise ValueError("an unknown kind of time zone")
    days, seconds, microseconds, *name = value[1:]
    return timezone(timedelta(days, seconds, microseconds), *name)


def _read_datetime(value: list[Any]) -> datetime:
    zone = _read_zone(value[2]) if len(value) > 2 else None
    return datetime.fromisoformat(value[0]).replace(fold=value[1], tzinfo=zone)


def _read_time(value: list[Any]) -> time:
    zone = _read_zone(value[2]) if len(value) > 2 else None
    return time.fromisoformat(value[0]).replace(fold=value[1], tzinfo=zone)


_READERS: dict[str, Callable[[Any], Any]] = {
    "$str": lambda v: v.encode("ascii").decode("unicode_escape"),
    "$int": lambda v: int(v, 16),
    "$float": float,
    "$dict": dict,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$bytes": lambda v: base64.b64decode(v, validate=True),
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda v: timedelta(*v),
    "$decimal": Decimal,
    "$uuid": UUID,
}
