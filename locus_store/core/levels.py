"""Plain values taken apart, level by level, into sequences of what cannot change."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, compress, repeat
from operator import is_
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from locus_store.core.codec import encode
from locus_store.core.errors import SerializationError

MAX_LEVELS = 12
"""How deep elements are taken apart; what is nested more deeply is compared by its text."""

_LEAF, _FLOAT, _FIXED, _DICT, _LIST = range(5)
_TEXTUAL = (datetime, date, time, timedelta, Decimal, UUID, frozenset)
_CLASSES: dict[type, int] = {
    **dict.fromkeys((str, int, bool, type(None), bytes), _LEAF),  # equal and of one type: the same
    float: _FLOAT,  # the same if their eight bytes are
    **dict.fromkeys(_TEXTUAL, _FIXED),  # the same if they are one object, or have one text
    dict: _DICT,
    list: _LIST,
    tuple: _LIST,
}
_ONLY_STR = {str}
_MASKS = [bytes([int(code == wanted) for code in range(256)]) for wanted in range(5)]


class StrangeError(TypeError):
    """A value that cannot be taken apart: it holds a set, a key that is no str, or is nested very deeply."""


class _Strange:
    """Stands in the place of what cannot be taken apart; equal to nothing."""


STRANGE = _Strange()


def _class_of(kind: type) -> int:
    found = _CLASSES.get(kind)
    if found is not None:
        return found
    if issubclass(kind, (BaseModel, Enum, _Strange)):
        return _FIXED  # told apart by identity; `watching` looks after what models hold
    raise StrangeError


class Level:
    """Values side by side, and what the dicts and lists among them hold.

    Attributes:
        classes: How each value is compared.
        leaves: The values whose class is ``_LEAF``, in their order; `floats` and `fixed` likewise.
        sizes: The length of each dict; `keys` has all their keys, `values` their values.
        kinds: The type of each list and tuple; `lengths` has their lengths, `items` their elements.
    """

    __slots__ = ("classes", "fixed", "floats", "items", "keys", "kinds", "leaves", "lengths", "sizes", "values")

    def __init__(self) -> None:
        self.classes = bytearray()
        self.leaves: list[Any] = []
        self.floats: list[float] = []
        self.fixed: list[Any] = []
        self.sizes: list[int] = []
        self.keys: list[str] = []
        self.values: Level | None = None
        self.kinds: list[type] = []
        self.lengths: list[int] = []
        self.items: Level | None = None

    @classmethod
    def of(cls, values: Sequence[Any], depth: int = 0) -> Level:
        """Take values apart."""
        if depth > MAX_LEVELS:
            raise StrangeError
        made = cls()
        try:
            codes = bytes(map(_CLASSES.__getitem__, map(type, values)))
        except KeyError:
            codes = bytes(map(_class_of, map(type, values)))
        made.classes += codes
        made.leaves = _pick(values, codes, _LEAF)
        if _FLOAT in codes:
            made.floats = _pick(values, codes, _FLOAT)
        if _FIXED in codes:
            made.fixed = _pick(values, codes, _FIXED)
        if _DICT in codes:
            dicts = _pick(values, codes, _DICT)
            made.sizes = list(map(len, dicts))
            made.keys = list(chain.from_iterable(dicts))
            if not _ONLY_STR.issuperset(map(type, made.keys)):
                raise StrangeError
            made.values = cls.of(list(chain.from_iterable(map(dict.values, dicts))), depth + 1)
        if _LIST in codes:
            lists = _pick(values, codes, _LIST)
            made.kinds = list(map(type, lists))
            made.lengths = list(map(len, lists))
            made.items = cls.of(list(chain.from_iterable(lists)), depth + 1)
        return made

    def extend(self, other: Level) -> None:
        """Put the values of another level behind those of this one."""
        self.kinds += other.kinds
        self.classes += other.classes
        self.leaves += other.leaves
        self.floats += other.floats
        self.fixed += other.fixed
        self.sizes += other.sizes
        self.keys += other.keys
        self.lengths += other.lengths
        if other.values is not None:
            if self.values is None:
                self.values = Level()
            self.values.extend(other.values)
        if other.items is not None:
            if self.items is None:
                self.items = Level()
            self.items.extend(other.items)

    def first(self, count: int) -> Level:
        """A copy of the first values only."""
        made = Level()
        made.classes = self.classes[:count]
        leaves, floats, fixed, dicts, lists = (self.classes.count(code, 0, count) for code in range(5))
        made.leaves = self.leaves[:leaves]
        made.floats = self.floats[:floats]
        made.fixed = self.fixed[:fixed]
        made.sizes = self.sizes[:dicts]
        made.keys = self.keys[: sum(made.sizes)]
        made.values = self.values.first(len(made.keys)) if self.values is not None else None
        made.kinds = self.kinds[:lists]
        made.lengths = self.lengths[:lists]
        made.items = self.items.first(sum(made.lengths)) if self.items is not None else None
        return made

    def same(self, values: Sequence[Any], at: int) -> bool:
        """Whether values are, exactly, those that stand from ``at`` on."""
        codes = self.classes[at : at + len(values)]
        return len(codes) == len(values) and (
            (_LEAF not in codes or self._same_leaves(values, codes, at))
            and (_FLOAT not in codes or self._same_floats(values, codes, at))
            and (_FIXED not in codes or self._same_fixed(values, codes, at))
            and (_DICT not in codes or self._same_dicts(values, codes, at))
            and (_LIST not in codes or self._same_lists(values, codes, at))
        )

    # Most callers save the very objects again that they saved before. What cannot change is the same if it is the same
    # object, which is the cheapest thing to find out.

    def _same_leaves(self, values: Sequence[Any], codes: bytearray, at: int) -> bool:
        now = _pick(values, codes, _LEAF)
        start = self.classes.count(_LEAF, 0, at)
        then = self.leaves[start : start + len(now)]
        return all(map(is_, now, then)) or (_of_same_types(now, then) and now == then)

    def _same_floats(self, values: Sequence[Any], codes: bytearray, at: int) -> bool:
        now = _pick(values, codes, _FLOAT)
        start = self.classes.count(_FLOAT, 0, at)
        then = self.floats[start : start + len(now)]
        return all(map(is_, now, then)) or (
            _of_same_types(now, then) and array("d", now).tobytes() == array("d", then).tobytes()
        )

    def _same_fixed(self, values: Sequence[Any], codes: bytearray, at: int) -> bool:
        now = _pick(values, codes, _FIXED)
        start = self.classes.count(_FIXED, 0, at)
        then = self.fixed[start : start + len(now)]
        return all(map(is_, now, then)) or (_of_same_types(now, then) and all(map(_same_text, now, then)))

    def _same_dicts(self, values: Sequence[Any], codes: bytearray, at: int) -> bool:
        now = _pick(values, codes, _DICT)
        if not all(map(is_, map(type, now), repeat(dict))):
            return False
        start = self.classes.count(_DICT, 0, at)
        sizes = self.sizes[start : start + len(now)]
        if list(map(len, now)) != sizes:
            return False
        first = sum(self.sizes[:start])
        then = self.keys[first : first + sum(sizes)]
        if not all(map(is_, chain.from_iterable(now), then)):
            keys = list(chain.from_iterable(now))
            if not _of_same_types(keys, then) or keys != then:
                return False
        assert self.values is not None
        return self.values.same(list(chain.from_iterable(map(dict.values, now))), first)

    def _same_lists(self, values: Sequence[Any], codes: bytearray, at: int) -> bool:
        now = _pick(values, codes, _LIST)
        start = self.classes.count(_LIST, 0, at)
        stop = start + len(now)
        if not all(map(is_, map(type, now), self.kinds[start:stop])):
            return False
        if list(map(len, now)) != self.lengths[start:stop]:
            return False
        assert self.items is not None
        return self.items.same(list(chain.from_iterable(now)), sum(self.lengths[:start]))

    def value(self, at: int) -> Any:
        """The value at one place, made anew."""
        code = self.classes[at]
        nth = self.classes.count(code, 0, at)
        if code == _LEAF:
            return self.leaves[nth]
        if code == _FLOAT:
            return self.floats[nth]
        if code == _FIXED:
            return self.fixed[nth]
        if code == _DICT:
            assert self.values is not None
            start = sum(self.sizes[:nth])
            return {self.keys[i]: self.values.value(i) for i in range(start, start + self.sizes[nth])}
        start = sum(self.lengths[:nth])
        made = [self.items.value(i) for i in range(start, start + self.lengths[nth])] if self.items is not None else []
        return made if self.kinds[nth] is list else tuple(made)

    def weight(self) -> int:
        """Bytes that the sequences take, roughly, without what strings and the like take themselves."""
        below = [level.weight() for level in (self.values, self.items) if level is not None]
        return 16 * len(self.classes) + 8 * len(self.keys) + sum(below)


def _pick(values: Sequence[Any], codes: bytes | bytearray, code: int) -> list[Any]:
    """The values that have a class."""
    if codes.count(code) == len(values):
        return list(values)
    return list(compress(values, codes.translate(_MASKS[code])))


def _of_same_types(now: Sequence[Any], then: Sequence[Any]) -> bool:
    return all(map(is_, map(type, now), map(type, then)))  # not ==, which a metaclass may define


def _same_text(now: Any, then: Any) -> bool:
    if now is then:
        return True
    if type(then) not in _TEXTUAL:
        return False
    try:
        return encode(now) == encode(then)
    except SerializationError:
        return False
