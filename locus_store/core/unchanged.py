"""Finding out, exactly and cheaply, that elements of a list are still what they were.

Exact means bytes, or the identity of what cannot change, never ``==``: True, 1 and 1.0 are equal, and so are dicts
whose keys stand in another order.

- Plain data is compared by `marshal` (version 2, which knows no references): it is exact for the types of plain JSON,
  keeps nothing of the caller's alive, and raises on subclasses.
- Objects of frozen models are compared by identity, and what they hold that can still change (a dict, a list) by its
  content: what was empty must be empty, plain data must have the same bytes, a list of frozen models the same objects.

What cannot be compared in one of these ways is encoded and compared by digest, which is slow and always right. All
sequences here only ever grow at their end, so a later state of knowledge shares them with an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from itertools import chain, islice, repeat
from marshal import dumps
from operator import is_
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from locus_store.core.codec import Path, encode
from locus_store.core.errors import SerializationError
from locus_store.core.frames import PLAIN, RAW, Entry

_IMMUTABLE = frozenset(
    {str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, Decimal, UUID}
)
_MARSHAL_VERSION = 2


_SLOW = b"="
"""Begins a mark that is a digest of the encoded element; no bytes of marshal begin so."""


def mark_of(item: Any, entry: Entry | None) -> bytes:
    """The bytes by which an element of plain data is recognised.

    Args:
        item: The element.
        entry: Its encoding, if it is known already. Where marshal cannot tell exactly (it raises, or the element holds
            bytes, which marshal takes for any other buffer) the mark is a digest of it.
    """
    if entry is None or (entry.kind != RAW and b'"$bytes"' not in entry.data):
        try:
            return dumps(item, _MARSHAL_VERSION)
        except ValueError:
            pass
    return _SLOW + digest_of(entry if entry is not None else encode_entry(item, ()))


def encode_entry(value: Any, path: Path) -> Entry:
    """Encode one element of a list; bytes are kept as they are."""
    if type(value) is bytes:
        return Entry(value, RAW)
    return encode(value, path)


def digest_of(entry: Entry) -> bytes:
    """16 bytes that tell encoded entries apart."""
    return blake2b(entry.kind + entry.data, digest_size=16).digest()


class Marks:
    """Recognises elements of plain data.

    Attributes:
        marks: Of each element; there may be more, which belong to a later state.
        count: How many elements are remembered.
        slow: Whether some of the marks are digests.
    """

    __slots__ = ("count", "marks", "slow")

    def __init__(self, marks: list[bytes], count: int, slow: bool) -> None:
        self.marks = marks
        self.count = count
        self.slow = slow

    def unchanged(self, items: Sequence[Any]) -> bool:
        """Whether the first ``count`` items are the remembered ones."""
        if len(items) < self.count:
            return False
        if self.slow:
            return all(map(self.recognises, islice(items, self.count), self.marks))
        try:
            now = list(map(dumps, islice(items, self.count), repeat(_MARSHAL_VERSION)))
        except ValueError:
            return False
        return now == (self.marks if len(self.marks) == self.count else self.marks[: self.count])

    @staticmethod
    def recognises(item: Any, mark: bytes) -> bool:
        """Whether an element is the one that has the mark."""
        try:
            if mark.startswith(_SLOW):
                return mark[1:] == digest_of(encode_entry(item, ()))
            return mark == dumps(item, _MARSHAL_VERSION)
        except (ValueError, SerializationError):
            return False

    def extended(self, items: Sequence[Any], entries: Sequence[Entry | None]) -> Marks:
        """With further elements, given with their encodings."""
        more = list(map(mark_of, items, entries))
        marks = self.marks if len(self.marks) == self.count else self.marks[: self.count]
        marks.extend(more)
        slow = self.slow or any([m.startswith(_SLOW) for m in more])
        return Marks(marks, self.count + len(more), slow)

    def cut(self, count: int) -> Marks:
        """The first ``count`` elements only."""
        return Marks(self.marks[:count], count, self.slow)


class _Watched(NamedTuple):
    """How much of each of a `Watch`'s sequences belongs to a state of knowledge."""

    objects: int = 0
    empty: int = 0
    plain: int = 0
    lists: int = 0


