"""What is still the same is found, exactly: whatever would be stored in another way is noticed."""

from __future__ import annotations

import copy
import enum
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from exactness import assert_exact, differs, run, values
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_serializer
from pydantic_core import TzInfo

from locus_store.backends.memory import MemoryDriver
from locus_store.core.backend import Backend
from locus_store.core.codec import encode_entry
from locus_store.core.errors import SerializationError
from locus_store.core.levels import MAX_LEVELS
from locus_store.core.unchanged import Snapshot, digest_of
from locus_store.core.watching import Watch

# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshot_of(*items: Any) -> Snapshot:
    made = Snapshot()
    made.extend(items)
    return made


def common(one: list[Any], other: list[Any]) -> int:
    """How many elements at the beginning are exactly the same."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if differs(a, b)), min(len(one), len(other)))


def without_nan(value: Any) -> bool:
    """A Decimal that is no number is equal to nothing, so a set or dict with it cannot be looked through."""
    return "NaN" not in repr(value)


lists = st.lists(values, max_size=8)


@settings(max_examples=150)
@given(lists, st.data())
def test_a_run_ends_where_something_differs(items, data):
    """And never later; it may end earlier only at what cannot be taken apart."""
    snapshot = snapshot_of(*items)
    other = copy.deepcopy(items)
    if items and data.draw(st.booleans()):
        other[data.draw(st.integers(0, len(items) - 1))] = data.draw(values)
    start = data.draw(st.integers(0, len(items)))
    for whole_first in (False, True):
        found = snapshot.run(other[start:], start, whole_first=whole_first)
        wanted = common(other[start:], items[start:])
        assert found <= wanted
        assert found >= min(wanted, snapshot.comparable(start))


@settings(max_examples=100)
@given(lists, lists, st.integers(0, 8))
def test_elements_are_made_anew_as_they_were(items, more, kept):
    snapshot = snapshot_of(*items)
    snapshot.extend(more)
    kept = min(kept, len(items))
    assert len(snapshot) == len(items) + len(more)
    for made, wanted in ((snapshot, [*items, *more]), (snapshot.first(kept), items[:kept])):
        assert len(made) == len(wanted)
        for i, value in enumerate(wanted):
            if made.comparable(i):
                assert_exact(made.value(i), value)
            else:
                with pytest.raises(LookupError):
                    made.value(i)
        assert made.run(wanted[: made.comparable(0)], 0, whole_first=True) == made.comparable(0)


def test_a_snapshot_keeps_nothing_that_can_change():
    item = {"a": [1, {"b": [2.0, (3, [4])]}], "c": {}, "d": []}
    snapshot = snapshot_of(item)
    wanted = copy.deepcopy(item)
    item["a"][1]["b"][1][1].append(5)
    item["c"]["x"] = 1
    assert_exact(snapshot.value(0), wanted)
    assert snapshot.run([item], 0) == 0
    snapshot.value(0)["a"].append("changed")
    assert_exact(snapshot.value(0), wanted)


def test_what_cannot_be_taken_apart():
    deep: Any = 1
    for _ in range(MAX_LEVELS + 2):
        deep = [deep]
    for strange in ({1}, {"a": {1}}, {1: 2}, {"a": [{None: 1}]}, deep):
        snapshot = snapshot_of("x", strange, "y", strange)
        assert [snapshot.comparable(i) for i in range(4)] == [1, 0, 1, 0]
        assert snapshot.run(["x", strange], 0) == 1
        assert snapshot.run([strange], 1) == 0


def test_a_comparison_ends_where_the_known_ends():
    snapshot = snapshot_of([1], {"a": 2})
    assert snapshot.run([[1], {"a": 2}, 3], 0, whole_first=True) == 2
    assert snapshot.run([[1]], 2) == 0
    assert Snapshot().run([], 0) == 0
    endless: list[Any] = []
    endless += [endless, endless]
    assert snapshot.run([endless], 0) == 0
    assert snapshot_of([[], []]).run([endless], 0) == 0


def test_digests_tell_raw_bytes_and_text_apart_and_nothing_else():
    assert digest_of(encode_entry(b'"a"')) != digest_of(encode_entry("a"))
    assert digest_of(encode_entry("a")) == digest_of(encode_entry("a")._replace(kind=b"m"))


# --- every replacement is noticed -------------------------------------------------------------------------------------


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Words(list[Any]):
    pass


class Fields(dict[str, Any]):
    pass


class Pair(tuple[Any, ...]):
    __slots__ = ()


class Moment(datetime):
    pass


class Kind(enum.StrEnum):
    A = "a"


class Level(enum.IntEnum):
    ONE = 1


class Same:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class SameType(type):
    """A class that is equal to every other one."""

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = type.__hash__


class Disguised(metaclass=SameType):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


def marked(name: str) -> timezone:
    return timezone(timedelta(hours=1), name)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPLACED: dict[str, tuple[Any, Any]] = {
    "True for 1": (1, True),
    "1 for True": (True, 1),
    "1.0 for 1": (1, 1.0),
    "1 for 1.0": (1.0, 1),
    "True for 1.0": (1.0, True),
    "False for 0": (0, False),
    "-0.0 for 0.0": (0.0, -0.0),
    "0.0 for -0.0": (-0.0, 0.0),
    "nan for a number": (1.0, float("nan")),
    "None for False": (False, None),
    "digits of a Decimal": (Decimal("1.1"), Decimal("1.10")),
    "Decimal for an int": (1, Decimal(1)),
    "sign of a Decimal": (Decimal(0), Decimal("-0")),
    "bytes for a str": ("abc", b"abc"),
    "bytearray for bytes": (b"abc", bytearray(b"abc")),
    "memoryview for bytes": (b"abc", memoryview(b"abc")),
    "subclass of str": ("a", Text("a")),
    "StrEnum for a str": ("a", Kind.A),
    "subclass of int": (1, Number(1)),
    "IntEnum for an int": (1, Level.ONE),
    "subclass of list": ([1], Words([1])),
    "subclass of dict": ({"a": 1}, Fields(a=1)),
    "OrderedDict for a dict": ({"a": 1}, OrderedDict(a=1)),
    "subclass of tuple": ((1,), Pair((1,))),
    "tuple for a list": ([1, 2], (1, 2)),
    "list for a tuple": ((1, 2), [1, 2]),
    "frozenset for a set": ({1}, frozenset({1})),
    "True in a set": ({1}, {True}),
    "1.0 in a frozenset": (frozenset({1}), frozenset({1.0})),
    "order of keys": ({"a": 1, "b": 1}, {"b": 1, "a": 1}),
    "name of a key": ({"a": 1}, {"b": 1}),
    "subclass as a key": ({"a": 1}, {Text("a"): 1}),
    "StrEnum as a key": ({"a": 1}, {Kind.A: 1}),
    "True for 1 as a key": ({1: "x"}, {True: "x"}),
    "1.0 for 1 as a key": ({1: "x"}, {1.0: "x"}),
    "key in a key": ({("a", 1): 1}, {("a", 1.0): 1}),
    "another length": ([1], [1, 1]),
    "empty list for an empty dict": ({}, []),
    "empty tuple for an empty list": ([], ()),
    "None in an empty list": ([], [None]),
    "another zone": (NOON, NOON.astimezone(marked("CET"))),
    "another kind of zone": (NOON, NOON.replace(tzinfo=ZoneInfo("UTC"))),
    "pydantic's zone": (NOON, NOON.replace(tzinfo=TzInfo(0))),
    "name of a zone": (NOON.replace(tzinfo=marked("A")), NOON.replace(tzinfo=marked("B"))),
    "no zone": (NOON, NOON.replace(tzinfo=None)),
    "fold": (datetime(2026, 10, 25, 2), datetime(2026, 10, 25, 2, fold=1)),
    "fold of a time": (time(2), time(2, fold=1)),
    "microseconds": (NOON, NOON + timedelta(microseconds=1)),
    "datetime for a date": (date(2026, 1, 1), datetime(2026, 1, 1)),
    "subclass of datetime": (NOON, Moment(2026, 1, 1, 12, tzinfo=UTC)),
    "another UUID": (UUID(int=1), UUID(int=2)),
    "surrogates for a character": ("\U0001f600", "\ud83d\ude00"),
    "something equal to all": ("a", Same()),
    "something equal to all, of a type equal to all": ("a", Disguised()),
    "a number that is equal to all": (1, Same()),
    "a list that is equal to all": ([1], Same()),
    "an integer over 53 bits": (2**53, 2**53 + 1),
    "a float for an integer over 53 bits": (2**60, float(2**60)),
}
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "element": lambda v: v,
    "value": lambda v: {"text": "x" * 40, "v": v},
    "in a list": lambda v: ["x", [v]],
    "in a tuple": lambda v: {"t": (1, (v,))},
    "beside others": lambda v: {"a": 1, "v": v, "c": [1.5, b"x", None], "d": {"e": v}},
    "beside what cannot be taken apart": lambda v: {"v": v, "s": {1, 2}},
    "deep": lambda v: {"a": {"b": [{"c": {"d": [v]}}]}},
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("name", REPLACED)
def test_a_replacement_in_a_saved_element_is_noticed(name, holder):
    """In the very same list and in a fresh one, by the process that saved, by one that loaded, and by both in turn."""
    one, other = REPLACED[name]
    make = HOLDERS[holder]
    before = {"l": [make("first"), {"pad": "y" * 300}, make(one), make("last")]}
    for known in ("saved", "loaded", "loaded after saving"):
        driver = MemoryDriver()
        store = Backend(driver)
        run(store.save("t", before))
        if known == "loaded":
            store = Backend(driver)
        document = before if known == "saved" else run(store.load("t"))
        document = {"l": [*document["l"][:2], make(other), document["l"][3]]}
        try:
            run(store.save("t", document))
        except SerializationError as e:
            assert "$.l[2]" in e.path
            assert_exact(run(Backend(driver).load("t")), before)
        else:
            assert_exact(run(Backend(driver).load("t")), document)
            assert_exact(run(store.load("t")), document)


def replace_in_place(holder: Any, old: Any, new: Any) -> bool:
    """Put something in the place of something else, in the object that holds it; False if nothing can be replaced."""
    if type(holder) is dict:
        for key, value in holder.items():
            if value is old:
                holder[key] = new
                return True
            if replace_in_place(value, old, new):
                return True
    if type(holder) is list:
        for i, value in enumerate(holder):
            if value is old:
                holder[i] = new
                return True
            if replace_in_place(value, old, new):
                return True
    return type(holder) is tuple and any(replace_in_place(value, old, new) for value in holder)


@pytest.mark.parametrize("holder", ["value", "in a list", "deep"])
@pytest.mark.parametrize("name", REPLACED)
def test_a_replacement_in_place_is_noticed(name, holder):
    one, other = REPLACED[name]
    document = {"l": [{"pad": "y" * 300}, HOLDERS[holder](one), "last"], "rest": {"pad": "z" * 5000, "v": [one]}}
    driver = MemoryDriver()
    store = Backend(driver)
    for part in ("l", "rest"):
        run(store.save("t", document))
        before = copy.deepcopy(document)
        assert replace_in_place(document[part], one, other)
        try:
            run(store.save("t", document))
        except SerializationError as e:
            assert e.path.startswith(f"$.{part}")
            assert_exact(run(Backend(driver).load("t")), before)
            assert replace_in_place(document[part], other, one)
        else:
            assert_exact(run(Backend(driver).load("t")), document)


# --- objects ----------------------------------------------------------------------------------------------------------


class Call(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = "search"
    arguments: dict[str, Any] = {}


class Note(BaseModel):
    """Frozen, and yet full of what can change."""

    model_config = ConfigDict(frozen=True, extra="allow")

    text: str = "x"
    calls: list[Call] = []
    tags: list[str] = []
    data: dict[str, Any] = {}
    pair: tuple[Any, ...] = ()


class Loose(BaseModel):
    text: str = "x"
    call: Call = Call()
    tags: list[str] = []


def watch_of(*objects: Any) -> Watch | None:
    made = Watch()
    return made if made.extend(objects) else None


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "an empty list filled": (Note, lambda n: n.tags.append("a")),
    "an empty dict filled": (Note, lambda n: n.data.update(a=1)),
    "an empty list of objects filled": (Note, lambda n: n.calls.append(Call())),
    "a list grown": (lambda: Note(tags=["a"]), lambda n: n.tags.append("a")),
    "a list emptied": (lambda: Note(tags=["a"]), lambda n: n.tags.clear()),
    "an element replaced": (lambda: Note(tags=["a"]), lambda n: n.tags.__setitem__(0, "b")),
    "a value replaced": (lambda: Note(data={"a": 1}), lambda n: n.data.update(a=True)),
    "a key renamed": (lambda: Note(data={"a": 1}), lambda n: n.data.update(b=n.data.pop("a"))),
    "a value deep inside": (lambda: Note(data={"a": [{"b": 1}]}), lambda n: n.data["a"][0].update(b=2)),
    "an object replaced by an equal one": (lambda: Note(calls=[Call()]), lambda n: n.calls.__setitem__(0, Call())),
    "an object in a list": (lambda: Note(calls=[Call(arguments={"q": 1})]), lambda n: n.calls[0].arguments.update(q=2)),
    "an empty dict of an object in a list": (lambda: Note(calls=[Call()]), lambda n: n.calls[0].arguments.update(q=2)),
    "an object in a dict": (
        lambda: Note(data={"c": {"d": Call(arguments={"q": 1})}}),
        lambda n: n.data["c"]["d"].arguments.clear(),
    ),
    "an object in a tuple": (
        lambda: Note(pair=(1, [Call(arguments={"q": 1})])),
        lambda n: n.pair[1][0].arguments.update(r=2),
    ),
    "a list in a tuple": (lambda: Note(pair=([1],)), lambda n: n.pair[0].append(2)),
    "an extra value": (lambda: Note(more=[1]), lambda n: n.more.append(2)),
    "an extra value put there": (Note, lambda n: n.model_extra.update(more=1)),
    "an extra value replaced": (lambda: Note(more=1), lambda n: n.model_extra.update(more=2)),
    "a field of a model that is not frozen": (Loose, lambda n: setattr(n, "text", "y")),
    "an object of a model that is not frozen": (Loose, lambda n: setattr(n, "call", Call())),
    "a list of a model that is not frozen": (Loose, lambda n: n.tags.append("a")),
    "all values of a model that is not frozen": (Loose, lambda n: object.__setattr__(n, "__dict__", Loose().__dict__)),
    "a model that is not frozen in a frozen one": (
        lambda: Note(data={"l": Loose()}),
        lambda n: setattr(n.data["l"], "text", "y"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_a_watched_object_is_noticed(name):
    make, change = CHANGES[name]
    objects = [Note(tags=["a"], data={"a": 1}), Note(), make(), Note(calls=[Call()])]
    watch = watch_of(*objects)
    assert watch is not None
    assert watch.run(objects) == 4
    assert watch.run(objects[:3]) == 3
    assert watch.run([*objects, Note()]) == 4
    assert watch.run([objects[0], objects[2]]) == 1
    first = watch.first(3)
    assert first.run(objects) == 3
    change(objects[2])
    assert watch.run(objects) <= 2
    assert first.run(objects) <= 2
    assert watch.run(objects[:2]) == 2 or "not frozen" in name
    if "not frozen" not in name:
        assert watch.run(objects) == 2
    assert watch.first(2).run(objects) == 2


def test_other_objects_are_other_objects_even_if_they_are_equal():
    watch = watch_of(Note(), Note())
    assert watch is not None
    assert watch.run([Note(), Note()]) == 0
    assert watch.run([]) == 0


class Odd(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: Any = None


class Told(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: int = 1

    @field_serializer("value")
    def tell(self, value: int) -> int:
        return value + len(NOTES)


NOTES: list[int] = []


class Colours(enum.Enum):
    MIX = ["red"]  # noqa: RUF012


@pytest.mark.parametrize("value", [{1}, object(), bytearray(b"x"), [bytearray(b"x")], {"a": {1}}, {1: 2}, Told()])
def test_what_could_change_unseen_is_not_watched(value):
    watch = Watch()
    assert watch.extend([Note(tags=["a"])])
    assert not watch.extend([Note(), Odd(value=value)])
    assert len(watch) == 1  # and nothing of it remains
    assert watch.extend([Note()])


def test_an_enum_whose_value_can_change_is_watched():
    one = Odd(value=Colours.MIX)
    watch = watch_of(one)
    assert watch is not None
    Colours.MIX.value.append("blue")
    try:
        assert watch.run([one]) == 0
    finally:
        Colours.MIX.value.pop()


def test_what_holds_itself_is_not_watched_and_ends():
    data: dict[str, Any] = {}
    data["self"] = [data, data]
    assert watch_of(Odd(value=data)) is None
