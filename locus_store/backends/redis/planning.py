"""Planning removals: what goes with some checkpoints is worked out here, and done by a script if it still holds.

A script cannot read payloads, so it cannot take entries out of a block. It is told what to do, and checks in the same
step that it still holds: that no checkpoint came or went (guard ``g``), or, where neighbours alone show that nothing is
lost, that none went (guard ``s``), for those that come take nothing away.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from locus_store.backends.redis import joining, layout
from locus_store.core import payloads
from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError, TransactionConflictError, UnsupportedFormatError
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.ids import new_epoch
from locus_store.core.references import EntrySet, References, unreferenced

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Server

T = TypeVar("T")

_ATTEMPTS = 300
_AT_A_TIME = 500
_PIECE = 4 * 1024 * 1024
"""About how many bytes of blocks one reply carries."""


class ChangedError(Exception):
    """What was read has changed meanwhile; begin again."""


@dataclass(frozen=True)
class Removal:
    """What a script is to do.

    Attributes:
        guard: Which of the thread's counts must be as it was, ``"g"`` or ``"s"``.
        count: That count.
        ids: The checkpoints that go.
        epoch: The epoch afterwards, or None if no block loses anything.
        blocks: Fields of blocks and what is left of them; nothing if they go.
    """

    guard: str
    count: bytes
    ids: Sequence[str]
    epoch: int | None = None
    blocks: Sequence[tuple[str, bytes]] = ()

    def joined(self) -> bytes:
        """The ids as scripts take them."""
        return "\0".join(self.ids).encode()

    def changes(self) -> list[bytes | str]:
        """The blocks as scripts take them."""
        return [part for pair in self.blocks for part in pair]


@dataclass
class Survey:
    """What is known of a thread's checkpoints.

    Attributes:
        epoch: The epoch.
        changes: How often the checkpoints have changed.
        removals: How often some went.
        block_count: The number of the newest block.
        saved: Whether it has checkpoints, and not records only.
        expired: Whether the thread has expired.
        rows: Version and references of the checkpoints, by id.
    """

    epoch: int
    changes: bytes
    removals: bytes
    block_count: int
    saved: bool
    expired: bool
    rows: dict[str, tuple[int, References]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The highest version that is known of."""
        return max([version for version, _ in self.rows.values()], default=0)


