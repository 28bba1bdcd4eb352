"""What this process knows of the threads that it has just saved to, so that the next save need not list the folder."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import NamedTuple

from locus_store.backends.file.folder import View
from locus_store.backends.file.names import THREAD_FILE
from locus_store.core.driver import Key

_THREADS = 64


class _Known(NamedTuple):
    generation: int
    state: tuple[int, ...]
    view: View


class Recent:
    """Views of a few threads. It is asked only while the thread's lock is held.

    A view holds as long as nobody else has had the lock (``generation`` tells) and the folder looks as it did, which it
    does not if a person has put back a copy of it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, _Known] = OrderedDict()

    def take(self, key: Key, path: str, generation: int) -> View | None:
        """What was kept of a thread, if it still holds; it is not kept any more."""
        with self._lock:
            known = self._known.pop(key, None)
        if known is None or known.generation != generation or _state(path) != known.state:
            return None
        return known.view

    def forget(self, key: Key) -> None:
        """Keep nothing of a thread, because it is about to be changed."""
        with self._lock:
            self._known.pop(key, None)

    def keep(self, key: Key, generation: int, view: View) -> None:
        """Keep what is known of a thread's folder, of which nothing has changed since."""
        state = _state(view.path)
        if state is not None:
            with self._lock:
                self._known[key] = _Known(generation, state, view)
                if len(self._known) > _THREADS:
                    self._known.popitem(last=False)


def _state(path: str) -> tuple[int, ...] | None:
    try:
        a, b = os.stat(path), os.stat(os.path.join(path, THREAD_FILE))
    except FileNotFoundError:
        return None
    return a.st_ino, a.st_mtime_ns, a.st_ctime_ns, b.st_ino, b.st_mtime_ns, b.st_ctime_ns, b.st_size
