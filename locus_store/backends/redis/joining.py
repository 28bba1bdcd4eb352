"""Joining blocks: fifty small ones become one field, so that a load has a fiftieth of the pieces to fetch and to read.

Blocks 1 to 50 become the field ``j50``, 51 to 100 ``j100``: by its number alone it is known where a block is, if it is
joined. What a script cannot do, which never looks into payloads, is done here, after the save of every fiftieth block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from locus_store.backends.redis.keys import Keys
from locus_store.core.driver import Key
from locus_store.core.errors import BackendError
from locus_store.core.frames import DamagedError, UnknownFormatError
from locus_store.core.payloads import join

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Server

_log = logging.getLogger(__name__)

TOGETHER = 50
"""How many blocks are joined. The scripts `get`, `unjoined` and `join` have the same number; it is never changed."""

_FEWEST = 10
_SMALL = 64 * 1024
_MOST = 1024 * 1024
_TRIES = 3
"""How often it is tried, where others remove something from the thread meanwhile."""


def fields(numbers: Iterable[int]) -> list[str]:
    """The fields in which blocks may be, by their ascending numbers: what they are joined in, and each by itself."""
    found: list[str] = []
    before = 0
    for number in numbers:
        stop = -(-number // TOGETHER) * TOGETHER
        if stop != before:
            found.append(f"j{stop}")
            before = stop
        found.append(f"b{number}")
    return found


def last(field: str) -> int:
    """The highest number of a block that a field may hold."""
    return int(field[1:])


class Joiner:
    """Joins the blocks of threads of one store.

    Args:
        server: The server.
        keys: The names of keys.
        max_piece: How many bytes one value may have.
    """

    def __init__(self, server: Server, keys: Keys, max_piece: int | None) -> None:
        self._server = server
        self._keys = keys
        self._most = _MOST if max_piece is None else min(_MOST, max_piece)

    async def after(self, key: Key, block: int) -> None:
        """Join what can be joined after a block was saved. Nothing fails if that does not: the save stands.

        Args:
            key: The thread.
            block: The block's number, 0 if the save had none.
        """
        if not block or block % TOGETHER:
            return
        try:
            for _ in range(_TRIES):
                if await self._join(key, block):
                    break
        except BackendError:
            _log.info("blocks up to %d of a thread were not joined", block, exc_info=True)

    async def _join(self, key: Key, block: int) -> bool:
        """Join the blocks up to one; False if something was removed meanwhile."""
        keys = self._keys.thread(key)
        # Neither is sent twice: a save is not to wait for what is not needed.
        found = await self._server.run("unjoined", keys, block, _FEWEST, _SMALL, self._most, again=False)
        if not found:
            return True
        removals, epoch, *payloads = found
        try:
            joined = join(payloads)
        except (DamagedError, UnknownFormatError):
            return True  # each stays by itself, so that what is wrong with one is not wrong with all
        if len(joined) > self._most:
            return True
        return bool(await self._server.run("join", keys, block, removals, epoch, joined, again=False))
