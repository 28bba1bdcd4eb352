"""Values as text: everything comes back equal and with the same types, or is refused by its path."""

from __future__ import annotations

import array
import builtins
import enum
import importlib
import io
import json
import random
import sys
import uuid
import zoneinfo
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from exactness import any_text, assert_exact, differs, hashables, values
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from locus_store.core import codec
from locus_store.core.codec import decode, decode_entries, encode, encode_entry
from locus_store.core.errors import SerializationError
from locus_store.core.frames import MARKED, PLAIN, RAW, DamagedError, Entry, UnknownFormatError
from locus_store.core.marks import MAX_DEPTH

PARSERS = {
    "pydantic": partial(from_json, allow_inf_nan=False, cache_strings="keys"),
    "json": partial(json.loads, parse_constant=codec._refuse),
    "orjson": pytest.importorskip("orjson").loads,
}


@pytest.fixture(params=list(PARSERS))
def parser(request, monkeypatch):
    """Each library that may parse; what is stored and what is read must not depend on which one it is."""
    monkeypatch.setattr(codec, "_parse", PARSERS[request.param])


def comes_back(value: Any) -> None:
    entry = encode(value)
    assert b"\n" not in entry.data
    json.loads(entry.data, parse_constant=pytest.fail)
    for parse in PARSERS.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codec, "_parse", parse)
            assert_exact(decode(entry), value)


law = given(values)(comes_back)
test_every_value_comes_back_with_every_parser = settings(max_examples=400)(law)
test_every_value_comes_back_long = pytest.mark.endurance(settings(max_examples=3_000)(given(values)(comes_back)))


@settings(max_examples=200)
@given(st.lists(values, max_size=6))
def test_many_entries_decode_as_each_alone(items):
    found = decode_entries([encode_entry(item) for item in items])
    assert_exact(found, items)


@given(st.lists(hashables, max_size=6), st.randoms())
def test_sets_that_are_equal_give_equal_text_whatever_their_order(members, chance):
    turned = list(members)
    chance.shuffle(turned)
    one, other = set(members), set(turned)
    if differs(other, one) is None:  # of members that are equal but not the same, the first one stays
        assert encode(one) == encode(other)
        assert encode([frozenset(one)]) == encode([frozenset(other)])


