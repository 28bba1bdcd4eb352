"""Reading objects of a state back, and whether they are what they were."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from locus_store.core.codec import encode
from locus_store.core.errors import SerializationError
from locus_store.core.fields import fields_of
from locus_store.core.paths import KEY, Path, show_path

State = TypeVar("State", bound=BaseModel)

_NUMBERS = (int, float, bool)


def read_back(kind: type[State], document: Any) -> State:
    """An object of a model, made of plain data; raises pydantic's ``ValidationError``."""
    # A strict model would not take an enum's value for the enum.
    return kind.model_validate(document, strict=False, by_alias=True, by_name=True)


def refused(error: ValidationError, path: Path) -> SerializationError:
    """The error that says where the model's own validation refuses what would be stored."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return SerializationError(
        show_path((*path, *first["loc"])),
        f"what is stored of this would not be accepted when the state is loaded ({first['type']}); "
        "give the field a type that accepts it, or store plain data",
    )


def compare(then: Any, back: Any, path: Path) -> None:
    """Raise `SerializationError` if an object is not what it was."""
    found = difference(then, back, path)
    if found is not None:
        where, kind = found
        raise SerializationError(
            show_path(where),
            f"a value of type {kind.__name__} here would not come back as what it is when the state is loaded; "
            "give the field that type, or store plain data",
        )


def difference(then: Any, back: Any, path: Path) -> tuple[Path, type] | None:
    """Where two values differ first, and the type of what was there; None if they do not.

    Numbers may change their type where they stay equal, since a default is not validated (``share: float = 0``).
    Excluded fields and private attributes are not compared. What has serializers of its own is compared by what they
    give.
    """
    kind = type(then)
    if type(back) is not kind:
        return None if kind in _NUMBERS and type(back) in _NUMBERS and then == back else (path, kind)
    if isinstance(then, BaseModel):
        return _in_models(then, back, path)
    if kind is dict:
        return _in_dicts(then, back, path)
    if kind is list or kind is tuple:
        if len(then) != len(back):
            return path, kind
        return _first(difference(a, b, (*path, i)) for i, (a, b) in enumerate(zip(then, back, strict=True)))
    if is_dataclass(then) and not isinstance(then, type):
        return _first(difference(getattr(then, f.name), getattr(back, f.name), (*path, f.name)) for f in fields(then))
    return None if _equal(then, back) else (path, kind)


def _first(found: Any) -> tuple[Path, type] | None:
    return next((f for f in found if f is not None), None)


def _in_models(then: BaseModel, back: BaseModel, path: Path) -> tuple[Path, type] | None:
    known = fields_of(type(then))
    if known.serialized is None:
        return None if _equal(then.model_dump(), back.model_dump()) else (path, type(then))
    if known.serialized:
        include = set(known.serialized)
        if not _equal(then.model_dump(include=include), back.model_dump(include=include)):
            return path, type(then)
    names = known.names - known.serialized
    values, again = then.__dict__, back.__dict__
    found = _first(difference(values.get(n), again.get(n), (*path, n)) for n in values if n in names)
    return found or _in_dicts(then.__pydantic_extra__ or {}, back.__pydantic_extra__ or {}, path)


def _in_dicts(then: dict[Any, Any], back: dict[Any, Any], path: Path) -> tuple[Path, type] | None:
    if len(then) != len(back):
        return path, dict
    for (key, value), (key_back, value_back) in zip(then.items(), back.items(), strict=True):
        if type(key) is not type(key_back) or not _equal(key, key_back):
            return (*path, KEY), type(key)
        found = difference(value, value_back, (*path, key))
        if found is not None:
            return found
    return None


def _equal(then: Any, back: Any) -> bool:
    try:
        if then == back:
            return True
        if type(then) in (float, dict, list) or _lacks_equality(type(then)):
            return encode(to_jsonable_python(then)) == encode(to_jsonable_python(back))
    except (PydanticSerializationError, SerializationError, ValueError, TypeError):
        pass
    return False


def _lacks_equality(kind: type) -> bool:
    return getattr(kind, "__eq__", None) is object.__eq__
