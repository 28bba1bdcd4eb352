"""Marks: how text holds what JSON lacks, or would change.

A mark is an object with one key that begins with ``$``: ``{"$tuple":[1,2]}``, ``{"$bytes":"iVBORw=="}``. A user's dict
with exactly one such key is itself written as a mark (``$dict``), so it comes back as that dict.
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
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic_core import TzInfo

from locus_store.core.errors import SerializationError
from locus_store.core.paths import KEY, MEMBER, Path, show_path

MAX_DEPTH = 200
"""How deep values may be nested."""
SAFE = 2**53
"""JSON's numbers are exact up to here."""

to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode


def looks_like_a_mark(key: Any) -> bool:
    """Whether a dict that has this key alone would be taken for a mark."""
    return bool(type(key) is str and key[:1] == "$")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def mark(value: Any, path: Path, depth: int) -> Any:
    """The value with marks where JSON needs them.

    Args:
        value: The value.
        path: Where it is, for the error.
        depth: How many containers it is in.

    Raises:
        SerializationError: It holds what no mark is for.
    """
    kind = type(value)
    if kind is str:
        if value.isascii() or _encodable(value):
            return value
        # Not JSON's own escapes: two lone surrogates side by side would come back as one character.
        return {"$str": value.encode("unicode_escape").decode("ascii")}
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -SAFE <= value <= SAFE else {"$int": format(value, "x")}
    if kind is float:
        return value if isfinite(value) else {"$float": repr(value)}
    if depth > MAX_DEPTH:
        raise SerializationError(
            show_path(path[:12]) + " …", f"nested more than {MAX_DEPTH} levels deep, or contains itself"
        )
    if kind is list:
        return [mark(item, (*path, i), depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        return _mark_dict(value, path, depth)
    writer = _WRITERS.get(kind)
    if writer is None:
        raise SerializationError(show_path(path), why_not(value))
    return writer(value, path, depth)


def _mark_dict(value: dict[Any, Any], path: Path, depth: int) -> Any:
    if all([type(k) is str and (k.isascii() or _encodable(k)) for k in value]) and not (
        len(value) == 1 and looks_like_a_mark(next(iter(value)))
    ):
        return {k: mark(v, (*path, k), depth + 1) for k, v in value.items()}
    return {"$dict": [[mark(k, (*path, KEY), depth + 1), mark(v, (*path, k), depth + 1)] for k, v in value.items()]}


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
    items = [mark(item, (*path, MEMBER), depth + 1) for item in value]
    return sorted(items) if all([type(i) is str for i in items]) else sorted(items, key=to_json)


def _zone(value: tzinfo, path: Path) -> list[Any]:
    kind = type(value)
    if kind is timezone:
        offset = value.utcoffset(None) or timedelta(0)
        name = value.tzname(None)
        seconds = [offset.days, offset.seconds, offset.microseconds]
        if name == timezone(offset).tzname(None):
            return ["offset", *seconds]
        return ["offset", *seconds, mark(name, path, 0)]
    if kind is TzInfo:
        offset = value.utcoffset(None) or timedelta(0)
        return ["pydantic", offset.days * 86_400 + offset.seconds]
    if isinstance(value, ZoneInfo) and kind is ZoneInfo and value.key is not None:
        try:
            ZoneInfo(value.key)
        except (ZoneInfoNotFoundError, ValueError) as e:  # it was made from a file, under a name of its own
            raise SerializationError(show_path(path), f"the time zone {value.key!r} is not one that is known") from e
        return ["zone", value.key]
    raise SerializationError(show_path(path), f"a time zone of type {kind.__name__} cannot be stored; use zoneinfo")


def _write_time(name: str, value: Any, path: Path) -> dict[str, Any]:
    """A datetime or a time."""
    zone = value.tzinfo
    if zone is None and not value.fold:
        return {name: [value.isoformat(), 0]}
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return {name: [naive, value.fold] if zone is None else [naive, value.fold, _zone(zone, path)]}


_Writer = Callable[[Any, Path, int], Any]
_WRITERS: dict[type, _Writer] = {
    tuple: lambda v, p, d: {"$tuple": [mark(item, (*p, i), d + 1) for i, item in enumerate(v)]},
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


def unmark(value: Any) -> Any:
    """A parsed value with what its marks stand for, changed in place where it can be.

    It raises one of many errors if the marks are not what `mark` makes.
    """
    if type(value) is list:
        for i, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                value[i] = unmark(item)
        return value
    if type(value) is dict:
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                value[key] = unmark(item)
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
