"""What a store is set up with, and the checks of arguments that several calls share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from locus_store.core import ids
from locus_store.core.clock import Clock
from locus_store.core.frames import Codec

LONGEST_SECONDS = 10_000 * 365 * 86_400
"""The longest span of time that is taken, 10,000 years: what lies beyond no database counts in microseconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a store was set up with.

    Attributes:
        clock: Gives the time.
        tenant: The owner of all threads that the store sees.
        ttl_seconds: How long a thread lives after its last save, or None for ever. Reading does not extend it.
        keep_checkpoints: How many of the newest checkpoints of a thread stay after a save, or None for all.
        codec: What stored bytes go through, or None.
    """

    clock: Clock
    tenant: str = ids.DEFAULT_TENANT
    ttl_seconds: float | None = None
    keep_checkpoints: int | None = None
    codec: Codec | None = None

    def __post_init__(self) -> None:
        ids.check_tenant(self.tenant)
        if self.ttl_seconds is not None:
            check_span(self.ttl_seconds, "ttl_seconds", LONGEST_SECONDS)
            if self.ttl_seconds == 0:
                raise ValueError("ttl_seconds must be above 0, got 0")
        if self.keep_checkpoints is not None:
            check_count(self.keep_checkpoints, "keep_checkpoints", 1)
        if self.codec is not None and not all(hasattr(self.codec, n) for n in ("name", "bound", "encode", "decode")):
            found = type(self.codec).__name__
            raise TypeError(f"codec must have name, bound, encode and decode (see locus_store.Codec), got {found}")


def check_optional_id(checkpoint_id: str | None, what: str = "checkpoint_id") -> str | None:
    """Return a checkpoint id that may be None, or raise ``ValueError`` or ``TypeError``."""
    return None if checkpoint_id is None else ids.check_id(checkpoint_id, what)


def check_span(value: Any, what: str, most: float) -> None:
    """Raise unless a value is a span of time from 0 to ``most``."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}")
    if not 0 <= value <= most:
        raise ValueError(f"{what} must be from 0 to {most:,}, got {value}")


def check_limit(limit: int | None) -> None:
    """Raise unless a limit is None or a number of at least 0."""
    if limit is not None:
        check_count(limit, "limit", 0)


def check_count(value: Any, what: str, least: int) -> None:
    """Raise unless a value is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{what} must be at least {least}, got {value}")
