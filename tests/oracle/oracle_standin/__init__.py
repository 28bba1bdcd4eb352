"""A stand-in for an Oracle database: python-oracledb's asynchronous interface over a real PostgreSQL. It is no Oracle.

SQLAlchemy's own dialect ``oracle+oracledb_async`` speaks to it, and with it all of this package's Oracle code: each
statement is checked by `oracle.checks`, translated token by token (`translate`), and run by PostgreSQL 18. What
differs between the two databases and matters here is done as Oracle does it:

- An empty text or byte string is NULL, in binds and literals, and a column that is NOT NULL then refuses it.
- Lengths count bytes. A bind of more than 4,000 bytes may only go straight into a LOB column (ORA-01461 otherwise), of
  more than 32,767 bytes into no variable of a block. A LOB has no comparison, no DISTINCT and no ORDER BY.
- LOBs come back as LOB objects unless the call, or a type handler, asks for values.
- A failed statement undoes itself and not the transaction. DDL commits. There is no BEGIN.
- Errors are python-oracledb's exceptions with Oracle's codes, and connections that are lost say DPY-4011.
- GREATEST and LEAST of a NULL are NULL; names are folded to capitals; there is a table DUAL.

What this does *not* show: that Oracle's own parser takes the statements (the lint and the grammar stand for that),
Oracle's optimizer and speed, real round trips of the thin protocol, restarts of statements whose rows changed (PostgreSQL
evaluates the new row instead), ITL waits, what a LOB locator does over time, and everything nobody thought of. A block of
PL/SQL is run as `blocks` says, which knows the few shapes this package sends.
"""

from oracle.oracle_standin.connection import StandInConnection, creator
from oracle.oracle_standin.database import install
from oracle.oracle_standin.journal import JOURNAL

__all__ = ["JOURNAL", "StandInConnection", "creator", "install"]
