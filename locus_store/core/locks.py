"""A lock that a forked child finds open."""

from __future__ import annotations

import os
from threading import Lock
from types import TracebackType
from weakref import WeakSet


class ForkSafeLock:
    """A lock between threads; the thread that held it when the process was forked is not in the child."""

    def __init__(self) -> None:
        self._lock = Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = Lock()


_all: WeakSet[ForkSafeLock] = WeakSet()


def _after_fork() -> None:
    for lock in _all:
        lock._renew()


os.register_at_fork(after_in_child=_after_fork)
