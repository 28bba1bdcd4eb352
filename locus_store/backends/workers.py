"""Worker threads for calls that block: made on first use, shared by all event loops, gone after `close`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Workers:
    """A small pool of threads.

    Args:
        count: How many threads at most.
        name: What their names begin with.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        self._running: set[Future[Any]] = set()

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a worker thread.

        If the caller is cancelled, the function runs to its end, or not at all if it had not begun.
        """
        with self._lock:
            if self._pool is None or self._pid != os.getpid():  # threads do not survive a fork
                self._pool = ThreadPoolExecutor(self._count, self._name)
                self._pid = os.getpid()
                self._running = set()
            call = self._pool.submit(function)
            self._running.add(call)
        call.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(call)

    async def close(self) -> None:
        """Wait for what still runs, then end the threads. The next call makes new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
            running, self._running = self._running, set()
        if pool is None or self._pid != os.getpid():
            return
        pool.shutdown(wait=False)
        if left := [asyncio.wrap_future(call) for call in list(running)]:
            await asyncio.wait(left)
        pool.shutdown(wait=True)
