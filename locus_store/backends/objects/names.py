"""The keys of objects: ids made safe, numbers that sort newest first.

    <prefix>.locus/<tenant>/m/<inverted µs>.<expiry µs or 0>.<mark>.<thread>   a marker: a thread written at that time
    <prefix>.locus/<tenant>/d/<thread>/v/<inverted number>       a record of the thread's log; 0 says where it begins
    <prefix>.locus/<tenant>/d/<thread>/w/<token>/<inverted version>     a copied checkpoint
    <prefix>.locus/<tenant>/d/<thread>/x/<token>                 what an old checkpoint was replaced with in place
    <prefix>.locus/<tenant>/d/<thread>/i/<checkpoint id>/<place> says where the checkpoint with that id is
    <prefix>.locus/<tenant>/d/<thread>/r/<life>/<inverted number>       keyed values of the thread

A tenant, a thread's id and a checkpoint's id stand in a key with every byte outside ``[A-Za-z0-9_-]`` as ``.`` and two
hexadecimal digits: all that is left needs no escaping anywhere. An id that would be too long stands there as ``.h`` and
its SHA-256; the id itself is inside the object. A token begins with the time at which it was drawn.
"""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from locus_store.core.driver import Key

DEFAULT_PREFIX = "locus/checkpoints/"
"""What the keys of all objects begin with, if nothing else is said."""
LONGEST_PREFIX = 256
OURS = ".locus"
"""The segment that no prefix has and that follows each, so that one store's objects are never taken for another's."""
_LONGEST = 190
_DIGITS = 16
_NUMBERS: int = 10**_DIGITS
_TIMES = 10**20
_plain = re.compile(r"[A-Za-z0-9_-]*", re.ASCII).fullmatch
_BYTES = [chr(b) if _plain(chr(b)) else f".{b:02X}" for b in range(256)]
_escaped = re.compile(rb"\.([0-9A-F]{2})")

COPIED = -_NUMBERS
"""Positions from here up to 0 are those of copied checkpoints; those above 0 are numbers in the log."""


@lru_cache(maxsize=4096)
def encode(text: str) -> str:
    """An id, as it stands in a key."""
    if len(text) <= _LONGEST and _plain(text):
        return text
    data = text.encode()
    name = "".join([_BYTES[b] for b in data])
    return name if len(name) <= _LONGEST else f".h{sha256(data).hexdigest()}"


def decode(name: str) -> str | None:
    """The id that `encode` was given, or None if that cannot be told."""
    if "." not in name:
        return name
    if name.startswith(".h"):
        return None
    try:
        return _escaped.sub(lambda m: bytes([int(m[1], 16)]), name.encode()).decode()
    except UnicodeDecodeError:
        return None


def check_prefix(prefix: str) -> str:
    """A prefix of keys as it is used: empty, or ending with a slash."""
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a str, got {type(prefix).__name__}")
    segments = prefix.strip("/").split("/")
    if prefix.strip("/") and any(s in ("", ".", "..") for s in segments):
        raise ValueError(f"prefix must have no empty segment and no '.' or '..', got {prefix!r}")
    if OURS in segments:
        raise ValueError(f"prefix must have no segment {OURS!r}, under which stores keep their objects, got {prefix!r}")
    if not prefix.isprintable() or len(prefix.encode()) > LONGEST_PREFIX:
        raise ValueError(f"prefix must be printable and have at most {LONGEST_PREFIX} bytes, got {prefix[:64]!a}")
    return f"{prefix.strip('/')}/" if prefix.strip("/") else ""


def probes(prefix: str) -> str:
    """What the keys of objects begin with that tell what a service can do."""
    return f"{prefix}{OURS}/.probe/"


def number_before_first() -> int:
    """A number for the log of a new thread to begin after: one that no thread of this id before it came to.

    Whoever is late with the removal of that one then deletes nothing of the new one. It is the time in microseconds,
    since no thread changes more often.
    """
    return time.time_ns() // 1000


def token(now: int) -> str:
    """A name that nobody else uses, drawn at a time."""
    return f"{max(now, 0):020d}-{os.urandom(8).hex()}"


def time_of(name: str) -> int:
    """When a token was drawn."""
    return int(name[:20])


def _number(value: int) -> str:
    return f"{_NUMBERS - 1 - value:0{_DIGITS}d}"


def _value(text: str) -> int:
    return _NUMBERS - 1 - int(text)


class Marker(NamedTuple):
    """What a marker's key says.

    Attributes:
        mark: A random name that the thread's state has as well.
        thread: The thread's id as it stands in keys.
    """

    updated_at: int
    expires_at: int | None
    mark: str
    thread: str


