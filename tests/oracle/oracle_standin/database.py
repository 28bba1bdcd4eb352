"""What a database of PostgreSQL needs so that the stand-in can work in it."""

from __future__ import annotations

from typing import Any

_VARLENA = """
CREATE TYPE {name};
CREATE FUNCTION {name}_in(cstring) RETURNS {name} LANGUAGE internal IMMUTABLE STRICT AS '{like}in';
CREATE FUNCTION {name}_out({name}) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS '{like}out';
CREATE FUNCTION {name}_recv(internal) RETURNS {name} LANGUAGE internal IMMUTABLE STRICT AS '{like}recv';
CREATE FUNCTION {name}_send({name}) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT AS '{like}send';
CREATE TYPE {name} (INPUT = {name}_in, OUTPUT = {name}_out, RECEIVE = {name}_recv, SEND = {name}_send, LIKE = {like});
CREATE CAST ({like} AS {name}) WITHOUT FUNCTION {how};
CREATE CAST ({name} AS {like}) WITHOUT FUNCTION;
"""

# A LOB has no operators, so that comparing or sorting one fails. A long bind has nothing but the way into a LOB column.
_TYPES = "".join(
    _VARLENA.format(name=name, like=like, how=how)
    for name, like, how in [
        ("blob", "bytea", "AS ASSIGNMENT"),
        ("clob", "text", "AS ASSIGNMENT"),
        ("long_raw", "bytea", ""),
        ("long_text", "text", ""),
    ]
)

_OBJECTS = """
CREATE CAST (long_raw AS blob) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (long_text AS clob) WITHOUT FUNCTION AS ASSIGNMENT;

CREATE VIEW dual AS SELECT 'X'::text AS dummy;

CREATE FUNCTION length(blob) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN octet_length($1::bytea);
CREATE FUNCTION lengthb(text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN octet_length($1);
CREATE FUNCTION hextoraw(text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT RETURN decode($1, 'hex');
CREATE FUNCTION rawtohex(bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT RETURN upper(encode($1, 'hex'));
CREATE FUNCTION oracle_greatest(VARIADIC v anycompatiblearray) RETURNS anycompatible LANGUAGE sql IMMUTABLE AS
  'SELECT CASE WHEN array_position(v, NULL) IS NULL THEN (SELECT max(e) FROM unnest(v) AS e) END';
CREATE FUNCTION oracle_least(VARIADIC v anycompatiblearray) RETURNS anycompatible LANGUAGE sql IMMUTABLE AS
  'SELECT CASE WHEN array_position(v, NULL) IS NULL THEN (SELECT min(e) FROM unnest(v) AS e) END';
CREATE FUNCTION sys_context(namespace text, parameter text) RETURNS text LANGUAGE sql STABLE STRICT RETURN
  CASE upper(namespace) || '.' || upper(parameter)
    WHEN 'USERENV.CURRENT_SCHEMA' THEN translate(current_schema(),
      'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ', 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz')
    WHEN 'USERENV.SESSION_USER' THEN 'LOCUS'
    WHEN 'USERENV.SID' THEN pg_backend_pid()::text
    WHEN 'USERENV.NLS_SORT' THEN 'BINARY'
    WHEN 'USERENV.LANGUAGE' THEN 'AMERICAN_AMERICA.AL32UTF8'
  END;

CREATE SCHEMA dbms_lob;
CREATE FUNCTION dbms_lob.getlength(blob) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN octet_length($1::bytea);
CREATE FUNCTION dbms_lob.getlength(clob) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN char_length($1::text);
CREATE SCHEMA utl_raw;
CREATE FUNCTION utl_raw.length(bytea) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT RETURN octet_length($1);
CREATE FUNCTION utl_raw.substr(r bytea, pos bigint, len bigint) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT RETURN
  pg_catalog.substr(r, pos::int, len::int);
CREATE FUNCTION utl_raw.concat(VARIADIC r bytea[]) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN
  (SELECT string_agg(piece, ''::bytea ORDER BY n) FROM unnest(r) WITH ORDINALITY AS u (piece, n));
CREATE FUNCTION utl_raw.cast_to_raw(text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT RETURN convert_to($1, 'UTF8');
CREATE FUNCTION to_char(bigint) RETURNS text LANGUAGE sql IMMUTABLE STRICT RETURN $1::text;

CREATE FUNCTION swapped(name) RETURNS text LANGUAGE sql IMMUTABLE STRICT RETURN translate($1::text,
  'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ', 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz');
CREATE VIEW all_tables AS
  SELECT swapped(schemaname) AS owner, swapped(tablename) AS table_name, NULL::text AS iot_name,
    NULL::text AS duration, 'USERS'::text AS tablespace_name
  FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema');
CREATE VIEW all_objects AS
  SELECT owner, table_name AS object_name, 'TABLE'::text AS object_type, 'N'::text AS temporary FROM all_tables;
CREATE VIEW all_views AS SELECT NULL::text AS owner, NULL::text AS view_name WHERE false;
CREATE VIEW user_tables AS SELECT * FROM all_tables WHERE owner = swapped(current_schema());
CREATE VIEW all_mviews AS SELECT NULL::text AS owner, NULL::text AS mview_name WHERE false;
CREATE VIEW all_synonyms AS
  SELECT NULL::text AS owner, NULL::text AS synonym_name, NULL::text AS table_owner, NULL::text AS table_name,
    NULL::text AS db_link WHERE false;
CREATE FUNCTION setting(name text, standard text) RETURNS text LANGUAGE sql STABLE STRICT RETURN
  coalesce(current_setting('oracle.' || name, true), standard);
CREATE VIEW nls_database_parameters AS
  SELECT p AS parameter, setting(p, v) AS value
  FROM (VALUES ('NLS_CHARACTERSET', 'AL32UTF8'), ('NLS_COMP', 'BINARY'), ('NLS_SORT', 'BINARY')) AS s (p, v);
CREATE VIEW nls_session_parameters AS SELECT * FROM nls_database_parameters WHERE parameter <> 'NLS_CHARACTERSET';
"""

SCHEMA = "locus"
"""Where a session's own tables are: the user's schema."""


async def install(url: str) -> None:
    """Make a database that is empty fit for the stand-in; its role must be allowed to make types."""
    import asyncpg

    connection: Any = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute("SET search_path = public")
        await connection.execute(_TYPES + _OBJECTS + f"CREATE SCHEMA {SCHEMA};")
        name = await connection.fetchval("SELECT quote_ident(current_database())")
        await connection.execute(f"ALTER DATABASE {name} SET search_path = {SCHEMA}, public")
    finally:
        await connection.close()
