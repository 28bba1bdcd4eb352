"""The lists of a document: where they are, and how they are taken out and put back.

A list or tuple that is reached from the root through dicts only can be taken out. What is left, the rest, has None in
its place, so that the order of keys stays. Behind keys that are neither text nor whole numbers nothing is taken out: a
key that is not equal to itself (NaN) would not be found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from locus_store.core.errors import SerializationError
from locus_store.core.marks import MAX_DEPTH, why_not
from locus_store.core.paths import Path, show_path

LIST, TUPLE = "l", "t"
OPEN_KEYS = frozenset({str, int, bool})
"""The types of keys behind which lists are taken out."""


class StateList:
    """A list of a state whose elements are objects, each turned into plain data only when that is needed.

    Args:
        items: The objects.
        kind: LIST or TUPLE: what the document holds in this place.
        dump: Turns one object into plain data; takes the object and its path.
    """

    __slots__ = ("dump", "items", "kind")

    def __init__(self, items: Sequence[Any], kind: str, dump: Callable[[Any, Path], Any]) -> None:
        self.items = items
        self.kind = kind
        self.dump = dump

    def plain(self, path: Path) -> Any:
        """The list as plain data."""
        made = [self.dump(item, (*path, i)) for i, item in enumerate(self.items)]
        return made if self.kind == LIST else tuple(made)


@dataclass(slots=True)
class Found:
    """A list in a document.

    Attributes:
        path: The keys that lead to it.
        items: Its elements, in a sequence of our own.
        kind: LIST or TUPLE.
        state_list: What it came from, if it is a state's.
        holder: The dict of the rest that has None in its place.
    """

    path: Path
    items: Sequence[Any]
    kind: str
    state_list: StateList | None
    holder: dict[Any, Any]

    def put_back(self) -> None:
        """Leave the list in the rest after all."""
        if self.state_list is not None:
            self.holder[self.path[-1]] = self.state_list.plain(self.path)
        else:
            self.holder[self.path[-1]] = self.items

    def plain_item(self, index: int) -> Any:
        """One element as plain data."""
        item = self.items[index]
        return item if self.state_list is None else self.state_list.dump(item, self.path_of(index))

    def path_of(self, index: int) -> Path:
        """The path of one element; the rest is the element of a list that is not in the document."""
        return (*self.path, index) if self.path else ()


def take_out(document: dict[Any, Any]) -> tuple[dict[Any, Any], list[Found]]:
    """The document without its lists, as a copy, and the lists."""
    if type(document) is not dict:
        raise SerializationError("$", why_not(document))
    found: list[Found] = []
    try:
        return _take_out(document, (), found), found
    except RecursionError as e:
        raise SerializationError("$", "nested too deeply for the stack that is left") from e


def _take_out(source: dict[Any, Any], path: Path, found: list[Found]) -> dict[Any, Any]:
    if len(path) > MAX_DEPTH:
        raise SerializationError(
            show_path(path[:12]) + " …", f"nested more than {MAX_DEPTH} levels deep, or contains itself"
        )
    rest: dict[Any, Any] = {}
    for key, value in source.items():
        kind = type(value)
        if kind is StateList:
            rest[key] = None
            items = value.items if type(value.items) is tuple else tuple(value.items)
            found.append(Found((*path, key), items, value.kind, value, rest))
        elif type(key) not in OPEN_KEYS:
            rest[key] = value
        elif kind is dict:
            rest[key] = _take_out(value, (*path, key), found)
        elif kind is list or kind is tuple:
            rest[key] = None
            found.append(Found((*path, key), value[:], LIST if kind is list else TUPLE, None, rest))
        else:
            rest[key] = value
    return rest


def put_back(rest: dict[Any, Any], lists: Iterable[tuple[Path, str, list[Any]]]) -> dict[Any, Any]:
    """Put decoded lists, given as (path, kind, elements), into a decoded rest.

    Raises:
        LookupError: They do not fit.
    """
    for path, kind, items in lists:
        holder = rest
        for key in path[:-1]:
            holder = holder[key]
        if path[-1] not in holder:
            raise LookupError(show_path(path))
        holder[path[-1]] = items if kind == LIST else tuple(items)
    return rest
