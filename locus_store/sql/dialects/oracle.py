"""Oracle Database 19c and newer, over python-oracledb."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, Select, exc

from locus_store.core.driver import Key, Stored
from locus_store.core.errors import BackendError, ReferencedError
from locus_store.sql.dialects.base import INSERT_THREAD, Dialect, Kind, root
from locus_store.sql.dialects.oracle_load import LOAD_BY_ID, LOAD_HEAD, stored
from locus_store.sql.dialects.oracle_session import check_joined_session
from locus_store.sql.statements import LOCK_THREAD, ThreadRow

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = "locus_store_patience"
"""The execution option of an own connection: seconds that a write waits for a lock. Oracle has no setting for it."""

DUPLICATE = 1
_NO_SCHEMA = frozenset({904, 942, 4043})
"""A table, a view or a column is not there, or this user must not know of it."""
_BLOCK = 6550
_NOT_DECLARED = ("ORA-00942", "ORA-00904", "ORA-04043")
NO_RIGHTS = frozenset({1031, 1536, 1950})
"""DDL is refused: no privilege, or no room in the tablespace."""

_KINDS = {
    DUPLICATE: Kind.DUPLICATE,
    2292: Kind.REFERENCED,
    # A deadlock undoes one statement only, so the transaction must be given up by whoever has it.
    **dict.fromkeys([60, 1555, 4020, 8177], Kind.RETRYABLE),
    **dict.fromkeys([51, 54, 4021, 30006], Kind.BUSY),
    # Sessions that were ended, instances that start or stop, listeners that know of none, and nobody let in.
    **dict.fromkeys(
        [18, 20, 22, 28, 31, 45, 602, 603, 609, 1012, 1033, 1034, 1041, 1089, 1090, 1092, 2396, 3113, 3114, 3135],
        Kind.GONE,
    ),
    **dict.fromkeys([1005, 1017, 1045, 25401, 25402, 25403, 25405, 25408, 28000, 28001, 28002], Kind.GONE),
}
_NET = range(12150, 12700)
"""Errors of Oracle Net: the way to the listener, or from there on."""

_DRIVER_KINDS = {
    # Not connected, closed while it waited, idle for too long.
    **dict.fromkeys(["DPY-1001", "DPY-4011", "DPY-4033"], Kind.GONE),
    # No such name in tnsnames.ora, no password, what is no connect string, no wallet where it should be.
    **dict.fromkeys(["DPY-4000", "DPY-4001", "DPY-4017", "DPY-4018", "DPY-4026", "DPY-4027"], Kind.GONE),
    # A server or a password that the driver cannot speak with.
    **dict.fromkeys(["DPY-3010", "DPY-3015"], Kind.GONE),
    "DPY-4024": Kind.BUSY,
}


def code(error: BaseException) -> int:
    """Oracle's number of an error, 0 if the server did not send one."""
    found = getattr(_said(error), "code", 0)
    return found if isinstance(found, int) else 0


def _said(error: BaseException) -> Any:
    arguments = root(error).args
    return arguments[0] if arguments else None


