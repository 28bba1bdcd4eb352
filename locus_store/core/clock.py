"""Times: microseconds since 1970 in UTC, strictly increasing within a process."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]
"""Returns the present in microseconds since 1970, in UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000_000
"""Microseconds of a day."""


def system_clock() -> int:
    """The system's time."""
    return time.time_ns() // 1000


def to_datetime(microseconds: int) -> datetime:
    """An aware datetime in UTC, exact to the microsecond."""
    return _EPOCH + timedelta(microseconds=microseconds)


class IncreasingClock:
    """Gives each moment once: ``max(now, last + 1)``."""

    def __init__(self, clock: Clock) -> None:
        if not callable(clock):
            raise TypeError(f"clock must be a function that returns microseconds, got {type(clock).__name__}")
        self._clock = clock
        self._last = 0

    def __call__(self) -> int:
        """A moment that no call before has returned."""
        self._last = max(self._clock(), self._last + 1)
        return self._last


process_clock = IncreasingClock(system_clock)
"""The clock of all stores of this process that were not given another."""
