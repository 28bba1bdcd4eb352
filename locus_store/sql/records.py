"""Records: small keyed values of a thread, which may be there before its first checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Connection, bindparam, delete, func, insert, select, update

from locus_store.core.driver import Key
from locus_store.core.errors import TransactionConflictError
from locus_store.core.ids import new_epoch
from locus_store.sql import removal
from locus_store.sql.statements import RECORDS, THREADS, alive, chunks, named

if TYPE_CHECKING:
    from locus_store.sql.dialects.base import Dialect

_ATTEMPTS = 10

_OF_THREAD = RECORDS.c.thread == bindparam("of_thread")
_IN_SCOPE = RECORDS.c.scope == bindparam("in_scope")

_THERE = select(RECORDS.c.record_key, RECORDS.c.id).where(
    _OF_THREAD, _IN_SCOPE, RECORDS.c.record_key.in_(bindparam("keys", expanding=True))
)
_INSERT = insert(RECORDS)
_REPLACE = update(RECORDS).where(RECORDS.c.id == bindparam("of_row")).values(payload=bindparam("new_payload"))
_SET_EXPIRY = (
    update(THREADS).where(THREADS.c.id == bindparam("of_thread")).values(expires_at=bindparam("new_expires_at"))
)
_LIST = (
    select(RECORDS.c.scope, RECORDS.c.record_key, RECORDS.c.payload)
    .select_from(THREADS.join(RECORDS, RECORDS.c.thread == THREADS.c.id))
    .where(named(), alive())
    .order_by(RECORDS.c.scope, RECORDS.c.id)
)
_LIST_SCOPE = _LIST.where(_IN_SCOPE)
_DELETE = delete(RECORDS).where(_OF_THREAD)
_DELETE_SCOPE = _DELETE.where(_IN_SCOPE)
_COUNT = select(func.count(type_=BigInteger)).select_from(RECORDS).where(_OF_THREAD)


def put_records(
    connection: Connection,
    dialect: Dialect,
    key: Key,
    scope: str,
    items: Sequence[tuple[str, bytes]],
    keep: bool,
    now: int,
    expires_at: int | None,
) -> None:
    """See `Driver.put_records`."""
    values: dict[str, bytes] = {}
    for name, payload in items:
        if not (keep and name in values):
            values[name] = payload
            dialect.check_size(connection, payload)
    thread = _lock_or_make(connection, dialect, key, now, expires_at, make=bool(values))
    if thread is None:
        return
    connection.execute(_SET_EXPIRY, {"of_thread": thread, "new_expires_at": expires_at})
    there: dict[str, int] = {}
    for keys in chunks(list(values)):
        found = connection.execute(_THERE, {"of_thread": thread, "in_scope": scope, "keys": keys})
        there.update((name, row) for name, row in found)
    new = [
        {"thread": thread, "scope": scope, "record_key": name, "payload": payload}
        for name, payload in values.items()
        if name not in there
    ]
    # One by one where the order of first insertion is the order of the rows' ids.
    for row in new:
        connection.execute(_INSERT, row)
    if there and not keep:
        connection.execute(_REPLACE, [{"of_row": row, "new_payload": values[name]} for name, row in there.items()])


def records(connection: Connection, key: Key, scope: str | None, now: int) -> list[tuple[str, str, bytes]]:
    """See `Driver.records`."""
    place: dict[str, Any] = {"tenant": key.tenant, "name": key.thread_id, "now": now}
    if scope is None:
        rows = connection.execute(_LIST, place)
    else:
        rows = connection.execute(_LIST_SCOPE, place | {"in_scope": scope})
    return [(found, name, payload) for found, name, payload in rows]


def drop_records(connection: Connection, dialect: Dialect, key: Key, scope: str | None, now: int) -> int:
    """See `Driver.drop_records`."""
    thread = dialect.lock_thread(connection, key)
    if thread is None or thread.expired(now):
        return 0
    place: dict[str, Any] = {"of_thread": thread.id}
    if scope is None:
        count = connection.execute(_DELETE, place).rowcount
    else:
        count = connection.execute(_DELETE_SCOPE, place | {"in_scope": scope}).rowcount
    if count and not thread.head_version and not connection.execute(_COUNT, {"of_thread": thread.id}).scalar_one():
        removal.erase(connection, thread.id)
    return int(count)


def _lock_or_make(
    connection: Connection, dialect: Dialect, key: Key, now: int, expires_at: int | None, *, make: bool
) -> int | None:
    """The id of the locked thread; one without checkpoints is made if there is none."""
    for _ in range(_ATTEMPTS):
        thread = dialect.lock_thread(connection, key)
        if thread is not None and not thread.expired(now):
            return thread.id
        if not make:
            return None
        if thread is not None:
            removal.erase(connection, thread.id)
        made = dialect.insert_thread(
            connection,
            {
                "tenant": key.tenant,
                "thread_id": key.thread_id,
                "version": 0,
                "head_version": 0,
                "head_id": None,
                "block_count": 0,
                "epoch": new_epoch(),
                "created_at": now,
                "updated_at": now,
                "expires_at": expires_at,
            },
        )
        if made is not None:
            return made
    raise TransactionConflictError(f"thread {key.thread_id!r} was made and removed by others {_ATTEMPTS} times")
