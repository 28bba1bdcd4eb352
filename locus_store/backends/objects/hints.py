"""What a process remembers of the threads that it used last: the newest record's header, so that it need not be read.

A hint is checked with every listing, which says number and etag of the newest record.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from locus_store.backends.objects.formats import Record
from locus_store.core.locks import ForkSafeLock

_MOST = 2000
_LARGEST = 16 * 1024


@dataclass(frozen=True, slots=True)
class Hint:
    """A record that was the newest one of its thread.

    Attributes:
        record: Its header.
        clean: Whether what it hides is known to be deleted.
    """

    number: int
    etag: str
    record: Record
    clean: bool


class Hints:
    """Hints by the folder of their thread, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._hints: OrderedDict[str, Hint] = OrderedDict()
        self._lock = ForkSafeLock()

    def get(self, folder: str) -> Hint | None:
        """What is remembered of a thread."""
        with self._lock:
            found = self._hints.get(folder)
            if found is not None:
                self._hints.move_to_end(folder)
            return found

    def put(self, folder: str, hint: Hint) -> None:
        """Remember a record, unless a newer one is known or it is large."""
        checkpoint = hint.record.checkpoint
        large = checkpoint is not None and len(checkpoint.metadata or b"") + 16 * len(checkpoint.terms) > _LARGEST
        with self._lock:
            found = self._hints.get(folder)
            if found is not None and found.number > hint.number:
                return
            self._hints.pop(folder, None)
            if large or len(hint.record.state.hides) > 100 or len(hint.record.state.removed.ranges) > 500:
                return
            self._hints[folder] = Hint(hint.number, hint.etag, Record(hint.record.state, checkpoint), hint.clean)
            if len(self._hints) > _MOST:
                self._hints.popitem(last=False)

    def forget(self, folder: str) -> None:
        """Remember nothing of a thread."""
        with self._lock:
            self._hints.pop(folder, None)