class Place(NamedTuple):
    """Where a checkpoint is: ``v`` with a number of the log, ``w`` with token and version, ``x`` with a token."""

    kind: str
    token: str
    number: int

    @classmethod
    def of(cls, position: int, part: str | None) -> Place:
        """The place of a position in which nothing was replaced."""
        return cls("v", "", position) if position > 0 else cls("w", part or "", position - COPIED)

    @classmethod
    def swap(cls, token: str) -> Place:
        """The place of what an old checkpoint was replaced with."""
        return cls("x", token, 0)

    @property
    def position(self) -> int:
        """The position of a ``v`` or ``w``: they sort as the checkpoints' versions do."""
        return self.number if self.kind == "v" else self.number + COPIED

    def text(self) -> str:
        """As it stands in the key of an ``i``."""
        if self.kind == "v":
            return f"v{_number(self.number)}"
        return f"x{self.token}" if self.kind == "x" else f"w{self.token}.{_number(self.number)}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read what `text` wrote."""
        if text[0] == "v":
            return cls("v", "", _value(text[1:]))
        if text[0] == "x":
            return cls("x", text[1:], 0)
        owner, _, number = text[1:].partition(".")
        return cls("w", owner, _value(number))


class Tenant:
    """The keys of one tenant.

    Args:
        prefix: What all keys of the store begin with.
        tenant: Its name.
    """

    def __init__(self, prefix: str, tenant: str) -> None:
        root = f"{prefix}{OURS}/{encode(tenant)}/"
        self.markers = f"{root}m/"
        self.threads = f"{root}d/"

    def marker(self, updated_at: int, expires_at: int | None, mark: str, thread: str) -> str:
        """The marker of a thread, whose id is as in keys; markers sort by time, the newest first."""
        return f"{self.markers}{_TIMES - 1 - updated_at:020d}.{max(expires_at or 0, 0)}.{mark}.{thread}"

    def parse_marker(self, key: str) -> Marker:
        """Read a marker's key."""
        updated, expires, mark, thread = key[len(self.markers) :].split(".", 3)
        return Marker(_TIMES - 1 - int(updated), int(expires) or None, mark, thread)

    def thread_of(self, key: str) -> str:
        """Whose an object of a thread is, as it stands in keys."""
        return key[len(self.threads) :].partition("/")[0]


class Folder:
    """The keys of one thread.

    Args:
        prefix: What all keys of the store begin with.
        key: The thread.
        name: The thread's id as it stands in keys, where only that is known.
    """

    def __init__(self, prefix: str, key: Key, name: str | None = None) -> None:
        self.tenant = Tenant(prefix, key.tenant)
        self.name = name or encode(key.thread_id)
        self.root = f"{self.tenant.threads}{self.name}/"
        self.log = f"{self.root}v/"
        self.ids = f"{self.root}i/"

    def at(self, place: Place) -> str:
        """The object with a checkpoint."""
        if place.kind == "v":
            return f"{self.log}{_number(place.number)}"
        if place.kind == "x":
            return f"{self.root}x/{place.token}"
        return f"{self.part(place.token)}{_number(place.number)}"

    def number(self, number: int) -> str:
        """A record of the log."""
        return f"{self.log}{_number(number)}"

    def part(self, token: str) -> str:
        """What the keys of copied checkpoints begin with."""
        return f"{self.root}w/{token}/"

    def ids_of(self, checkpoint_id: str) -> str:
        """What the keys that say where a checkpoint is begin with."""
        return f"{self.ids}{encode(checkpoint_id)}/"

    def id_at(self, checkpoint_id: str, place: Place) -> str:
        """The object that says that a checkpoint is at a place."""
        return f"{self.ids_of(checkpoint_id)}{place.text()}"

    def values_of(self, life: str) -> str:
        """What the keys of a life's keyed values begin with."""
        return f"{self.root}r/{life}/"

    def value(self, life: str, number: int) -> str:
        """Keyed values that were stored in one step."""
        return f"{self.values_of(life)}{_number(number)}"

    def parse(self, key: str) -> tuple[str, str, Place | None]:
        """Kind, token (of a ``w``, ``x``) or name (of an ``i``, an ``r``), and the place that a key is or points at."""
        kind, *rest = key[len(self.root) :].split("/")
        if kind == "v":
            return kind, "", Place("v", "", _value(rest[0]))
        if kind == "w":
            return kind, rest[0], Place("w", rest[0], _value(rest[1]))
        if kind == "x":
            return kind, rest[0], Place("x", rest[0], 0)
        if kind == "i":
            return kind, rest[0], Place.parse(rest[1])
        return kind, rest[0], None


def number_of(key: str) -> int:
    """The number at the end of a key."""
    return _value(key[-_DIGITS:])
