"""Texts: what of a document is searched.

For each element of a list that dicts lead to from the document's root there is one text: of a message (a dict with
``content`` and a ``role`` or ``type``) what it says, of anything else all strings in it, line by line. One more text
are the strings of the document outside of such lists. Keys are not searched.

A checkpoint's texts are the same whether they are taken from its document or from what is stored of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from locus_store.core import frames
from locus_store.core.codec import decode_entries
from locus_store.core.compression import ZlibCodec
from locus_store.core.driver import Contents, ContentsRow
from locus_store.core.frames import REMOVED, Codec, DamagedError, Entry, ThreadName
from locus_store.core.lists import OPEN_KEYS
from locus_store.core.loading import REST
from locus_store.core.payloads import read
from locus_store.core.references import EntrySet, References

Place = tuple[int, int, int]
"""Names an entry: its list's number, its block's, and its offset among the block's entries of that list."""


def digest(text: str) -> bytes:
    """16 bytes that stand for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def hides(codec: Codec | None) -> bool:
    """Whether a codec may be there to keep stored text secret, so that an index must not have it by accident."""
    return codec is not None and not isinstance(codec, ZlibCodec)


# ------------------------------------------------------------------------------------------------------- of a document


def texts_of(document: dict[Any, Any]) -> list[str]:
    """The texts of a document, each once; those that are empty are left out."""
    return _distinct(_texts_of(document))


def _texts_of(document: dict[Any, Any]) -> Iterator[str]:
    outside: list[str] = []
    # The same walk as in `lists`: a list behind a key of another type is not taken out of its document.
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if type(value) is dict:
            items = [(type(k) in OPEN_KEYS, v) for k, v in value.items()]
            for is_open, item in reversed(items):
                waiting.append(item if is_open else _Closed(item))
        elif type(value) is list or type(value) is tuple:
            yield from map(text_of, value)
        elif type(value) is _Closed:
            outside += _strings(value.value)
        else:
            outside += _strings(value)
    yield "\n".join(outside)


class _Closed:
    """A value in which no lists are looked for."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def text_of(element: Any) -> str:
    """The text of one element of a list."""
    if type(element) is dict and "content" in element and ("role" in element or "type" in element):
        return "\n".join(_said(element["content"]))
    return "\n".join(_strings(element))


def _said(content: Any) -> Iterator[str]:
    """What a message says: its content, or what the parts of it say."""
    if type(content) is str:
        yield content
    elif type(content) is list or type(content) is tuple:
        for part in content:
            if type(part) is dict:
                yield from _said(part.get("text"))
                yield from _said(part.get("content"))
            else:
                yield from _said(part)
    elif type(content) is dict:
        yield from _strings(content)


def _strings(value: Any) -> Iterator[str]:
    """All strings in a value but keys, in its order; those of sets in alphabetical order."""
    kind = type(value)
    if kind is str:
        yield value
    elif kind is dict:
        for item in value.values():
            yield from _strings(item)
    elif kind is list or kind is tuple:
        for item in value:
            yield from _strings(item)
    elif kind is set or kind is frozenset:
        yield from sorted([text for item in value for text in _strings(item)])


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


# -------------------------------------------------------------------------------------------------- of what is stored


def texts_of_block(payload: bytes, codec: Codec | None, thread: ThreadName) -> list[str]:
    """The texts of the entries in a block's payload, each once.

    Raises:
        DamagedError: It cannot be read.
        UnknownFormatError: A newer release wrote it, or it went through another codec.
    """
    return _distinct(text for texts in _entries(payload, codec, thread).values() for text in texts)


def texts_of_rest(payload: bytes, codec: Codec | None, thread: ThreadName) -> list[str]:
    """The texts of a checkpoint's payload, each once: of what was not taken out of its document. Raises as above."""
    lines = frames.read_one(payload, codec, thread).entries()
    return texts_of(_dict(decode_entries(lines[1:2])[0])) if len(lines) > 1 else []


def texts_of_plan(block: bytes | None, payload: bytes, codec: Codec | None, thread: ThreadName) -> tuple[str, ...]:
    """The texts of what a save stores, each once: its own block (without a number) and its payload."""
    found = texts_of_rest(payload, codec, thread)
    if block is not None:
        found = [*texts_of_block(frames.numbered(1, block), codec, thread), *found]
    return tuple(dict.fromkeys(found))


def _entries(payload: bytes, codec: Codec | None, thread: ThreadName) -> dict[Place, list[str]]:
    """For each entry in a block's payload its texts: one, or of a rest of a document all that it has."""
    found: dict[Place, list[str]] = {}
    for frame in read(payload, codec, thread):
        places = [(listed, frame.number, i) for listed, count in frame.counts for i in range(count)]
        entries: list[tuple[Place, Entry]] = [
            pair for pair in zip(places, frame.entries(), strict=True) if pair[1].kind != REMOVED
        ]
        values = decode_entries([entry for _, entry in entries])
        for (place, _), value in zip(entries, values, strict=True):
            found[place] = texts_of(_dict(value)) if place[0] == REST else [text_of(value)]
    return found


def _dict(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise DamagedError("the rest is not a dict")
    return value


# ------------------------------------------------------------------------------------------------------- of a thread


class Holder(NamedTuple):
    """The oldest checkpoint that holds a text."""

    version: int
    checkpoint_id: str


def holders(contents: Contents, codec: Codec | None, thread: ThreadName) -> dict[str, Holder]:
    """All texts of a thread, each with the oldest of its checkpoints that holds it.

    What is damaged has no text that could be found.

    Raises:
        UnknownFormatError: A newer release wrote something of it, or it went through another codec.
    """
    entries: dict[Place, list[str]] = {}
    for block in contents.blocks:
        try:
            entries.update(_entries(block, codec, thread))
        except DamagedError:
            continue
    by_block: dict[int, list[Place]] = {}
    for place in entries:
        by_block.setdefault(place[1], []).append(place)
    found: dict[str, Holder] = {}
    seen = EntrySet({})
    for row in sorted(contents.checkpoints, key=lambda row: row.version):
        holder = Holder(row.version, row.checkpoint_id)
        try:
            references = References.parse(row.own_block, row.ranges)
        except ValueError:
            continue
        new = EntrySet.of([references]).minus(seen)
        if new:
            seen = EntrySet.of([references]).plus(seen)
            for text in _texts_in(new, by_block, entries):
                found.setdefault(text, holder)
        for text in _texts_of_row(row, codec, thread):
            found.setdefault(text, holder)
    found.pop("", None)
    return found


def _texts_in(wanted: EntrySet, by_block: dict[int, list[Place]], entries: dict[Place, list[str]]) -> Iterator[str]:
    for first, last in wanted.blocks():
        numbers: Sequence[int] = range(first, last + 1)
        if len(numbers) > len(by_block):
            numbers = [n for n in sorted(by_block) if first <= n <= last]
        for number in numbers:
            for place in by_block.get(number, ()):
                if wanted.has(*place):
                    yield from entries[place]


def _texts_of_row(row: ContentsRow, codec: Codec | None, thread: ThreadName) -> list[str]:
    try:
        return texts_of_rest(row.payload, codec, thread)
    except DamagedError:
        return []
