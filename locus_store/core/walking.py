"""Walking through the objects of a state, and making plain data of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from locus_store.core.codec import encode
from locus_store.core.comparing import compare, read_back, refused
from locus_store.core.errors import SerializationError
from locus_store.core.fields import Fields, Place, fields_of, item_type
from locus_store.core.lists import LIST, OPEN_KEYS, TUPLE, StateList
from locus_store.core.marks import MAX_DEPTH
from locus_store.core.paths import KEY, MEMBER, Path, show_path
from locus_store.core.unchanged import digest_of

_LEAVES = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID})
_CONTAINERS = frozenset({list, tuple, dict})
_ANY = "*"


class Walk:
    """One walk through a state, or through one element of its lists.

    Attributes:
        unseen: The conversions that were met and are not known to be undone on loading.
        unknown: Whether something was met of which it is not known how to turn it into plain data.
    """

    __slots__ = ("unknown", "unseen")

    def __init__(self) -> None:
        self.unseen: list[tuple[Fields, Place]] = []
        self.unknown = False

    def met(self, owner: Fields, place: Place) -> None:
        """Note a conversion."""
        if place not in owner.trusted:
            self.unseen.append((owner, place))

    def trust(self) -> None:
        """All conversions that were met have been shown to be undone."""
        for owner, place in self.unseen:
            owner.trust((place,))

    def model(self, value: BaseModel, path: Path, *, lists: bool) -> Any:
        """A model as plain data.

        Args:
            value: The model.
            path: Where it is.
            lists: Whether lists of models become `StateList`.
        """
        kind = type(value)
        known = fields_of(kind)
        if known.serialized is None:
            return self._part(
                value.model_dump(mode="python", by_alias=False), path, _Spot(kind, known, ("model",), True)
            )
        found: dict[str, Any] = {}
        names = known.names
        for name, part in value.__dict__.items():
            if name not in names:
                continue
            part_kind = type(part)
            if part_kind in _LEAVES or (not part and part_kind in _CONTAINERS):
                found[name] = part
            else:
                found[name] = self._field(value, known, name, path, lists)
        if len(found) < len(names):
            missing = min(names - found.keys())
            raise SerializationError(show_path((*path, missing)), "the model lacks the value of this field")
        if known.serialized:
            self._own_serializers(value, known, found, path)
        for name, part in (value.__pydantic_extra__ or {}).items():
            found[name] = self._part(part, (*path, name), _Spot(kind, known, ("extra", name), True, lists))
        return found

    def _field(self, value: BaseModel, known: Fields, name: str, path: Path, lists: bool) -> Any:
        if known.serialized and name in known.serialized:
            return None  # comes from the model's own serializer
        kind, path = type(value), (*path, name)
        part = value.__dict__[name]
        plain = self._part(part, path, _Spot(kind, known, ("field", name), name in known.doubtful, lists))
        if self.unknown:  # but the field's declared type may know
            self.unknown = False
            try:
                dumped = value.model_dump(mode="json", by_alias=False, include={name}, warnings="error")[name]
            except (PydanticSerializationError, LookupError, ValueError):
                return plain  # the codec refuses it and says where
            self.met(known, ("declared", name, digest_of(encode(dumped, path))))
            return dumped
        return plain

    def _own_serializers(self, value: BaseModel, known: Fields, found: dict[str, Any], path: Path) -> None:
        assert known.serialized is not None
        dumped = value.model_dump(mode="python", by_alias=False, include=set(known.serialized))
        for name in known.serialized & found.keys():
            if name in dumped:
                spot = _Spot(type(value), known, ("serialized", name), True)
                found[name] = self._part(dumped[name], (*path, name), spot)
            else:
                del found[name]

    def _part(self, value: Any, path: Path, spot: _Spot) -> Any:
        kind = type(value)
        if kind in _LEAVES:
            return value
        if len(path) > MAX_DEPTH:
            raise SerializationError(
                show_path(path[:12]) + " …", f"nested more than {MAX_DEPTH} levels deep, or contains itself"
            )
        if kind is list or kind is tuple:
            return self._sequence(value, path, spot)
        if kind is dict:
            made = {
                self._key(k, path, spot): v if type(v) in _LEAVES else self._part(v, (*path, k), spot.at(k))
                for k, v in value.items()
            }
            if len(made) < len(value):
                raise SerializationError(show_path((*path, KEY)), "two keys would become one")
            return made
        if kind is set or kind is frozenset:
            return self._members(value, path, spot)
        plain = self._converted(value, path, spot)
        if spot.doubtful:
            if not self.unknown:
                self.met(spot.owner, (*spot.steps, kind, digest_of(encode(plain, path))))
        else:
            self.met(spot.owner, (*spot.steps, kind, value._name_) if isinstance(value, Enum) else (*spot.steps, kind))
        return plain

    def _converted(self, value: Any, path: Path, spot: _Spot) -> Any:
        if isinstance(value, BaseModel):
            return self.model(value, path, lists=spot.lists)
        if isinstance(value, Enum):
            return self._part(value._value_, path, spot.within(doubtful=True))
        if is_dataclass(value) and not isinstance(value, type):
            inner = spot.within(doubtful=True)
            return {
                f.name: self._part(getattr(value, f.name), (*path, f.name), inner.at(f.name)) for f in fields(value)
            }
        if isinstance(value, Iterator):
            return value  # the codec refuses it and says where; it would be used up by looking at it
        try:
            return to_jsonable_python(value)
        except (PydanticSerializationError, ValueError):
            self.unknown = True
            return value

    def _key(self, key: Any, path: Path, spot: _Spot) -> Any:
        if type(key) in _LEAVES or type(key) is tuple:
            return key
        plain = self._part(key, (*path, KEY), spot.at(KEY))
        if type(plain) in (dict, list, set):
            raise SerializationError(show_path((*path, KEY)), f"a {type(key).__name__} cannot be a key of stored data")
        return plain

    def _members(self, value: set[Any] | frozenset[Any], path: Path, spot: _Spot) -> Any:
        """A set of plain values as it is; one of models as a list, in an order that depends on nothing but them."""
        if _LEAVES.issuperset(map(type, value)):
            return value
        inner = spot.at(MEMBER)
        made = [self._part(v, (*path, MEMBER), inner) for v in value]
        try:
            plain = type(value)(made)
        except TypeError:  # a model's dict is no member of a set
            self.met(spot.owner, (*spot.steps, type(value)))
            return sorted(made, key=lambda m: encode(m, path).data)
        if len(plain) < len(value):
            raise SerializationError(show_path((*path, MEMBER)), "two members would become one")
        return plain

    def _sequence(self, value: Sequence[Any], path: Path, spot: _Spot) -> Any:
        kinds = set(map(type, value))
        if kinds <= _LEAVES:
            return value
        inner = spot.at(_ANY).within(doubtful=spot.doubtful)
        if spot.lists and all(issubclass(k, BaseModel) for k in kinds) and (not spot.doubtful or spot.item_type()):
            for kind in kinds:
                self.met(inner.owner, (*inner.steps, kind))
            return StateList(value, LIST if type(value) is list else TUPLE, partial(_dump_element, inner))
        made = [v if type(v) in _LEAVES else self._part(v, (*path, i), inner) for i, v in enumerate(value)]
        return made if type(value) is list else tuple(made)


class _Spot:
    """Where in a model a walk is.

    Attributes:
        kind: The class of the model.
        owner: What is known of it.
        steps: How to get from the model to here.
        doubtful: Whether the model's field leaves open what comes back.
        lists: Whether lists of models become `StateList`.
    """

    __slots__ = ("doubtful", "kind", "lists", "owner", "steps")

    def __init__(self, kind: type[BaseModel], owner: Fields, steps: Place, doubtful: bool, lists: bool = False) -> None:
        self.kind = kind
        self.owner = owner
        self.steps = steps
        self.doubtful = doubtful
        self.lists = lists

    def at(self, step: Any) -> _Spot:
        """One step further; which key of a dict it is counts only where a declared type may tell them apart."""
        steps = (*self.steps, step if self.doubtful else _ANY)
        return _Spot(self.kind, self.owner, steps, self.doubtful, self.lists and type(step) in OPEN_KEYS)

    def item_type(self) -> TypeAdapter[Any] | None:
        """Validates one element of the model's field, if that is a list and the walk is in it and no further."""
        step, name, *further = self.steps
        return item_type(self.kind, str(name)) if step == "field" and further in ([], [_ANY]) else None

    def within(self, *, doubtful: bool) -> _Spot:
        """In a value that is not a dict of the document."""
        return _Spot(self.kind, self.owner, self.steps, doubtful)


def _dump_element(spot: _Spot, item: Any, path: Path) -> Any:
    """One object of a `StateList`, when it is new."""
    walk = Walk()
    plain = walk.model(item, path, lists=False)
    if spot.doubtful:
        walk.met(spot.owner, (*spot.steps, type(item), digest_of(encode(plain, path))))
    if walk.unseen:
        encode(plain, path)
        adapter = spot.item_type() if spot.doubtful else None
        try:
            if adapter is None:
                back = read_back(type(item), plain)
            else:
                back = adapter.validate_python(plain, strict=False, by_alias=True, by_name=True)
        except ValidationError as e:
            raise refused(e, path) from e
        compare(item, back, path)
        walk.trust()
    return plain
