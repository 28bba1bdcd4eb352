"""Saving: `put` as statements that every database has.

The thread's row is locked first, so everything after it is serial for that thread. All checks come before the first
statement that writes, so a refused save leaves nothing, also in a transaction of the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from locus_store.core import frames
from locus_store.core.driver import (
    Conflict,
    Exists,
    Key,
    NoParent,
    Plan,
    PutResult,
    Saved,
    Stale,
)
from locus_store.core.errors import TransactionConflictError
from locus_store.core.frames import Codec
from locus_store.core.ids import new_epoch
from locus_store.core.references import References
from locus_store.sql import removal
from locus_store.sql.removal import Doomed
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, TERMS, THREADS, ThreadRow, read_references

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

_ATTEMPTS = 10
_PAGE = 500

_OF_THREAD = CHECKPOINTS.c.thread == bindparam("of_thread")
_FIND = select(
    CHECKPOINTS.c.id,
    CHECKPOINTS.c.version,
    CHECKPOINTS.c.stamp,
    CHECKPOINTS.c.parent_version,
    CHECKPOINTS.c.own_block,
    CHECKPOINTS.c.ranges,
).where(_OF_THREAD, CHECKPOINTS.c.checkpoint_id == bindparam("checkpoint"))
_STAMP = select(CHECKPOINTS.c.stamp).where(_OF_THREAD, CHECKPOINTS.c.version == bindparam("at"))
_BEYOND = (
    select(CHECKPOINTS.c.id, CHECKPOINTS.c.version, CHECKPOINTS.c.own_block, CHECKPOINTS.c.ranges)
    .where(_OF_THREAD)
    .order_by(CHECKPOINTS.c.version.desc())
    .limit(_PAGE)
    .offset(bindparam("keep"))
)
_INSERT_BLOCK = insert(BLOCKS)
_INSERT_CHECKPOINT = insert(CHECKPOINTS)
_INSERT_TERM = insert(TERMS)
_CONTENT = ("version", "parent_version", "stamp", "own_block", "first_block", "last_block", "ranges", "payload")
_NEW_CONTENT: dict[str, Any] = {name: bindparam(f"new_{name}") for name in (*_CONTENT, "metadata", "stored_size")}
_REPLACE_IN_PLACE = update(CHECKPOINTS).where(CHECKPOINTS.c.id == bindparam("of_row")).values(_NEW_CONTENT)
_REPLACE = _REPLACE_IN_PLACE.values(created_at=bindparam("new_created_at"))
_SET_THREAD = (
    update(THREADS)
    .where(THREADS.c.id == bindparam("of_thread"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("version", "head_version", "head_id", "block_count", "epoch", "updated_at", "expires_at")
        }
    )
)


class _Found(NamedTuple):
    """The checkpoint that has the id of the save."""

    row: int
    version: int
    stamp: bytes
    parent_version: int | None
    own_block: int
    ranges: bytes


def put(connection: Connection, dialect: Dialect, key: Key, plan: Plan, codec: Codec | None) -> PutResult:
    """See `Driver.put`."""
    dialect.check_size(connection, plan.payload, plan.ranges, plan.metadata)
    dialect.check_size(connection, plan.block)
    for _ in range(_ATTEMPTS):
        thread = dialect.lock_thread(connection, key)
        if thread is not None and not thread.expired(plan.now):
            return _put(connection, key, thread, plan, codec)
        if plan.expected_version:
            return Conflict(0)
        if plan.parent is not None:
            return NoParent()
        if plan.base is not None:
            return Stale()
        if thread is not None:
            removal.erase(connection, thread.id)
        saved = _put_first(connection, dialect, key, plan)
        if saved is not None:
            return saved
    raise TransactionConflictError(f"thread {key.thread_id!r} was made and removed by others {_ATTEMPTS} times")


def _put_first(connection: Connection, dialect: Dialect, key: Key, plan: Plan) -> Saved | None:
    own = 0 if plan.block is None else 1
    epoch = new_epoch()
    thread = dialect.insert_thread(
        connection,
        {
            "tenant": key.tenant,
            "thread_id": key.thread_id,
            "version": 1,
            "head_version": 1,
            "head_id": plan.checkpoint_id,
            "block_count": own,
            "epoch": epoch,
            "created_at": plan.now,
            "updated_at": plan.now,
            "expires_at": plan.expires_at,
        },
    )
    if thread is None:
        return None
    _insert_block(connection, thread, own, plan)
    values = _content(plan, 1, None, own)
    values |= {"thread": thread, "checkpoint_id": plan.checkpoint_id, "created_at": plan.now}
    connection.execute(_INSERT_CHECKPOINT, values)
    _insert_terms(connection, thread, 1, plan)
    return Saved(1, epoch, own)


def _put(connection: Connection, key: Key, thread: ThreadRow, plan: Plan, codec: Codec | None) -> PutResult:
    old = None if plan.fresh_id else _find(connection, thread.id, plan.checkpoint_id)
    if old is not None and old.stamp == plan.stamp:
        return Saved(old.version, thread.epoch, old.own_block)
    if plan.expected_version is not None and plan.expected_version != thread.head_version:
        return Conflict(thread.head_version)
    if old is not None and plan.if_exists == "error":
        return Exists()
    parent: int | None = thread.head_version or None
    if plan.parent is not None:
        named = _find(connection, thread.id, plan.parent)
        if named is None:
            return NoParent()
        parent = named.version
    if plan.base is not None:
        if plan.base.epoch != thread.epoch:
            return Stale()
        place = {"of_thread": thread.id, "at": plan.base.version}
        if connection.execute(_STAMP, place).scalar_one_or_none() != plan.base.stamp:
            return Stale()

    in_place = old is not None and plan.if_exists == "in_place"
    version = thread.version + 1
    if old is not None and (in_place or parent == old.version):
        parent = old.parent_version
    if old is not None and in_place:
        version = old.version
    block_count = thread.block_count + (plan.block is not None)
    own = 0 if plan.block is None else block_count

    # What goes is found before anything is written: a damaged block raises, and then nothing may have been.
    doomed = [] if plan.keep is None else _beyond(connection, key, thread.id, plan.keep, old, version)
    dropped = {d.version: d.references for d in doomed}
    if old is not None:
        dropped[old.version] = read_references(key, old.own_block, old.ranges)
    lost = []
    if dropped:
        added = References.parse(own, plan.ranges)
        lost = removal.losses(connection, thread.id, key, dropped, [added], codec)
    epoch = new_epoch() if lost else thread.epoch
    moment = thread.next_moment(plan.now)

    removal.delete_checkpoints(connection, thread.id, doomed)
    connection.execute(
        _SET_THREAD,
        {
            "of_thread": thread.id,
            "new_version": max(thread.version, version),
            "new_head_version": thread.head_version if in_place else version,
            "new_head_id": thread.head_id if in_place else plan.checkpoint_id,
            "new_block_count": block_count,
            "new_epoch": epoch,
            "new_updated_at": moment,
            "new_expires_at": plan.expires_at,
        },
    )
    _insert_block(connection, thread.id, own, plan)
    values = _content(plan, version, parent, own)
    if old is None:
        values |= {"thread": thread.id, "checkpoint_id": plan.checkpoint_id, "created_at": moment}
        connection.execute(_INSERT_CHECKPOINT, values)
    else:
        removal.delete_terms(connection, thread.id, [old.version])
        changed = {f"new_{name}": value for name, value in values.items()} | {"of_row": old.row}
        if in_place:
            connection.execute(_REPLACE_IN_PLACE, changed)
        else:
            connection.execute(_REPLACE, changed | {"new_created_at": moment})
    _insert_terms(connection, thread.id, version, plan)
    removal.take_out(connection, thread.id, lost)
    return Saved(version, epoch, own)


def _find(connection: Connection, thread: int, checkpoint_id: str) -> _Found | None:
    row = connection.execute(_FIND, {"of_thread": thread, "checkpoint": checkpoint_id}).first()
    return None if row is None else _Found._make(row)


def _beyond(connection: Connection, key: Key, thread: int, keep: int, old: _Found | None, version: int) -> list[Doomed]:
    """The checkpoints that are not among the newest ``keep`` once this save is there, itself always left out."""
    replaced = None if old is None else old.version
    offset = keep if replaced == version else keep - 1
    found: list[Doomed] = []
    seen_replaced = False
    while True:
        rows = connection.execute(_BEYOND, {"of_thread": thread, "keep": offset}).all()
        for row, v, own, ranges in rows:
            if v == replaced:
                seen_replaced = True
            else:
                found.append(Doomed(row, v, read_references(key, own, ranges)))
        if len(rows) < _PAGE:
            break
        offset += len(rows)
    if replaced not in (None, version) and not seen_replaced:
        del found[:1]  # the replaced row was among the newest, and leaves its place to one more
    return found


def _content(plan: Plan, version: int, parent: int | None, own: int) -> dict[str, Any]:
    return {
        "version": version,
        "parent_version": parent,
        "stamp": plan.stamp,
        "own_block": own,
        "first_block": plan.low or own,
        "last_block": own or plan.high or 0,
        "ranges": plan.ranges,
        "payload": plan.payload,
        "metadata": plan.metadata,
        "stored_size": plan.size,
    }


def _insert_block(connection: Connection, thread: int, own: int, plan: Plan) -> None:
    if plan.block is not None:
        connection.execute(
            _INSERT_BLOCK,
            {
                "thread": thread,
                "block_number": own,
                "last_number": own,
                "payload": frames.numbered(own, plan.block),
            },
        )


def _insert_terms(connection: Connection, thread: int, version: int, plan: Plan) -> None:
    if plan.terms:
        terms = dict.fromkeys(plan.terms)
        connection.execute(_INSERT_TERM, [{"thread": thread, "version": version, "term": term} for term in terms])
