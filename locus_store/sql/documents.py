"""From a row of a checkpoint, as a host has it in a session of its own, to the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import Connection, Executable, bindparam, inspect, select
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.exc import DetachedInstanceError, ObjectDeletedError

from locus_store.core.driver import Key
from locus_store.core.errors import CorruptCheckpointError, UnsupportedFormatError
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.loading import Loaded
from locus_store.sql import reading
from locus_store.sql.dialects.base import Dialect
from locus_store.sql.statements import CHECKPOINTS, THREADS

_NAMES = (
    select(THREADS.c.tenant, THREADS.c.thread_id, CHECKPOINTS.c.checkpoint_id)
    .join_from(THREADS, CHECKPOINTS, CHECKPOINTS.c.thread == THREADS.c.id)
    .where(CHECKPOINTS.c.id == bindparam("of_row"))
)
_ANY_TIME = 0
"""Whoever has a row may read it, whether its thread has expired or not."""


class _SessionConnection:
    """As much of a `Connection` as reading needs: that of a session, which it does not flush, in a class's schema."""

    def __init__(self, session: Session, mapper: Mapper[Any]) -> None:
        self._connection = session.connection(bind_arguments={"mapper": mapper})
        schema = getattr(mapper.local_table, "schema", None)
        # The default schema is left to the host, whose connection may have a translation of its own.
        self._options = {} if schema is None else {"schema_translate_map": {None: schema}}

    def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> Any:
        return self._connection.execute(statement, parameters, execution_options=self._options)


def document_of(checkpoint: Any, codec: Codec | None) -> dict[Any, Any]:
    """See `locus_store.sql.models.WithDocument.read`."""
    state = inspect(checkpoint)
    if state.session is None or state.identity is None:
        raise DetachedInstanceError(
            "this checkpoint is in no session: read its document while the session that loaded it is open"
        )
    connection = _SessionConnection(state.session, state.mapper)
    names = connection.execute(_NAMES, {"of_row": state.identity[0]}).one_or_none()
    if names is None:
        raise ObjectDeletedError(state)
    tenant, thread_id, checkpoint_id = names
    key = Key(tenant, thread_id)
    try:
        stored = reading.get(cast(Connection, connection), Dialect(), key, checkpoint_id, _ANY_TIME)
        if stored is None:
            raise ObjectDeletedError(state)
        return Loaded(stored, codec, ThreadName(*key)).document()
    except DamagedError as e:
        raise CorruptCheckpointError(thread_id, checkpoint_id, f"what is stored is damaged: {e}") from e
    except UnknownFormatError as e:
        raise UnsupportedFormatError(thread_id, checkpoint_id, str(e)) from e
