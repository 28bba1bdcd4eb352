"""Ids: what is allowed, and how new ones are made."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

MAX_ID_BYTES = 512
MAX_TENANT_BYTES = 128
DEFAULT_TENANT = "default"


def _check(value: Any, what: str, limit: int) -> str:
    if type(value) is not str:
        if isinstance(value, str):
            return _check(str.__str__(value), what, limit)
        raise TypeError(f"{what} must be a str, got {type(value).__name__}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds a lone surrogate, which no database stores: {value[:64]!a}") from None
    if not 1 <= size <= limit:
        raise ValueError(f"{what} must have 1 to {limit} bytes of UTF-8, got {size}")
    if "\x00" in value:
        raise ValueError(f"{what} holds a NUL character: {value!a}")
    return value


def check_id(value: Any, what: str) -> str:
    """Return an id of another kind as an exact ``str``, or raise ``ValueError`` or ``TypeError`` that names it."""
    return _check(value, what, MAX_ID_BYTES)


def check_thread_id(value: Any) -> str:
    """Return the thread id as an exact ``str``, or raise ``ValueError`` or ``TypeError``."""
    return _check(value, "thread_id", MAX_ID_BYTES)


def check_checkpoint_id(value: Any) -> str:
    """Return the checkpoint id as an exact ``str``, or raise ``ValueError`` or ``TypeError``."""
    return _check(value, "checkpoint_id", MAX_ID_BYTES)


def check_tenant(value: Any) -> str:
    """Return the tenant's name as an exact ``str``, or raise ``ValueError`` or ``TypeError``."""
    return _check(value, "tenant", MAX_TENANT_BYTES)


# Asking the operating system lets other threads in, and a busy process then waits for its turn, twice a save. So it is
# asked for a key now and then. What is drawn from the key takes in the time and the process, so that a forked child, or
# a copy of a whole machine, draws something else.
_DRAWS = 1024


@dataclass(frozen=True, slots=True)
class _Source:
    key: bytes
    numbers: Iterator[int]


_source = _Source(b"", iter(()))


def _draw() -> bytes:
    """16 random bytes."""
    global _source
    source = _source
    number = next(source.numbers, None)
    if number is None:
        source = _source = _Source(os.urandom(32), iter(range(1, _DRAWS)))
        number = 0
    data = b"%d %d %d" % (number, time.time_ns(), os.getpid())
    return blake2b(data, digest_size=16, key=source.key).digest()


def new_checkpoint_id() -> str:
    """A fresh id of 32 hexadecimal digits."""
    return _draw().hex()


def new_stamp() -> bytes:
    """16 random bytes that mark one save."""
    return _draw()


def new_epoch() -> int:
    """A random number of 63 bits, never 0; drawn when a thread is made and when entries are removed."""
    return int.from_bytes(_draw()[:8], "big") >> 1 | 1
