"""Values and ids that every backend must take, and those that every backend must refuse.

`assert_same` is what "comes back" means here: equal, of the same type, keys in the same order, down to the sign of a
zero, the digits of a Decimal and the zone of a datetime.
"""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

# --- what comes back --------------------------------------------------------------------------------------------------

IST = timezone(timedelta(hours=5, minutes=30))
BERLIN = ZoneInfo("Europe/Berlin")

VALUES: dict[str, Any] = {
    "none": None,
    "booleans": [True, False],
    "true beside one": [True, 1, 1.0, False, 0, 0.0],
    "small integers": [0, -1, 7, 2**31, -(2**31) - 1],
    "integers at 53 bits": [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1],
    "integers over 64 bits": [2**63, 2**64 + 1, -(2**64), 10**40, -(10**400)],
    "floats": [0.1, 1.0, -2.5e-308, 1.7976931348623157e308, 5e-324],
    "whole floats": [1.0, 1e16, 1e22, -3.0],
    "not finite": [math.nan, math.inf, -math.inf],
    "negative zero": [-0.0, 0.0],
    "text": ["", " ", "a", "é" * 300, "漢字", "🙂", "\u2028\u2029", "\ufeff", "\r\n\t\x01\x7f", "e\u0301"],
    "NUL": ["a\x00b", "\x00", "\\u0000"],
    "lone surrogates": ["x\ud800y", "\udfff", "\ud83d", "\ude00\ud83d"],
    "text that looks like JSON": ['{"a":1}', '"', "\\", "null", "NaN"],
    "bytes": [b"", b"\x89PNG\x00\xff", bytes(range(256)), b'{"a":1}'],
    "large bytes": b"\x00\xff\n" * 100_000,
    "empty containers": [[], (), {}, set(), frozenset()],
    "tuples": [(1, 2), (), ((1,), [2])],
    "sets": [{"a"}, {1, 2, 3}, frozenset({"x", (1, 2)}), {frozenset({1}), frozenset()}],
    "nested": {"a": {"b": [{"c": [[[]], {"d": None}]}]}},
    "key order": {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    "keys that are no text": {7: "int", 1.5: "float", True: "bool", None: "none", (1, "a"): "tuple", b"k": "bytes"},
    "dates as keys": {date(2026, 1, 2): 1, datetime(2026, 1, 2, tzinfo=UTC): 2, UUID(int=5): 3},
    "odd keys": {"": 1, " ": 2, "a.b": 3, "$": 4, "\x00": 5, "\ud800": 6, "é": 7, "__class__": 8},
    "naive datetimes": [datetime(2026, 1, 2, 3, 4, 5, 678901), datetime.min, datetime.max],
    "aware datetimes": [datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=IST), datetime(2026, 1, 2, tzinfo=UTC)],
    "named offsets": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3), "BRT")),
    "offsets with seconds": datetime(2026, 1, 2, tzinfo=timezone(timedelta(seconds=-12345))),
    "zones": [datetime(2026, 7, 2, tzinfo=BERLIN), datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)],
    "dates": [date(2026, 1, 2), date.min, date.max],
    "times": [time(3, 4, 5, 6), time(0, 0), time(1, 2, tzinfo=IST), time(2, 30, fold=1)],
    "timedeltas": [timedelta(days=-1, microseconds=1), timedelta.max, timedelta(0)],
    "decimals": [Decimal("1.10"), Decimal("-0"), Decimal("1E+5"), Decimal("Infinity"), Decimal("NaN")],
    "uuids": UUID("12345678-1234-5678-1234-567812345678"),
    "a mark of bytes": {"__bytes__": "aGk="},
    "marks like ours": [{"$bytes": "aGk="}, {"$tuple": [1, 2]}, {"$dict": [[1, 2]]}, {"$": 1}, {"$unknown": {}}],
    "marks beside keys": {"$bytes": "aGk=", "b": 1},
    "marks within marks": [({"$set": [1]},), {7: {"$float": "nan"}}],
    "a recipe for an object": {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}},
    "another recipe": {"py/object": "os.system", "__reduce__": ["os.system", ["true"]], "__type__": "Message"},
    "many kinds at once": {"at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=IST), "s": {"a"}, "t": (1, 2), 7: "k"},
    "deep": json.loads("[" * 150 + '"bottom"' + "]" * 150),
}
"""Each comes back as it is, wherever in a document it stands."""

METADATA_ONLY_REFUSES = {"not finite"}
"""Values that a document may hold, and metadata may not: no query could find them."""


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    A = "a"


class Text(str):
    __slots__ = ()


class Number(int):
    pass


Point = namedtuple("Point", "x y")


@dataclass
class Thing:
    a: int = 1


def _circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


