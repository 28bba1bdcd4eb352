"""Values as text: strict JSON in UTF-8, with marks for what JSON lacks or would change.

A mark is an object with one key that begins with ``$``: ``{"$tuple":[1,2]}``, ``{"$bytes":"iVBORw=="}``. A user's dict
with exactly one such key is itself written as a mark (``$dict``), so it comes back as that dict. Equal values give
equal text, but for the order of a dict's keys, which is kept.

Nothing is imported, called or unpickled when text is read; a mark that is not known is an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo, from_json

from locus_store.core.errors import SerializationError
from locus_store.core.frames import MARKED, PLAIN, DamagedError, Entry

try:  # identical results for text without marks, in half the time
    from orjson import loads as _parse_plain
except ImportError:

    def _parse_plain(text: bytes) -> Any:
        return from_json(text, allow_inf_nan=False, cache_strings="keys")


MAX_DEPTH = 200
"""How deep values may be nested."""

_SAFE = 2**53
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_to_ascii = json.JSONEncoder(ensure_ascii=True).encode
Path = tuple[Any, ...]


def show_path(path: Path) -> str:
    """A path as people read it: ``$.messages[3].content``."""
    out = "$"
    for step in path:
        if type(step) is str and step.isidentifier():
            out += f".{step}"
        else:
            out += f"[{ascii(step) if type(step) is str else repr(step)}]"
    return out


def encode(value: Any, path: Path = ()) -> Entry:
    """Encode a value as one line of text.

    Raises:
        SerializationError: The value holds something that would not come back equal and of the same type; the error
            names where.
    """
    try:
        if _is_plain(value, 0):
            return Entry(_to_json(value).encode(), PLAIN)
    except UnicodeEncodeError:
        pass  # a lone surrogate, which a mark can hold
    except RecursionError as e:
        raise SerializationError(show_path(path), "nested too deeply for the stack that is left") from e
    try:
        return Entry(_to_json(_mark(value, path, 0)).encode(), MARKED)
    except RecursionError as e:
        raise SerializationError(show_path(path), "nested too deeply for the stack that is left") from e


def decode(entry: Entry) -> Any:
    """The value that `encode` was given; raises `DamagedError` if the text is not what it wrote."""
    return decode_all([entry.data], marked=entry.kind == MARKED)[0]


def decode_all(lines: Iterable[bytes], *, marked: bool) -> list[Any]:
    """Decode many lines in one call."""
    return decode_joined(b",".join(lines), marked=marked)


def decode_joined(text: bytes, *, marked: bool) -> list[Any]:
    """Decode lines that are joined by commas."""
    text = b"[%b]" % text
    try:
        if not marked:
            try:
                found = _parse_plain(text)
            except ValueError:  # nested more deeply than the fast parser goes, or damaged
                found = json.loads(text, parse_constant=_refuse)
        else:
            found = json.loads(text, object_hook=_unmark, parse_constant=_refuse)
    except RecursionError:
        raise
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as e:
        raise DamagedError("the text does not parse") from e
    return found  # type: ignore[no-any-return]  # an array was parsed


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ------------------------------------------------------------------------------------------------------------ writing


def _is_plain(value: Any, depth: int) -> bool:
    """Whether JSON can hold the value as it is."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        if depth > MAX_DEPTH or (len(value) == 1 and _looks_like_a_mark(next(iter(value)))):
            return False
        for key, item in value.items():
            if type(key) is not str:
                return False
            if type(item) is not str and not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list:
        return depth <= MAX_DEPTH and all([type(i) is str or _is_plain(i, depth + 1) for i in value])
    if kind is int:
        return -_SAFE <= value <= _SAFE
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
    if depth > MAX_DEPTH:
        raise SerializationError(
            show_path(path[:12]) + " …", f"nested more than {MAX_DEPTH} levels deep, or contains itself"
        )
    kind = type(value)
    if kind is str:
        return value if _encodable(value) else {"$str": _to_ascii(value)}
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_SAFE <= value <= _SAFE else {"$int": format(value, "x")}
    if kind is float:
        return value if isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [_mark(item, (*path, i), depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        return _mark_dict(value, path, depth)
    writer = _WRITERS.get(kind)
    if writer is None:
        raise SerializationError(show_path(path), _why_not(value))
    return writer(value, path, depth)


def _mark_dict(value: dict[Any, Any], path: Path, depth: int) -> Any:
    if all([type(k) is str and _encodable(k) for k in value]) and not (
        len(value) == 1 and _looks_like_a_mark(next(iter(value)))
    ):
        return {k: _mark(v, (*path, k), depth + 1) for k, v in value.items()}
    return {"$dict": [[_mark(k, (*path, k), depth + 1), _mark(v, (*path, k), depth + 1)] for k, v in value.items()]}


def _why_not(value: Any) -> str:
    name = type(value).__name__
    for known in (str, bool, int, float, dict, list, *_WRITERS):
        if isinstance(value, known):
            return (
                f"{name} is a subclass of {known.__name__} and would come back as {known.__name__}; convert it "
                f"with {known.__name__}(…) first"
            )
    return f"values of type {name} cannot be stored; convert it to plain data first"


def _sorted_items(value: Iterable[Any], path: Path, depth: int) -> list[Any]:
    items = [_mark(item, (*path, "<member>"), depth + 1) for item in value]
    return sorted(items, key=_to_json)


def _zone(value: tzinfo, path: Path) -> Any:
    kind = type(value)
    if kind is timezone:
        offset = value.utcoffset(None)
        name = value.tzname(None)
        seconds = [offset.days, offset.seconds, offset.microseconds]
        return ["offset", *seconds] if name == timezone(offset).tzname(None) else ["offset", *seconds, name]
    if kind is ZoneInfo and value.key is not None:  # type: ignore[attr-defined]
        return ["zone", value.key]  # type: ignore[attr-defined]
    if kind is TzInfo:
        offset = value.utcoffset(None)
        assert offset is not None
        return ["pydantic", offset.days * 86_400 + offset.seconds]
    raise SerializationError(show_path(path), f"a time zone of type {kind.__name__} cannot be stored; use zoneinfo")


def _write_datetime(value: datetime, path: Path, depth: int) -> Any:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    if value.tzinfo is None:
        return {"$datetime": [naive, value.fold]}
    return {"$datetime": [naive, value.fold, _zone(value.tzinfo, path)]}


def _write_time(value: time, path: Path, depth: int) -> Any:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    if value.tzinfo is None:
        return {"$time": [naive, value.fold]}
    return {"$time": [naive, value.fold, _zone(value.tzinfo, path)]}


_Writer = Callable[[Any, Path, int], Any]
_WRITERS: dict[type, _Writer] = {
    tuple: lambda v, p, d: {"$tuple": [_mark(item, (*p, i), d + 1) for i, item in enumerate(v)]},
    set: lambda v, p, d: {"$set": _sorted_items(v, p, d)},
    frozenset: lambda v, p, d: {"$frozenset": _sorted_items(v, p, d)},
    bytes: lambda v, p, d: {"$bytes": base64.b64encode(v).decode()},
    datetime: _write_datetime,
    date: lambda v, p, d: {"$date": v.isoformat()},
    time: _write_time,
    timedelta: lambda v, p, d: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    Decimal: lambda v, p, d: {"$decimal": str(v)},
    UUID: lambda v, p, d: {"$uuid": v.hex},
}

# ------------------------------------------------------------------------------------------------------------ reading


def _unmark(found: dict[str, Any]) -> Any:
    if len(found) == 1:
        ((key, value),) = found.items()
        if key[:1] == "$":
            return _READERS[key](value)
    return found


def _read_zone(value: list[Any]) -> tzinfo:
    if value[0] == "zone":
        return ZoneInfo(value[1])
    if value[0] == "pydantic":
        return TzInfo(value[1])
    days, seconds, microseconds, *name = value[1:]
    offset = timedelta(days, seconds, microseconds)
    return timezone(offset, *name) if name or offset else timezone.utc


def _read_datetime(value: list[Any]) -> datetime:
    zone = _read_zone(value[2]) if len(value) > 2 else None
    return datetime.fromisoformat(value[0]).replace(fold=value[1], tzinfo=zone)


def _read_time(value: list[Any]) -> time:
    zone = _read_zone(value[2]) if len(value) > 2 else None
    return time.fromisoformat(value[0]).replace(fold=value[1], tzinfo=zone)


def _read_timedelta(value: list[Any]) -> timedelta:
    return timedelta(*value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "$str": json.loads,
    "$int": lambda v: int(v, 16),
    "$float": float,
    "$dict": dict,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$bytes": base64.b64decode,
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": _read_timedelta,
    "$decimal": Decimal,
    "$uuid": UUID,
}