def test_equal_dicts_with_their_keys_in_another_order_give_other_text():
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (1, 1.0),
        (0.0, -0.0),
        (b"a", "a"),
        ([1], (1,)),
        ({1}, frozenset({1})),
        (Decimal("1.1"), Decimal("1.10")),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))),
        (datetime(2026, 10, 25, 2, 30), datetime(2026, 10, 25, 2, 30, fold=1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_what_is_only_equal_gives_other_text(one, other):
    assert encode(one) != encode(other)
    assert encode({"v": [one]}) != encode({"v": [other]})


def test_integers_of_more_digits_than_python_shows(parser):
    for n in (10**4299, 10**4300, -(10**20_000), 2**100_000 + 1):
        assert decode(encode({"n": n})) == {"n": n}


@given(any_text, any_text)
def test_lone_surrogates_stay_apart(first, second):
    """Two surrogates side by side are two characters, not one."""
    for text in ("\ud83d" + first + "\ude00", "\ud83d\ude00" + second, "\ude00\ud83d"):
        assert_exact(decode(encode({text: [text]})), {text: [text]})


def test_dicts_that_look_like_marks_at_every_depth(parser):
    value: Any = {"$tuple": [1]}
    for _ in range(40):
        value = {"$dict": [value, {"$bytes": "aGk="}]}
        assert_exact(decode(encode(value)), value)


def test_plain_values_need_no_marks():
    value = {"role": "user", "content": "é\u2028漢", "n": 1, "f": 1.5, "x": None, "l": [True, {"$a": 1, "b": 2}]}
    assert encode(value) == Entry(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), PLAIN)
    assert encode({"t": (1,)}) == Entry(b'{"t":{"$tuple":[1]}}', MARKED)
    assert encode_entry(b"\n\x00") == Entry(b"\n\x00", RAW)


def test_the_parser_does_not_matter(parser):
    rng = random.Random(3)
    for _ in range(300):
        value = [rng.uniform(-1, 1) * 10 ** rng.randint(-320, 308), rng.getrandbits(rng.randint(1, 80)), "\x7f\x1f"]
        assert_exact(decode(encode(value)), value)


# --- what is refused --------------------------------------------------------------------------------------------------


class Zone(tzinfo):
    def utcoffset(self, when):
        return timedelta(hours=1)

    def dst(self, when):
        return None

    def tzname(self, when):
        return "Zone"


class OwnZone(ZoneInfo):
    pass


def subclass(of: type, *arguments: Any) -> Any:
    made = type(f"My{of.__name__.title()}", (of,), {})
    return made(*arguments)


class Shouts:
    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


SUBCLASSES = {
    str: ("x",),
    int: (1,),
    float: (1.0,),
    bytes: (b"x",),
    list: ([1],),
    dict: ({"a": 1},),
    tuple: ((1,),),
    set: ({1},),
    frozenset: ({1},),
    datetime: (2026, 1, 1),
    date: (2026, 1, 1),
    time: (1,),
    timedelta: (1,),
    Decimal: ("1",),
    uuid.UUID: ("12345678123456781234567812345678",),
}
Point = namedtuple("Point", "x")
OTHERS: dict[str, Callable[[], Any]] = {
    "function": lambda: len,
    "lambda": lambda: lambda: None,
    "class": lambda: int,
    "module": lambda: json,
    "object": object,
    "object with a repr that fails": Shouts,
    "enum": lambda: enum.Enum("Colour", "RED").RED,  # type: ignore[attr-defined]
    "text enum": lambda: enum.StrEnum("Colour", "RED").RED,  # type: ignore[attr-defined]
    "int enum": lambda: enum.IntEnum("Colour", "RED").RED,  # type: ignore[attr-defined]
    "named tuple": lambda: Point(1),
    "ordered dict": lambda: OrderedDict(a=1),
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"x"),
    "array": lambda: array.array("b", b"x"),
    "complex": lambda: 1j,
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "path": lambda: Path("x"),
    "generator": lambda: (i for i in ()),
    "datetime of a zone of one's own": lambda: datetime(2026, 1, 1, tzinfo=Zone()),
    "time of a zone of one's own": lambda: time(1, tzinfo=Zone()),
    "datetime of a subclass of ZoneInfo": lambda: datetime(2026, 1, 1, tzinfo=OwnZone("Europe/Berlin")),
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "$": lambda v: v,
    "$.a": lambda v: {"z": 1, "a": v},
    "$[2]": lambda v: [1, "x", v],
    "$.a[1].b": lambda v: {"a": (1, {"b": v})},
    "$['a b'][7]": lambda v: {"a b": {7: v}},
    "$[(1, 'x')]": lambda v: {(1, "x"): v},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", SUBCLASSES)
def test_subclasses_are_refused_where_they_are(kind, place):
    with pytest.raises(SerializationError) as caught:
        encode(PLACES[place](subclass(kind, *SUBCLASSES[kind])))
    assert caught.value.path == place
    assert kind.__name__ in caught.value.reason
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_refused_where_it_is(name, place):
    with pytest.raises(SerializationError) as caught:
        encode(PLACES[place](OTHERS[name]()))
    assert caught.value.path == place


@pytest.mark.parametrize("kind", [str, int, float, bytes, tuple, frozenset, Decimal])
def test_keys_and_members_are_refused_as_values_are(kind):
    odd = subclass(kind, *SUBCLASSES[kind])
    with pytest.raises(SerializationError) as caught:
        encode({"a": {odd: 1}})
    assert caught.value.path == "$.a.<key>"
    with pytest.raises(SerializationError) as caught:
        encode({"a": {odd}})
    assert caught.value.path == "$.a.<member>"


def test_a_key_whose_repr_fails_is_no_other_error():
    for document in ({Shouts(): 1}, {"a": {Shouts(): {"b": len}}}, {10**5000: len}):
        with pytest.raises(SerializationError):
            encode(document)


def test_a_path_holds_no_payload():
    with pytest.raises(SerializationError) as caught:
        encode({"x" * 10_000: len})
    assert len(str(caught.value)) < 400


def test_a_zone_that_only_has_a_name_is_refused():
    """It was made from a file; nobody could look it up again."""
    for root in zoneinfo.TZPATH:
        if (Path(root) / "UTC").exists():
            data = (Path(root) / "UTC").read_bytes()
            break
    else:
        pytest.skip("no zone files on this system")
    zone = ZoneInfo.from_file(io.BytesIO(data), key="Nowhere/Known")
    with pytest.raises(SerializationError, match="Nowhere/Known"):
        encode({"at": datetime(2026, 1, 1, tzinfo=zone)})
    with pytest.raises(SerializationError):
        encode({"at": datetime(2026, 1, 1, tzinfo=ZoneInfo.from_file(io.BytesIO(data)))})


def test_a_zone_that_this_system_lacks_is_no_damage():
    """The text is what was written; another system can read it."""
    entry = encode({"at": datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))})
    with pytest.raises(UnknownFormatError, match="tzdata"):
        decode(Entry(entry.data.replace(b"Berlin", b"Atlant"), entry.kind))