class Planner:
    """Finds out what must go with some checkpoints of a thread.

    Args:
        server: The server.
        key: The thread.
        keys: Its keys.
        codec: What its frames went through.
        now: The time of the call.
    """

    def __init__(self, server: Server, key: Key, keys: Sequence[bytes], codec: Codec | None, now: int) -> None:
        self._server = server
        self._key = key
        self._keys = keys[:3]
        self._codec = codec
        self._now = now
        self._known: Survey | None = None

    async def until_done(self, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """Plan a removal and try it, again and again until it is done; others of this process wait meanwhile.

        Args:
            attempt: Does it, and returns None, or raises `ChangedError`, if the thread has changed meanwhile.
        """
        async with await self._server.lock(self._key):
            for tried in range(_ATTEMPTS):
                if tried:
                    await asyncio.sleep(random.uniform(0, min(0.02, 0.001 * tried)))  # noqa: S311 - no secret
                with contextlib.suppress(ChangedError):
                    done = await attempt()
                    if done is not None:
                        return done
        raise TransactionConflictError(
            f"thread {self._key.thread_id!r} was changed by others {_ATTEMPTS} times while a removal was planned;"
            " try again"
        )

    async def survey(self, ids: Sequence[str] = ()) -> Survey | None:
        """Read about all checkpoints, or about some and their neighbours; None if there is no thread.

        Of all checkpoints only those are read that came since the last time, if none went.
        """
        known = None if ids else self._known
        above = 0 if known is None else known.newest
        found = await self._read(above, ids)
        if found is None:
            return None
        if known is not None:
            if found.removals != known.removals or found.epoch != known.epoch:
                found = await self._read(0, ids)
                if found is None:
                    return None
            else:
                found.rows = known.rows | found.rows
        if not ids:
            self._known = found
        return found

    async def _read(self, above: int, ids: Sequence[str]) -> Survey | None:
        reply = await self._server.run("survey", self._keys, self._now, above, "\0".join(ids))
        if not reply:
            return None
        found = Survey(int(reply[0]), reply[1], reply[2], int(reply[3]), bool(reply[4]), bool(reply[5]))
        for at in range(6, len(reply), 3):
            checkpoint_id = reply[at].decode()
            try:
                found.rows[checkpoint_id] = int(reply[at + 1]), layout.read(reply[at + 2]).references()
            except DamagedError as e:
                raise CorruptCheckpointError(self._key.thread_id, checkpoint_id, str(e)) from e
            except UnknownFormatError as e:
                raise UnsupportedFormatError(self._key.thread_id, checkpoint_id, str(e)) from e
        return found

    def near(self, survey: Survey, ids: Sequence[str], gone: Sequence[str], added: References | None) -> Removal | None:
        """Plan by the neighbours of what goes: they usually hold what it holds.

        Args:
            survey: What goes, and its neighbours.
            ids: The checkpoints that go.
            gone: Those whose references go: these, and one that is replaced.
            added: What a new checkpoint refers to.

        Returns:
            None if all checkpoints must be looked at.
        """
        dropped, kept = _parted(survey, gone, added)
        return None if unreferenced(dropped, kept) else Removal("s", survey.removals, ids)

    async def whole(self, survey: Survey, ids: Sequence[str], gone: Sequence[str], added: References | None) -> Removal:
        """Plan by all checkpoints, which the survey holds; the arguments are those of `near`.

        Raises:
            ChangedError: The blocks have changed since the survey.
        """
        dropped, kept = _parted(survey, gone, added)
        lost = unreferenced(dropped, kept)
        blocks = await self._losses(survey, lost, EntrySet.of(kept).blocks()) if lost else []
        return Removal("g", survey.changes, ids, new_epoch() if blocks else None, blocks)

    async def _losses(self, survey: Survey, lost: EntrySet, used: Sequence[tuple[int, int]]) -> list[tuple[str, bytes]]:
        numbers = [
            number for first, last in lost.blocks() for number in range(first, min(last, survey.block_count) + 1)
        ]
        needed = set(joining.fields([number for first, last in used for number in range(first, last + 1)]))
        names = joining.fields(numbers)
        found = [(name, b"") for name in names if name not in needed]
        shared = [name for name in names if name in needed]
        async for name, stored in blocks(self._server, self._keys, shared, survey.removals, survey.epoch):
            left = self._strip(stored, lost)
            if left is not stored:
                found.append((name, left or b""))
        return found

    def _strip(self, payload: bytes, lost: EntrySet) -> bytes | None:
        try:
            return payloads.strip(payload, lost, self._codec, ThreadName(*self._key))
        except UnknownFormatError as e:
            raise UnsupportedFormatError(self._key.thread_id, None, f"a block cannot be rewritten: {e}") from e
        except DamagedError:
            return payload  # it cannot be rewritten, and somebody needs it


async def blocks(
    server: Server, keys: Sequence[bytes], names: Sequence[str], removals: bytes, epoch: int
) -> AsyncIterator[tuple[str, bytes]]:
    """Name and payload of those of some fields with blocks that are there, a few megabytes at a time.

    Args:
        server: The server.
        keys: The thread's keys.
        names: The fields' names.
        removals: The thread's count of removals.
        epoch: Its epoch.

    Raises:
        ChangedError: Either is no more what was given.
    """
    at = 0
    while at < len(names):
        reply = await server.run("blocks", keys, _PIECE, *names[at : at + _AT_A_TIME])
        if reply[0] != removals or int(reply[1]) != epoch:
            raise ChangedError
        for name, payload in zip(names[at:], reply[2:], strict=False):
            if payload:
                yield name, payload
        at += len(reply) - 2


def _parted(survey: Survey, gone: Sequence[str], added: References | None) -> tuple[list[References], list[References]]:
    """What is dropped and what is kept."""
    going = set(gone)
    dropped = [refs for name, (_, refs) in survey.rows.items() if name in going]
    kept = [refs for name, (_, refs) in survey.rows.items() if name not in going]
    return dropped, kept if added is None else [*kept, added]