class OracleDialect(Dialect):
    """What Oracle does in its own way.

    There are no snapshots over several statements unless a transaction is read-only, so a load is one statement.
    """

    # A BLOB has at least 4 GB; what is bound or fetched as one value at most 1 GB.
    names = frozenset({"oracle"})
    max_piece = 1_000_000_000

    def joining(self) -> Dialect:
        """See `Dialect.joining`."""
        return _JOINED

    def classify(self, error: BaseException) -> Kind:
        """See `Dialect.classify`; by Oracle's number, and by the driver's own for what the server did not say."""
        if isinstance(error, exc.TimeoutError):
            return Kind.BUSY
        number = code(error)
        if number:
            found = _KINDS.get(number, Kind.GONE if number in _NET else Kind.OTHER)
            if found is not Kind.OTHER:
                return found
        name = getattr(_said(error), "full_code", "") or ""
        if name in _DRIVER_KINDS:
            return _DRIVER_KINDS[name]
        # The driver's numbers from 6000 on are about connecting.
        if name.startswith("DPY-6") or isinstance(root(error), OSError):
            return Kind.GONE
        if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
            return Kind.GONE
        return Kind.OTHER

    def lacks_schema(self, error: BaseException) -> bool:
        """See `Dialect.lacks_schema`."""
        number = code(error)
        # What is wrong with a block comes as a list, under a number of its own.
        return number in _NO_SCHEMA or (number == _BLOCK and any(name in str(error) for name in _NOT_DECLARED))

    def translate(self, error: BaseException) -> BackendError:
        """See `Dialect.translate`; without the values of a row, which a newer server shows, and the advertisements."""
        found = super().translate(error)
        cause = root(error)
        lines = [line for line in str(cause).splitlines() if not line.startswith(("Help:", "ORA-03301"))]
        said = f"{type(cause).__name__}: {' '.join(lines)}"
        kind = self.classify(error)
        if isinstance(found, ReferencedError):
            found = ReferencedError(None, said)
        else:
            found = type(found)(said if kind is Kind.OTHER else f"{self.meaning(kind, error)}: {said}")
        found.__cause__ = cause
        return found

    def lock_thread(self, connection: Connection, key: Key) -> ThreadRow | None:
        """See `Dialect.lock_thread`."""
        place = {"tenant": key.tenant, "name": key.thread_id}
        row = connection.execute(_lock(_patience(connection)), place).first()
        return None if row is None else ThreadRow._make(row)

    def insert_thread(self, connection: Connection, values: Mapping[str, Any]) -> int | None:
        """See `Dialect.insert_thread`. An error undoes the statement only."""
        try:
            with _hurry(connection):
                made = connection.execute(INSERT_THREAD, dict(values)).inserted_primary_key
        except exc.IntegrityError as error:
            if code(error) != DUPLICATE:
                raise
            return None
        return None if made is None else int(made[0])

    def get(self, connection: Connection, key: Key, checkpoint_id: str | None, now: int) -> Stored | None:
        """See `Dialect.get`; one statement, so that no seal or removal comes between."""
        place: dict[str, Any] = {"tenant": key.tenant, "name": key.thread_id, "now": now}
        if checkpoint_id is None:
            return stored(connection.execute(LOAD_HEAD, place).all())
        return stored(connection.execute(LOAD_BY_ID, place | {"checkpoint": checkpoint_id}).all())


class JoinedOracleDialect(OracleDialect):
    """Oracle on a connection of the caller's, whose session may compare in another way than ours do."""

    def check_connection(self, connection: Connection) -> None:
        """See `Dialect.check_connection`; once for each connection it asks the server."""
        check_joined_session(connection)


_JOINED = JoinedOracleDialect()


@cache
def _lock(patience: int | None) -> Select[Any]:
    return LOCK_THREAD if patience is None else LOCK_THREAD.suffix_with(f"WAIT {patience}", dialect="oracle")


def _patience(connection: Connection) -> int | None:
    return cast("int | None", connection.get_execution_options().get(PATIENCE))


@contextmanager
def _hurry(connection: Connection) -> Iterator[None]:
    """Limits how long a statement takes that waits for what another transaction has inserted: only the client can."""
    patience = _patience(connection)
    if patience is None:
        yield
        return
    with limited(connection.connection.driver_connection, patience):
        yield


@contextmanager
def limited(connection: Any, seconds: int) -> Iterator[None]:
    """Has each round trip on the driver's connection end with DPY-4024 when it takes longer than a wait and a bit.

    A lock that is waited for by FOR UPDATE WAIT is to say so itself.
    """
    before = connection.call_timeout
    connection.call_timeout = 1000 * seconds + 1000
    try:
        yield
    finally:
        connection.call_timeout = before
