"""What of an Oracle database and a session there decides whether two ids are equal, and in what order they come."""

from __future__ import annotations

from sqlalchemy import Connection, column, select, table

from locus_store.core.errors import BackendError

BINARY = "ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY"
"""Has a session compare and sort by bytes, whatever the database's own setting is."""

CHARACTER_SET = "AL32UTF8"

_DATABASE = table("nls_database_parameters", column("parameter"), column("value"))
_SESSION = table("nls_session_parameters", column("parameter"), column("value"))
_CHARACTER_SET = select(_DATABASE.c.value).where(_DATABASE.c.parameter == "NLS_CHARACTERSET")
_COMPARISONS = select(_SESSION.c.parameter, _SESSION.c.value).where(_SESSION.c.parameter.in_(["NLS_COMP", "NLS_SORT"]))
_OPTIONS = {"schema_translate_map": None}


def check_session(connection: Connection) -> None:
    """Refuse a database or a session in which two ids could be taken for one.

    Raises:
        BackendError: The database does not store all of Unicode, or the session does not compare by bytes.
    """
    found = connection.execute(_CHARACTER_SET, execution_options=_OPTIONS).scalar()
    if found != CHARACTER_SET:
        raise BackendError(
            f"the database's character set is {found}: it has not every character, so two ids may become one. "
            f"A store needs {CHARACTER_SET}, the default of every Oracle since 12.2"
        )
    for name, value in connection.execute(_COMPARISONS, execution_options=_OPTIONS):
        if value != "BINARY":
            raise BackendError(
                f"this session has {name} = {value}, under which different ids may be equal, or come in another order. "
                f"Have the engine's sessions begin with `{BINARY}`"
            )