class Watch:
    """Recognises objects of frozen models, and notices when what they hold has changed."""

    __slots__ = ("_at", "_empty", "_lists", "_members", "_objects", "_plain", "_plain_marks")

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._empty: list[Any] = []
        self._plain: list[Any] = []
        self._plain_marks: list[bytes] = []
        self._lists: list[list[Any]] = []
        self._members: list[tuple[Any, ...]] = []
        self._at = _Watched()

    @property
    def count(self) -> int:
        """How many elements are watched."""
        return self._at.objects

    def unchanged(self, items: Sequence[Any]) -> bool:
        """Whether the first ``count`` items are the very same objects, with the same content."""
        at = self._at
        if len(items) < at.objects or not all(map(is_, islice(items, at.objects), self._objects)):
            return False
        if any(islice(self._empty, at.empty)):
            return False
        if at.plain:
            try:
                now = list(map(dumps, islice(self._plain, at.plain), repeat(_MARSHAL_VERSION)))
            except ValueError:
                return False
            if now != self._plain_marks[: at.plain]:
                return False
        if at.lists:
            lists, members = self._lists[: at.lists], self._members[: at.lists]
            if list(map(len, lists)) != list(map(len, members)):
                return False
            return all(map(is_, chain.from_iterable(lists), chain.from_iterable(members)))
        return True

    def extended(self, items: Sequence[Any]) -> Watch | None:
        """With further objects; None if one of them could change in a way that would not be seen."""
        made = self._copy()
        try:
            for item in items:
                made._objects.append(item)
                made._add(item)
        except _Unwatchable:
            return None
        made._at = _Watched(len(made._objects), len(made._empty), len(made._plain), len(made._lists))
        return made

    def cut(self, count: int) -> Watch | None:
        """The first ``count`` objects only."""
        return Watch().extended(self._objects[:count])

    def _copy(self) -> Watch:
        """Shares the sequences if nobody has extended them since, else copies what belongs to this one."""
        made = Watch()
        at = self._at
        shared = len(self._objects) == at.objects
        made._objects = self._objects if shared else self._objects[: at.objects]
        made._empty = self._empty if shared else self._empty[: at.empty]
        made._plain = self._plain if shared else self._plain[: at.plain]
        made._plain_marks = self._plain_marks if shared else self._plain_marks[: at.plain]
        made._lists = self._lists if shared else self._lists[: at.lists]
        made._members = self._members if shared else self._members[: at.lists]
        return made

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _IMMUTABLE or isinstance(value, Enum):
            return
        if kind is tuple or kind is frozenset:
            for part in value:
                self._add(part)
        elif isinstance(value, BaseModel) and value.model_config.get("frozen"):
            for part in value.__dict__.values():
                self._add(part)
            for part in (value.__pydantic_extra__ or {}).values():
                self._add(part)
        elif kind is list or kind is dict:
            self._add_container(value)
        else:
            raise _Unwatchable

    def _add_container(self, value: list[Any] | dict[Any, Any]) -> None:
        if not value:
            self._empty.append(value)
            return
        if isinstance(value, list) and all(isinstance(v, BaseModel) for v in value):
            self._lists.append(value)
            self._members.append(tuple(value))
            for part in value:
                self._add(part)
            return
        try:
            if encode(value).kind != PLAIN:
                raise _Unwatchable
        except SerializationError as e:
            raise _Unwatchable from e
        self._plain.append(value)
        self._plain_marks.append(dumps(value, _MARSHAL_VERSION))


class _Unwatchable(Exception):
    """An object holds something that could change unseen."""
