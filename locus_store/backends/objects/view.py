"""A thread as of one record of its log, and what is found in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from locus_store.backends.objects.formats import Record, State
from locus_store.backends.objects.hints import Hints
from locus_store.backends.objects.names import Place
from locus_store.backends.objects.port import ObjectPort
from locus_store.core.frames import Codec, DamagedError, UnknownFormatError


class Overtaken(Exception):  # noqa: N818  no error: somebody else created the record
    """Somebody else went on from the same record.

    Args:
        view: The thread as it is by now; None if that is not known.
        rival: The record that was created in place of one's own; None if it is not known.
    """

    def __init__(self, view: View | None, rival: Record | None = None) -> None:
        super().__init__("another writer was faster")
        self.view = view
        self.rival = rival


@dataclass(frozen=True, slots=True)
class View:
    """A thread as of one record of its log.

    Attributes:
        number: The record's number; 0 if there is none.
        record: What is in it; None if there is none, or it is damaged.
        listed: Numbers of records that a listing showed, the newest first; there may be more.
        clean: Whether what it hides is known to be deleted.
        damage: Why the record cannot be read.
        etag: What the service calls the record.
    """

    number: int
    record: Record | None
    listed: tuple[int, ...] = ()
    clean: bool = False
    damage: DamagedError | UnknownFormatError | None = None
    etag: str = ""

    @property
    def next(self) -> int:
        """The number of the next record."""
        return self.state.first if self.state and self.number == 0 else self.number + 1

    @property
    def state(self) -> State | None:
        """How the thread is, or was when it was deleted or expired; None if there is nothing."""
        return self.record.state if self.record else None

    def alive(self, now: int) -> State | None:
        """How the thread is; None if there is none, or it has expired. It may have keyed values only."""
        state = self.state
        if state is None or state.gone or (state.expires_at is not None and state.expires_at <= now):
            return None
        return state

    def counts(self, place: Place) -> bool:
        """Whether a checkpoint at that place is one of the thread's."""
        state = self.state
        assert state is not None
        if place.kind == "x":
            return place.token in state.swaps.values()
        in_log = place.kind == "v" and state.first <= place.number <= self.number and place.number not in state.removed
        inside = in_log or (place.kind == "w" and place.token == state.part)
        return inside and place.position not in state.hides and place.position not in state.swaps

    def place(self, position: int) -> Place:
        """Where the checkpoint of a position is."""
        state = self.state
        assert state is not None
        swap = state.swaps.get(position)
        return Place.of(position, state.part) if swap is None else Place.swap(swap)


BEHIND = 8
"""How often in a row a record that is not there must be listed before it is believed that the listing is behind."""


class Sightings:
    """How often in a row the same was seen: what does not change any more is not being changed."""

    def __init__(self) -> None:
        self._last: str | int | None = None
        self._times = 0

    def add(self, seen: str | int) -> int:
        """Take note of what was seen; how often in a row that makes."""
        self._times = self._times + 1 if seen == self._last else 1
        self._last = seen
        return self._times


class Found(NamedTuple):
    """A checkpoint that was looked for."""

    position: int
    place: Place
    record: Record


@dataclass(frozen=True, slots=True)
class Shelf:
    """What all threads of a store have in common."""

    port: ObjectPort
    prefix: str
    codec: Codec | None
    hints: Hints
