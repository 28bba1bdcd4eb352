"""Metadata of checkpoints: how it is encoded, found by terms, and what a query matches.

A query matches by containment. A dict matches a dict that has at least its keys, with values that match; a list matches
a list in which each of its elements is matched by some element (the order does not count); everything else matches what
is equal and of the same type, with two exceptions that make it what people expect: ``1`` matches ``1.0``, and ``None``
matches an explicit null only. ``True`` is not ``1``, and a tuple is not a list.

Terms are digests of (path, type, value), drawn from metadata when it is saved and from a query when it is asked. All
terms of a query are necessary; `matches` decides where they do not suffice (dicts within lists).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from hashlib import blake2b
from math import isfinite
from typing import Any

from locus_store.core.codec import decode, encode
from locus_store.core.errors import SerializationError
from locus_store.core.frames import MARKED, PLAIN, Entry
from locus_store.core.paths import KEY, MEMBER, show_path

Metadata = Mapping[str, Any]


def encode_metadata(metadata: Metadata | None) -> bytes | None:
    """Metadata as text, or None.

    Raises:
        TypeError: It is no mapping.
        SerializationError: It holds what cannot be stored, or a float that is not finite, or a key that is or holds a
            Decimal that is no number: NaN equals nothing, so no query could ever find it.
    """
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict, got {type(metadata).__name__}")
    plain = dict(metadata)
    entry = encode(plain)
    _refuse_not_finite(plain, ())
    return entry.kind + entry.data


def decode_metadata(text: bytes | None) -> dict[Any, Any] | None:
    """The metadata again."""
    if text is None:
        return None
    found: dict[Any, Any] = decode(Entry(text[1:], MARKED if text[:1] == MARKED else PLAIN))
    return found


def _refuse_not_finite(value: Any, path: tuple[Any, ...], in_key: bool = False) -> None:
    if (type(value) is float and not isfinite(value)) or (in_key and type(value) is Decimal and value.is_nan()):
        raise SerializationError(show_path(path), f"metadata cannot hold {value!r}: no query could find it")
    if type(value) is dict:
        for key, item in value.items():
            _refuse_not_finite(key, (*path, KEY), in_key=True)
            _refuse_not_finite(item, (*path, key))
    elif type(value) in (list, tuple, set, frozenset):
        for i, item in enumerate(value):
            _refuse_not_finite(item, (*path, i if type(value) in (list, tuple) else MEMBER), in_key)


def terms(tenant: str, metadata: Metadata) -> tuple[bytes, ...]:
    """The digests by which metadata is found, or which a query asks for."""
    return tuple(sorted({_digest(tenant, parts) for parts in _parts(dict(metadata), ())} - {_digest(tenant, ("{}",))}))


def _digest(tenant: str, parts: tuple[Any, ...]) -> bytes:
    return blake2b(encode([tenant, *parts]).data, digest_size=16, person=b"locus_store:term").digest()


def _parts(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    kind = type(value)
    if kind is dict:
        yield (*path, "{}")
        for key, item in value.items():
            yield from _parts(item, (*path, ["k", key]))
    elif kind is list or kind is tuple:
        yield (*path, "[]" if kind is list else "()")
        for item in value:
            yield from _parts(item, (*path, "[*]" if kind is list else "(*)"))
    else:
        yield (*path, *_typed(value))


def _typed(value: Any) -> tuple[str, Any]:
    """The type and value by which a leaf is compared."""
    kind = type(value)
    if kind is float and value.is_integer():
        return "number", int(value)
    return ("number" if kind is int or kind is float else kind.__name__), value


def matches(query: Any, value: Any) -> bool:
    """Whether a value matches a query."""
    kind = type(query)
    if kind is dict:
        return type(value) is dict and all(_same_key(k, value) and matches(q, value[k]) for k, q in query.items())
    if kind is list or kind is tuple:
        return type(value) is kind and all(any(matches(q, v) for v in value) for q in query)
    if type(value) in (dict, list, tuple):
        return False
    return encode(list(_typed(query))) == encode(list(_typed(value)))


def _same_key(key: Any, value: dict[Any, Any]) -> bool:
    """Whether the dict has the key itself, not one that is only equal to it."""
    if key not in value:
        return False
    return type(key) is str or any(k == key and encode(k) == encode(key) for k in value)
