"""The hints of one backend: what its process knows of the threads that it saved or loaded last."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from locus_store.core.driver import Base, Key
from locus_store.core.known import Known, from_loaded
from locus_store.core.loading import Loaded
from locus_store.core.locks import ForkSafeLock

Hint = Known | Loaded


@dataclass(slots=True)
class _Hints:
    """What is remembered of one thread.

    Attributes:
        last: The checkpoint that was saved or loaded last.
        newest: The newest one of those that were, if that is another: reading old ones must not cost the next save.
        weight: Bytes that they keep alive.
    """

    last: Hint
    newest: Hint | None
    weight: int


class Ledger:
    """Hints, the least recently used forgotten first.

    Args:
        limit: The most bytes that hints may keep alive.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._hints: OrderedDict[Key, _Hints] = OrderedDict()
        self._total = 0
        self._lock = ForkSafeLock()

    def get(self, key: Key) -> list[Known]:
        """What is remembered of a thread, what was used last first; what was loaded is worked out now."""
        with self._lock:
            found = self._hints.get(key)
            if found is None:
                return []
            self._hints.move_to_end(key)
            hints = [found.last] if found.newest is None else [found.last, found.newest]
        known = [from_loaded(hint) if isinstance(hint, Loaded) else hint for hint in hints]
        if known != hints:
            for hint in reversed(known):
                self.put(key, hint)
        return known

    def put(self, key: Key, hint: Hint) -> None:
        """Remember a checkpoint that was just saved or loaded."""
        with self._lock:
            found = self._hints.get(key)
            others = [] if found is None else [h for h in (found.last, found.newest) if h is not None]
            newest = None
            for other in others:
                if other.base[:2] == hint.base[:2]:
                    if isinstance(hint, Loaded):  # it is known already, and better
                        hint = _with_epoch(other, hint.base)
                elif other.base.epoch == hint.base.epoch and other.base.version > hint.base.version:
                    newest = other
            self._drop(key)
            weight = hint.weight()
            total = weight + (0 if newest is None else newest.weight())
            if total > self._limit:
                newest, total = None, weight
            if total > self._limit:
                return
            self._hints[key] = _Hints(hint, newest, total)
            self._total += total
            while self._total > self._limit:
                self._drop(next(iter(self._hints)))

    def forget(self, key: Key) -> None:
        """Remember nothing of a thread."""
        with self._lock:
            self._drop(key)

    def new_epoch(self, key: Key, before: int, after: int) -> None:
        """This process has removed entries: what it knows of the others stays true under the new epoch."""
        with self._lock:
            found = self._hints.get(key)
            if found is None:
                return
            if found.last.base.epoch == before:
                found.last = _with_epoch(found.last, found.last.base._replace(epoch=after))
            if found.newest is not None and found.newest.base.epoch == before:
                found.newest = _with_epoch(found.newest, found.newest.base._replace(epoch=after))

    def _drop(self, key: Key) -> None:
        found = self._hints.pop(key, None)
        if found is not None:
            self._total -= found.weight


def _with_epoch(hint: Hint, base: Base) -> Hint:
    if hint.base == base:
        return hint
    if isinstance(hint, Known):
        return replace(hint, base=base)
    hint.base = base
    return hint
