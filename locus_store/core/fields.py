"""What is known of a pydantic model's fields, worked out once for each class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, PlainSerializer, RootModel, TypeAdapter, WrapSerializer
from pydantic.fields import FieldInfo

_JSON_ONLY = ("json", "json-unless-none")
_MOST_TRUSTED = 4096
_MOST_CLASSES = 4096

Place = tuple[Any, ...]
"""Where in a model a value is, for all objects of its class alike, and what kind of value it is."""


@dataclass(slots=True)
class Fields:
    """The fields of a model class.

    Attributes:
        names: Those that are stored: all but the excluded ones.
        serialized: Those that have serializers of their own for Python data; None if the whole model has one.
        doubtful: Those whose declared type does not say alone what a plain value becomes (``Any``, a union of several
            types), so that one value may come back as what it is and another one not.
        trusted: What is known to come back as what it is.
        item_types: Adapters for the elements of lists, by field.
    """

    names: frozenset[str]
    serialized: frozenset[str] | None
    doubtful: frozenset[str]
    trusted: set[Place] = field(default_factory=set)
    item_types: dict[str, TypeAdapter[Any] | None] = field(default_factory=dict)

    def trust(self, places: Iterable[Place]) -> None:
        """Remember that values come back as what they are; forget all others when there are too many."""
        if len(self.trusted) > _MOST_TRUSTED:
            self.trusted = set()
        self.trusted.update(places)


_known: dict[type[BaseModel], Fields] = {}


def fields_of(kind: type[BaseModel]) -> Fields:
    """What is known of a class."""
    found = _known.get(kind)
    if found is None:
        if len(_known) >= _MOST_CLASSES:  # a program makes classes all the time
            _known.clear()
        declared = kind.model_fields
        found = _known[kind] = Fields(
            frozenset(name for name, f in declared.items() if not f.exclude),
            _serialized(kind),
            frozenset(name for name, f in declared.items() if _doubtful(f.annotation, chosen=bool(f.discriminator))),
        )
    return found


def item_type(kind: type[BaseModel], name: str) -> TypeAdapter[Any] | None:
    """Validates one element of a field that is declared as a list or a tuple; None if it is declared otherwise."""
    known = fields_of(kind).item_types
    if name not in known:
        known[name] = None
        declared = kind.model_fields.get(name)
        annotation = None if declared is None else declared.annotation
        arguments = get_args(annotation)
        of_one_type = get_origin(annotation) is tuple and len(arguments) == 2 and arguments[1] is ...
        if of_one_type or get_origin(annotation) in (list, Sequence):
            known[name] = TypeAdapter(arguments[0])
    return known[name]


def _serialized(kind: type[BaseModel]) -> frozenset[str] | None:
    decorators = kind.__pydantic_decorators__
    if issubclass(kind, RootModel) or decorators.model_serializers:
        return None
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
    return frozenset(kind.model_fields) if "*" in found else frozenset(found)


def _doubtful(annotation: Any, *, chosen: bool = False) -> bool:
    """Whether a type leaves open what a plain value becomes.

    Args:
        annotation: The type.
        chosen: Whether a discriminator chooses between the types of a union.
    """
    origin = get_origin(annotation)
    if origin is Literal or annotation is None:
        return False
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        return _doubtful(inner, chosen=any(isinstance(m, FieldInfo) and m.discriminator for m in metadata))
    if origin is Union or origin is UnionType:
        members = [a for a in get_args(annotation) if a is not type(None)]
        return (len(members) > 1 and not chosen) or any(map(_doubtful, members))
    if origin is not None:
        return any(_doubtful(a) for a in get_args(annotation) if a is not ...)
    if not isinstance(annotation, type) or annotation is object:
        return True  # Any, a type variable, a name that is not resolved
    if issubclass(annotation, BaseModel):
        return False  # its own fields say more
    # Dataclasses, typed dicts and named tuples have fields with types of their own, which are not looked at.
    return is_dataclass(annotation) or hasattr(annotation, "__total__") or hasattr(annotation, "_fields")
