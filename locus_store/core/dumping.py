"""States as documents: any pydantic model, and back.

A state's document has the model's field names as keys and plain values: nested models become dicts, enums their values,
types that pydantic knows (paths, URLs, addresses, dataclasses) their JSON form. Lists and tuples of models become
`StateList`, so that messages which were saved before are not turned into data again.

Such conversions are undone by the model's own validation, where the field says what it expects. Where it does not (an
enum in a field of type ``Any``) the value would silently come back as something else; so the first time that a kind of
conversion is met in a place, the document is read back and compared, and refused if it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, PlainSerializer, RootModel, ValidationError, WrapSerializer
from pydantic_core import PydanticSerializationError, to_jsonable_python

from locus_store.core.codec import Path, encode, show_path
from locus_store.core.errors import SerializationError
from locus_store.core.lists import LIST, TUPLE, StateList

State = TypeVar("State", bound=BaseModel)

_LEAVES = frozenset(
    {str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID}
)
_ANY = "*"
_JSON_ONLY = ("json", "json-unless-none")
_MOST_TRUSTED = 4096

Conversion = tuple[Path, type]
"""Where a value that is no plain data was met (indexes of lists as ``*``), and its type."""


class Dumper(Generic[State]):
    """Turns states of one type into documents and back.

    Args:
        state_type: The pydantic model.
    """

    def __init__(self, state_type: type[State]) -> None:
        if not (isinstance(state_type, type) and issubclass(state_type, BaseModel)):
            raise TypeError(f"a state type must be a pydantic model, got {state_type!r}")
        if issubclass(state_type, RootModel):
            raise TypeError(f"{state_type.__name__} is a RootModel; a state must have fields")
        self.state_type = state_type
        self._trusted: set[Conversion] = set()

    def document(self, state: State) -> dict[Any, Any]:
        """The state's document.

        Raises:
            SerializationError: A value would not come back as what it is.
        """
        met: set[Conversion] = set()
        document = self._model(state, (), met, lists=True)
        unseen = met - self._trusted
        if unseen:
            self._check(state, met, unseen)
        return document

    def state(self, document: dict[Any, Any]) -> State:
        """The state again; raises pydantic's ``ValidationError`` if the document does not fit the type."""
        return self.state_type.model_validate(document, by_alias=True, by_name=True)

    # -------------------------------------------------------------------------------------------------------- walking

    def _model(self, value: BaseModel, path: Path, met: set[Conversion], *, lists: bool) -> Any:
        kind = type(value)
        serialized = _serialized_fields(kind)
        if serialized is None:
            return self._plain(value.model_dump(mode="python"), path, met)
        excluded = _excluded_fields(kind)
        dumped = value.model_dump(mode="python", include=set(serialized)) if serialized else {}
        found = {
            name: self._plain(dumped.get(name, part), (*path, name), met, lists=lists)
            for name, part in value.__dict__.items()
            if name not in excluded and name in kind.model_fields
        }
        for name, part in (value.__pydantic_extra__ or {}).items():
            found[name] = self._plain(part, (*path, name), met, lists=lists)
        return found

    def _plain(self, value: Any, path: Path, met: set[Conversion], *, lists: bool = False) -> Any:
        kind = type(value)
        if kind in _LEAVES:
            return value
        if kind is list or kind is tuple:
            return self._sequence(value, path, met, lists=lists)
        if kind is dict:
            return {
                self._key(k, path, met): self._plain(v, (*path, k), met, lists=lists) for k, v in value.items()
            }
        if kind is set or kind is frozenset:
            return kind([self._plain(v, (*path, _ANY), met) for v in value])
        met.add((path, kind))
        if isinstance(value, BaseModel):
            return self._model(value, path, met, lists=lists)
        if isinstance(value, Enum):
            return self._plain(value.value, path, met)
        if is_dataclass(value):
            return {f.name: self._plain(getattr(value, f.name), (*path, f.name), met) for f in fields(value)}
        try:
            return to_jsonable_python(value)
        except (PydanticSerializationError, ValueError):
            return value  # the codec refuses it and says where

    def _key(self, key: Any, path: Path, met: set[Conversion]) -> Any:
        if type(key) in _LEAVES or type(key) is tuple:
            return key
        return self._plain(key, (*path, "<key>"), met)

    def _sequence(self, value: Sequence[Any], path: Path, met: set[Conversion], *, lists: bool) -> Any:
        kinds = set(map(type, value))
        if kinds <= _LEAVES:
            return value
        inner = (*path, _ANY)
        if lists and all(issubclass(k, BaseModel) for k in kinds):
            met.update((inner, k) for k in kinds)
            return StateList(value, LIST if type(value) is list else TUPLE, self._dump_element)
        made = [self._plain(v, inner, met) for v in value]
        return made if type(value) is list else tuple(made)

    def _dump_element(self, item: Any, path: Path) -> Any:
        """One object of a `StateList`, when it is new."""
        met: set[Conversion] = set()
        inner = (*path[:-1], _ANY)
        plain = self._model(item, inner, met, lists=False)
        unseen = met - self._trusted
        if unseen:
            again: set[Conversion] = set()
            try:
                back = type(item).model_validate(plain, by_alias=True, by_name=True)
                same = encode(self._model(back, inner, again, lists=False)) == encode(plain, path)
            except ValidationError:
                same = False
            self._trust(met, unseen, same and again >= met)
        return plain

    # ------------------------------------------------------------------------------------------------------- checking

    def _check(self, state: State, met: set[Conversion], unseen: set[Conversion]) -> None:
        """Read the document back, once for each new kind of conversion."""
        plain = self._model(state, (), set(), lists=False)
        text = encode(plain)
        again: set[Conversion] = set()
        try:
            back = self.state(plain)
            same = encode(self._model(back, (), set(), lists=False)) == text
            self._model(back, (), again, lists=True)
        except ValidationError:
            same = False
        self._trust(met, unseen, same and again >= met)

    def _trust(self, met: set[Conversion], unseen: set[Conversion], right: bool) -> None:
        if not right:
            path, kind = min(unseen, key=repr)
            raise SerializationError(
                show_path(path),
                f"a value of type {kind.__name__} here would not come back as what it is when the state is loaded; "
                "give the field that type, or store plain data",
            )
        if len(self._trusted) < _MOST_TRUSTED:
            self._trusted |= met


_serialized: dict[type[BaseModel], frozenset[str] | None] = {}


def _serialized_fields(kind: type[BaseModel]) -> frozenset[str] | None:
    """The fields that have serializers of their own for Python data; None if the whole model has one."""
    if kind not in _serialized:
        decorators = kind.__pydantic_decorators__
        if issubclass(kind, RootModel) or decorators.model_serializers:
            _serialized[kind] = None
        else:
            found = {
                name
                for d in decorators.field_serializers.values()
                for name in d.info.fields
                if d.info.when_used not in _JSON_ONLY
            }
            found |= {
                name
                for name, f in kind.model_fields.items()
                for m in f.metadata
                if isinstance(m, (PlainSerializer, WrapSerializer)) and m.when_used not in _JSON_ONLY
            }
            _serialized[kind] = frozenset(kind.model_fields) if "*" in found else frozenset(found)
    return _serialized[kind]


_excluded: dict[type[BaseModel], frozenset[str]] = {}


def _excluded_fields(kind: type[BaseModel]) -> frozenset[str]:
    found = _excluded.get(kind)
    if found is None:
        found = _excluded[kind] = frozenset(n for n, f in kind.model_fields.items() if f.exclude)
    return found
