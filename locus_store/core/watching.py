"""Recognising the objects of a state without turning them into plain data again.

An object of a frozen pydantic model is what it was if it is the very same object, and if what it holds that can still
change (a dict, a list, the values of a model that is not frozen) has the content that it had. The latter is a
`Snapshot`, as for plain data.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import compress, count, islice
from operator import attrgetter, is_, is_not
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from locus_store.core.fields import fields_of
from locus_store.core.unchanged import Snapshot

_IMMUTABLE = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID})
_values_of = attrgetter("__dict__")
_extra_of = attrgetter("__pydantic_extra__")


class Watch:
    """Recognises objects; it only ever grows at its end.

    Attributes:
        objects: The objects.
    """

    __slots__ = (
        "_containers",
        "_containers_of",
        "_content",
        "_empty",
        "_empty_of",
        "_models",
        "_models_of",
        "_parts",
        "objects",
    )

    def __init__(self) -> None:
        self.objects: list[Any] = []
        # What the objects hold that is empty and has to stay so, and how many of them the first n objects hold.
        self._empty: list[Any] = []
        self._empty_of = array("q")
        # What else they hold that can change, likewise.
        self._containers: list[Any] = []
        self._containers_of = array("q")
        self._content = Snapshot()
        # Models that are not frozen, and the dicts of their values, which must stay the same dicts.
        self._models: list[BaseModel] = []
        self._models_of = array("q")
        self._parts: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.objects)

    def run(self, items: Sequence[Any]) -> int:
        """How many of the items, counted from the first, are the watched objects and have not changed."""
        most = min(len(items), len(self.objects))
        if not all(map(is_, islice(items, most), self.objects)):
            most = next(compress(count(), map(is_not, items, self.objects)))
        if not most or not self._same_parts(self._models_of[most - 1]):
            return 0
        empty = self._empty_of[most - 1]
        if any(islice(self._empty, empty)):
            filled = next(compress(count(), self._empty))
            most = bisect_right(self._empty_of, filled, 0, most)
        if most and (held := self._containers_of[most - 1]):
            same = self._content.run(self._containers[:held], 0, whole_first=True)
            if same < held:
                most = bisect_right(self._containers_of, same, 0, most)
        return most

    def _same_parts(self, models: int) -> bool:
        """Whether the first models still hold their values in the same dicts."""
        if not models:
            return True
        at_hand, then = self._models[:models], self._parts[:models]
        return all(map(is_, map(_values_of, at_hand), [values for values, _ in then])) and all(
            map(is_, map(_extra_of, at_hand), [extra for _, extra in then])
        )

    def extend(self, items: Sequence[Any]) -> bool:
        """Add objects; False, and nothing is added, if one of them could change in a way that would not be seen."""
        new = Watch()
        try:
            for item in items:
                new._add(item)
                new.objects.append(item)
                new._empty_of.append(len(self._empty) + len(new._empty))
                new._containers_of.append(len(self._containers) + len(new._containers))
                new._models_of.append(len(self._models) + len(new._models))
        except (_UnwatchableError, RecursionError):
            return False
        new._content.extend(new._containers)
        if new._content.comparable(0) < len(new._content):
            return False
        self.objects += new.objects
        self._empty += new._empty
        self._empty_of += new._empty_of
        self._containers += new._containers
        self._containers_of += new._containers_of
        self._content.join(new._content)
        self._models += new._models
        self._models_of += new._models_of
        self._parts += new._parts
        return True

    def first(self, number: int) -> Watch:
        """A copy with the first objects only."""
        made = Watch()
        if number:
            empty, containers, models = (n[number - 1] for n in (self._empty_of, self._containers_of, self._models_of))
            made.objects = self.objects[:number]
            made._empty, made._empty_of = self._empty[:empty], self._empty_of[:number]
            made._containers, made._containers_of = self._containers[:containers], self._containers_of[:number]
            made._content = self._content.first(containers)
            made._models, made._models_of = self._models[:models], self._models_of[:number]
            made._parts = self._parts[:models]
        return made

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _IMMUTABLE:
            return
        if kind is list or kind is dict:
            self._add_container(value)
        elif kind is tuple or kind is frozenset:
            for part in value:
                self._add(part)
        elif isinstance(value, Enum):
            self._add(value.value)
        elif isinstance(value, BaseModel):
            self._add_model(value)
        else:
            raise _UnwatchableError

    def _add_model(self, value: BaseModel) -> None:
        if fields_of(type(value)).serialized != frozenset():
            raise _UnwatchableError  # what its own serializers give may depend on anything
        if type(value).model_config.get("frozen"):
            for part in value.__dict__.values():
                if type(part) not in _IMMUTABLE:
                    self._add(part)
        else:
            self._models.append(value)
            self._parts.append((value.__dict__, value.__pydantic_extra__))
            self._add_container(value.__dict__)
        if value.__pydantic_extra__ is not None:
            self._add_container(value.__pydantic_extra__)

    def _add_container(self, value: list[Any] | dict[Any, Any]) -> None:
        if not value:
            self._empty.append(value)
            return
        self._containers.append(value)
        self._add_models_in(value)

    def _add_models_in(self, value: Any) -> None:
        """A snapshot tells the models in a container apart by identity; what they hold is watched here."""
        kind = type(value)
        if kind is list or kind is tuple or kind is frozenset:
            for part in value:
                if type(part) not in _IMMUTABLE:
                    self._add_models_in(part)
        elif kind is dict:
            for part in value.values():
                if type(part) not in _IMMUTABLE:
                    self._add_models_in(part)
        elif kind not in _IMMUTABLE:
            self._add(value)


class _UnwatchableError(Exception):
    """An object holds something that could change unseen."""
