"""What of an Oracle database and a session there decides whether two ids are equal, and in what order they come."""

from __future__ import annotations

from sqlalchemy import Connection, column, select, table, union_all

from locus_store.core.errors import BackendError

BINARY = "ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY"
"""Has a session compare and sort by bytes, whatever the database's own setting is."""

CHARACTER_SET = "AL32UTF8"

_DATABASE = table("nls_database_parameters", column("parameter"), column("value"))
_SESSION = table("nls_session_parameters", column("parameter"), column("value"))
_SETTINGS = union_all(
    select(_DATABASE.c.parameter, _DATABASE.c.value).where(_DATABASE.c.parameter == "NLS_CHARACTERSET"),
    select(_SESSION.c.parameter, _SESSION.c.value).where(_SESSION.c.parameter.in_(["NLS_COMP", "NLS_SORT"])),
)
_CHECKED = "locus_store_compares_bytes"
_OPTIONS = {"schema_translate_map": None}


def check_session(connection: Connection) -> None:
    """Refuse a database or a session in which two ids could be taken for one.

    Raises:
        BackendError: The database does not store all of Unicode, or the session does not compare by bytes.
    """
    rows = connection.execute(_SETTINGS, execution_options=_OPTIONS)
    found: dict[str, str] = {row.parameter: row.value for row in rows}
    characters = found.pop("NLS_CHARACTERSET", None)
    if characters != CHARACTER_SET:
        raise BackendError(
            f"the database's character set is {characters}: it has not every character, so two ids may become one. "
            f"A store needs {CHARACTER_SET}, the default of every Oracle since 12.2"
        )
    for name, value in found.items():
        if value != "BINARY":
            raise BackendError(
                f"this session has {name} = {value}, under which different ids may be equal, or come in another order. "
                f"Have the engine's sessions begin with `{BINARY}`"
            )


def check_joined_session(connection: Connection) -> None:
    """`check_session`, once for each of the driver's connections; what a host sets after that is the host's affair."""
    if _CHECKED not in connection.info:
        check_session(connection)
        connection.info[_CHECKED] = True