# --- depth ------------------------------------------------------------------------------------------------------------


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda v: [v],
    "tuples": lambda v: (v,),
    "dicts": lambda v: {"a": v},
    "dicts like marks": lambda v: {"$a": v},
    "dicts with other keys": lambda v: {1: v},
    "frozensets": lambda v: frozenset({v}),
}


@pytest.mark.parametrize("wrap", WRAPS)
def test_deep_values_come_back_or_are_refused_by_path(wrap, parser):
    assert_exact(decode(encode(nested(100, WRAPS[wrap]))), nested(100, WRAPS[wrap]))
    for levels in (MAX_DEPTH + 2, 5000):
        if wrap == "frozensets" and levels == 5000:
            continue  # Python itself cannot make it
        with pytest.raises(SerializationError) as caught:
            encode(nested(levels, WRAPS[wrap]), ("messages", 3))
        assert caught.value.path.startswith("$.messages[3]")


def test_what_contains_itself_is_refused_at_once():
    one: list[Any] = []
    one.append(one)
    many: list[Any] = []
    many += [many, many, many]
    conversation: dict[str, Any] = {"messages": []}
    conversation["messages"] += [{"n": n, "of": conversation} for n in range(20)]
    within: dict[str, Any] = {"a": ({"b": 1},)}
    within["a"][0]["c"] = [within, within]
    for value in (one, many, conversation, within):
        with pytest.raises(SerializationError):
            encode(value)


@pytest.mark.parametrize("wrap", WRAPS)
def test_near_the_end_of_the_stack_it_is_one_error_too(wrap):
    value = nested(150, WRAPS[wrap])
    outcomes = set()

    def descend(left: int) -> None:
        if left:
            descend(left - 1)
            return
        try:
            outcomes.add(type(encode(value)))
        except SerializationError as e:
            assert e.path.startswith("$")
            outcomes.add(SerializationError)

    used = len(__import__("inspect").stack())
    for left in range(0, sys.getrecursionlimit() - used - 30, 50):
        descend(left)
    assert SerializationError in outcomes
    assert Entry in outcomes


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b'{"$unknown":1}',
        b'{"a":{"$object":["os","system"]}}',
        b'{"$":1}',
        b'{"$tuple":1}',
        b'{"$datetime":["2026-01-01T00:00:00",0,["elsewhere",1]]}',
        b'{"$datetime":["not a date",0]}',
        b'{"$datetime":["2026-01-01T00:00:00",7]}',
        b'{"$int":"xyz"}',
        b'{"$float":"many"}',
        b'{"$uuid":"1"}',
        b'{"$decimal":"x"}',
        b'{"$bytes":"\xc3\xa9"}',
        b'{"$bytes":"aGk=!"}',
        b'{"$set":[[1]]}',
        b'{"$dict":[[1]]}',
        b'{"$str":5}',
        b'{"$timedelta":[1,2,3,4,5,6,7,8]}',
        b"[NaN]",
        b"[Infinity]",
        b'{"a":1',
        b"",
        b"\xff",
        b'"\\ud800',
    ],
)
def test_text_that_was_not_written_is_damage(text, parser):
    with pytest.raises(DamagedError):
        decode(Entry(text, MARKED))


def test_nothing_is_imported_or_called_on_load():
    value = {
        "lc": {"type": "constructor", "id": ["os", "system"], "$call": "os.system"},
        "m": [{"$object": ["os", "system"]}, {"__reduce__": ["os.system", ["true"]]}],
        "t": (datetime(2026, 1, 1, tzinfo=UTC), Decimal(1), uuid.uuid4(), {1}, b"x", 2**70),
    }
    entry = encode(value)
    decode(entry)
    before = set(sys.modules)

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("something was called")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("eval", "exec", "compile"):
            patch.setattr(builtins, name, refuse)
        patch.setattr(importlib, "import_module", refuse)
        found = decode(entry)
    assert set(sys.modules) == before
    assert_exact(found, value)
