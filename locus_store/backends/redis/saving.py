"""Saving: one script call, with a removal planned before it where the save takes something away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from locus_store.backends.redis.index import Index
from locus_store.backends.redis.keys import Keys
from locus_store.backends.redis.planning import Planner, Removal
from locus_store.backends.redis.shorthand import pack
from locus_store.core.driver import Conflict, Exists, Key, NoParent, Plan, PutResult, Saved, Stale
from locus_store.core.errors import CorruptCheckpointError
from locus_store.core.frames import Codec
from locus_store.core.ids import new_epoch
from locus_store.core.references import References

if TYPE_CHECKING:
    from locus_store.backends.redis.server import Argument, Server

_OWN_BLOCK = 2**53
"""Stands for the number of a block that is not there yet."""


class Saver:
    """Saves into the threads of one store.

    Args:
        server: The server.
        keys: The names of keys.
        index: The index.
        codec: What frames go through.
    """

    def __init__(self, server: Server, keys: Keys, index: Index, codec: Codec | None) -> None:
        self._server = server
        self._keys = keys
        self._index = index
        self._codec = codec

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        if not self._server.cluster:
            return _result(await self._put(key, plan))
        terms = b"".join(plan.terms)
        score = await self._index.announce(key, plan.now, terms)
        reply = await self._put(key, plan)
        if reply[0] == b"S":
            await self._index.settle(key, score, int(reply[4]), terms, reply[5])
        else:  # the thread is what it was; an announcement of one that is not there is taken back
            await self._index.settle(key, score, int(reply[2] or 0) or None)
        return _result(reply)

    async def _put(self, key: Key, plan: Plan) -> Any:
        reply = await self._send(key, plan, None)
        if reply[0] == b"N":
            planner = Planner(self._server, key, self._keys.thread(key), self._codec, plan.now)
            said = reply

            async def attempt() -> Any:
                nonlocal said
                said = await self._send(key, plan, await _removal_for(planner, plan, said))
                return None if said[0] == b"N" else said

            reply = await planner.until_done(attempt)
        if reply[0] == b"D":
            raise CorruptCheckpointError(
                key.thread_id, plan.checkpoint_id, "it was to be replaced, and what is stored is damaged"
            )
        return reply

    async def _send(self, key: Key, plan: Plan, removal: Removal | None) -> Any:
        base = ("", "", "") if plan.base is None else (plan.base.version, plan.base.stamp.hex(), plan.base.epoch)
        metadata = (-1, b"") if plan.metadata is None else (len(plan.metadata), plan.metadata)
        planned: Sequence[Argument] = ("", "", "", "")
        if removal is not None:
            planned = (removal.guard, removal.count, removal.joined(), _or_empty(removal.epoch), *removal.changes())
        return await self._server.run(
            "put",
            self._keys.of(key),
            key.thread_id,
            plan.now,
            plan.checkpoint_id,
            plan.stamp.hex(),
            plan.parent or "",
            *base,
            _or_empty(plan.expected_version),
            plan.if_exists,
            _or_empty(plan.low),
            _or_empty(plan.high),
            plan.ranges,
            pack(plan.payload),
            *metadata,
            plan.size,
            _or_empty(plan.expires_at),
            _or_empty(plan.keep),
            new_epoch(),
            b"".join(dict.fromkeys(plan.terms)),
            int(plan.block is not None),
            plan.block or b"",
            *planned,
        )


async def _removal_for(planner: Planner, plan: Plan, said: Any) -> Removal:
    """What goes when a save replaces a checkpoint, or older ones are more than are kept.

    Args:
        planner: The planner of the thread.
        plan: The save.
        said: The script's answer: which ones go, and whether one is replaced.
    """
    ids = [one.decode() for one in said[1].split(b"\0") if one]
    gone = [*ids, plan.checkpoint_id] if said[5] else ids
    added = References.parse(_OWN_BLOCK, plan.ranges)
    survey = await planner.survey(gone)
    removal = None if survey is None else planner.near(survey, ids, gone, added)
    if removal is None:
        survey = await planner.survey()
        removal = None if survey is None else await planner.whole(survey, ids, gone, added)
    return Removal("g", b"", ids) if removal is None else removal


def _result(reply: Any) -> PutResult:
    match reply[0]:
        case b"S":
            return Saved(int(reply[1]), int(reply[2]), int(reply[3]))
        case b"C":
            return Conflict(int(reply[1]))
        case b"E":
            return Exists()
        case b"P":
            return NoParent()
        case _:
            return Stale()


def _or_empty(value: int | None) -> int | str:
    return "" if value is None else value