REFUSED: dict[str, Callable[[], Any]] = {
    "a function": lambda: len,
    "a lambda": lambda: lambda: 1,
    "an object": object,
    "a class": lambda: int,
    "a generator": lambda: (i for i in ()),
    "a dataclass": Thing,
    "an enum": lambda: Colour.RED,
    "an integer enum": lambda: Level.LOW,
    "a text enum": lambda: Kind.A,
    "a subclass of str": lambda: Text("x"),
    "a subclass of int": lambda: Number(1),
    "a named tuple": lambda: Point(1, 2),
    "an ordered dict": lambda: OrderedDict(a=1),
    "a default dict": lambda: defaultdict(list),
    "a counter": lambda: Counter("a"),
    "a bounded deque": lambda: deque([1], maxlen=3),
    "a bytearray": lambda: bytearray(b"x"),
    "a memoryview": lambda: memoryview(b"x"),
    "a complex number": lambda: 1j,
    "a fraction": lambda: Fraction(1, 3),
    "a path": lambda: PurePosixPath("/tmp"),
    "an exception": lambda: ValueError("x"),
    "an ellipsis": lambda: ...,
    "a range": lambda: range(3),
    "what contains itself": _circle,
}
"""Each would not come back as what it is; made anew for each test."""


def assert_same(found: Any, expected: Any, path: str = "$") -> None:
    """Asserts that two values are equal to the last bit, and of the same types."""
    assert type(found) is type(expected), f"{path}: {type(found).__name__} instead of {type(expected).__name__}"
    match expected:
        case dict():
            assert len(found) == len(expected), f"{path}: {len(found)} keys instead of {len(expected)}"
            for a, b in zip(found, expected, strict=True):
                assert_same(a, b, f"{path} key")
                assert_same(found[a], expected[b], f"{path}[{b!r}]")
        case list() | tuple():
            assert len(found) == len(expected), f"{path}: {len(found)} elements instead of {len(expected)}"
            for i, (a, b) in enumerate(zip(found, expected, strict=True)):
                assert_same(a, b, f"{path}[{i}]")
        case set() | frozenset():
            assert found == expected, path
            assert sorted(map(_shown, found)) == sorted(map(_shown, expected)), path
        case float() | Decimal():
            assert repr(found) == repr(expected), path
        case datetime() | time():
            assert found.replace(tzinfo=None) == expected.replace(tzinfo=None), path
            assert found.fold == expected.fold, path
            assert type(found.tzinfo) is type(expected.tzinfo), path
            assert found.tzname() == expected.tzname(), path
            assert found.utcoffset() == expected.utcoffset(), path
        case _:
            assert found == expected, path


def _shown(value: Any) -> tuple[str, str]:
    members = sorted(map(_shown, value)) if isinstance(value, frozenset) else value
    return type(value).__name__, repr(members)


# --- ids --------------------------------------------------------------------------------------------------------------

_RANDOM = "q7Zk1Vd0XoT4aYpUe9RmLh3NfCwGbJsI6xB8vKyEtDzA2iHuM5rOgQlWcPnSFj-_"

IDS: list[str] = [
    "t",
    " ",
    "..",
    ".",
    "../../x",
    "/abs",
    "C:foo",
    "a\\b",
    "a/b",
    "agent:main:1",
    "con",
    "NUL",
    "trailing.",
    "trailing ",
    "-rf",
    "~",
    "$HOME",
    "%",
    "_",
    "100%",
    "user_1",
    "a*b?[c]",
    "'; DROP TABLE locus_store_threads; --",
    '"quoted"',
    "line\nbreak\ttab\r",
    "\x01\x1f\x7f",
    "Thread",
    "thread",
    "THREAD",
    "straße",
    "STRASSE",
    "ﬁ",
    "fi",
    "é",
    "e\u0301",
    "İ",
    "i\u0307",
    "会" * 100,
    "🙂" * 128,
    "x" * 250,
    _RANDOM * 8,
    _RANDOM * 7 + _RANDOM[::-1],
    ("é" + _RANDOM) * 7 + _RANDOM[:50],
    "\ufeff",
    "\u202egnp",
    "{a}b",
    "}",
    "{}",
    "null",
    "None",
    "0",
    "00",
    "true",
    "a.json",
    "a.tmp",
    "latest",
    "_latest",
    "default",
    "head",
]
"""Each names a thread, a checkpoint, a scope and a key of its own; none of them is another one."""

BAD_IDS: dict[str, tuple[Any, type[Exception]]] = {
    "empty": ("", ValueError),
    "NUL": ("a\x00b", ValueError),
    "a lone surrogate": ("x\ud800", ValueError),
    "513 bytes": (_RANDOM * 8 + "x", ValueError),
    "513 bytes in 257 characters": ("é" * 256 + "x", ValueError),
    "bytes": (b"t", TypeError),
    "a number": (5, TypeError),
    "a boolean": (True, TypeError),
    "a list": (["t"], TypeError),
}
"""Each is refused by every method of every backend, with this error, before anything is read or written."""
