"""The backends that the shared suite runs over: the one table, and what tests may do to their storage behind their backs.

A `Place` is where the data of one test lies, empty at first. Any number of backends can be opened on it, here and (where
`capabilities.shared` says so) in other processes: ``elsewhere.connect(place.address)``. A new backend is one class here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import shutil
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlencode, urlsplit

import opensearch_servers
import s3_servers
import servers
from bucket_contents import BucketContents
from oci_buckets import OCI_BUCKET, OCIBucket
from oracle.oracle_standin import JOURNAL
from oracle.oracle_standin.backend import StandInBackend
from redis_servers import RedisCluster, RedisServer

from locus_store.backends.file import FileBackend
from locus_store.backends.file.formats import load as read_header
from locus_store.backends.memory import MemoryBackend
from locus_store.backends.mysql import MySQLBackend
from locus_store.backends.objects.oci import OCIBucketBackend
from locus_store.backends.objects.s3 import S3Backend
from locus_store.backends.opensearch import OpenSearchBackend
from locus_store.backends.oracle import OracleBackend
from locus_store.backends.oracle.options import address as oracle_address
from locus_store.backends.postgresql import PostgreSQLBackend
from locus_store.backends.redis import RedisBackend
from locus_store.backends.redis import joining as redis_joining
from locus_store.backends.redis import layout as redis_layout
from locus_store.backends.sqlite import SQLiteBackend
from locus_store.core.backend import Backend
from locus_store.core.capabilities import EVERYTHING_SHARED, Capabilities
from locus_store.sql.models import Block, Checkpoint, Schema, metadata

ORACLE_URL = "LOCUS_STORE_TEST_ORACLE_URL"
"""The environment variable that names a real Oracle database."""

Change = Callable[[bytes], bytes]

EVERYTHING = Capabilities(
    metadata_query=True,
    vacuum=True,
    branching=True,
    ttl=True,
    list_threads=True,
    list_with_metadata=True,
    persistent_checkpoint_ids=True,
    persistent=True,
    shared=True,
    incremental=True,
    records=True,
    reclaim=True,
    transactions=True,
)
TABLES = [name for name in metadata.tables if name != Schema.__tablename__]


class Place(ABC):
    """Where the data of one test lies.

    Attributes:
        name: What the table calls this backend.
        capabilities: What its backends are expected to declare.
        pooled: Options under which a backend has one connection only; None where it has no pool.
        address: What `elsewhere.connect` needs in another process.
        url: What `locus_store.open_backend` takes; None where no URL leads there.
    """

    name: str
    capabilities = EVERYTHING
    pooled: dict[str, Any] | None = None
    address: str
    url: str | None = None

    @abstractmethod
    def open(self, **options: Any) -> Backend:
        """A backend on this place; each has its own memory of what it saved."""

    @abstractmethod
    def count(self) -> int:
        """How many rows, files, objects are stored, in everything there is; without the schema's own."""

    @abstractmethod
    def size(self) -> int:
        """How many bytes the stored payloads, blocks, ranges and metadata have."""

    @abstractmethod
    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        """Changes the payload of a checkpoint, or the block that its save added, by hand."""

    @abstractmethod
    def payloads(self, checkpoint_id: str) -> list[bytes]:
        """What is stored of a checkpoint: its payload, and the block that its save added."""

    def back_up(self) -> Callable[[], None]:
        """Keeps a copy of all that is stored, as an administrator would; what is returned puts it back."""
        raise NotImplementedError

    def reading(self) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Counts the bytes of stored data that are read in its block, as the storage counts them."""
        raise NotImplementedError

    def grow_old(self) -> None:  # noqa: B027  most leave nothing unfinished
        """Makes what killed processes left unfinished so old that it is nobody's any more."""

    @classmethod
    def why_unavailable(cls) -> str | None:
        """Why this backend cannot run here, if it needs no server; None if it can."""
        return None

    def assert_nothing_open(self) -> None:  # noqa: B027  what a process has open is looked at anyway
        """Asserts that no store is connected, where the storage can tell."""


# --- memory -----------------------------------------------------------------------------------------------------------


class MemoryPlace(Place):
    name = "memory"
    url = "memory://"
    address = json.dumps(["locus_store.backends.memory", "MemoryBackend", {}])
    capabilities = dataclasses.replace(
        EVERYTHING, persistent=False, shared=False, reclaim=False, transactions=False, search=True
    )

    def __init__(self, **_: Any) -> None:
        self._driver: Any = None

    def open(self, **options: Any) -> Backend:
        if self._driver is not None:
            return Backend(self._driver, **options)
        store = MemoryBackend(**options)
        self._driver = store._driver
        return store

    def _threads(self) -> list[Any]:
        return [t for threads in self._driver._tenants.values() for t in threads.values()] if self._driver else []

    def count(self) -> int:
        return sum(1 + len(t.checkpoints) + len(t.versions) + len(t.blocks) + len(t.records) for t in self._threads())

    def size(self) -> int:
        return sum(
            sum(map(len, t.blocks.values()))
            + sum(len(c.payload) + len(c.ranges) + len(c.metadata or b"") for c in t.checkpoints.values())
            for t in self._threads()
        )

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        thread, found = self._find(checkpoint_id)
        if what == "block":
            thread.blocks[found.own_block] = change(thread.blocks[found.own_block])
        else:
            thread.checkpoints[found.version] = dataclasses.replace(found, payload=change(found.payload))

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        thread, found = self._find(checkpoint_id)
        return [found.payload] + ([thread.blocks[found.own_block]] if found.own_block else [])

    def _find(self, checkpoint_id: str) -> tuple[Any, Any]:
        ((thread, found),) = [(t, t.find(checkpoint_id)) for t in self._threads() if t.find(checkpoint_id) is not None]
        return thread, found

    def back_up(self) -> Callable[[], None]:
        kept = {tenant: {k: t.copy() for k, t in threads.items()} for tenant, threads in self._driver._tenants.items()}

        def restore() -> None:
            self._driver._tenants = {tenant: dict(threads) for tenant, threads in kept.items()}

        return restore


# --- files ------------------------------------------------------------------------------------------------------------


class FilePlace(Place):
    name = "file"
    capabilities = dataclasses.replace(EVERYTHING, reclaim=False, transactions=False, search=True)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return None if importlib.util.find_spec("fcntl") else "this platform has no fcntl.flock"

    def __init__(self, *, folder: Path, **_: Any) -> None:
        self.path = folder / "store"
        self.url = self.path.as_uri()
        self.address = json.dumps(["locus_store.backends.file", "FileBackend", {"base_dir": str(self.path)}])

    def open(self, **options: Any) -> Backend:
        return FileBackend(base_dir=str(self.path), **options)

    def _files(self) -> list[Path]:
        """All files and folders but those that belong to the store as such: locks, tenants."""
        found = [p for p in self.path.rglob("*") if p.relative_to(self.path).parts[0] != ".locks"]
        return [p for p in found if p.is_file() or len(p.relative_to(self.path).parts) > 1]

    def count(self) -> int:
        return len(self._files())

    def size(self) -> int:
        return sum(p.stat().st_size for p in self._files() if p.is_file())

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        path, _ = self._find(checkpoint_id) if what == "payload" else self._block(checkpoint_id)
        data = path.read_bytes()
        end = read_header(data)[1] if data[:1] == b"{" else 0
        path.write_bytes(data[:end] + change(data[end:]))

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        path, fields = self._find(checkpoint_id)
        data = path.read_bytes()
        found = [data[read_header(data)[1] :]]
        return [*found, self._block(checkpoint_id)[0].read_bytes()] if fields["own_block"] else found

    def _find(self, checkpoint_id: str) -> tuple[Path, dict[str, Any]]:
        for path in self.path.rglob("c*"):
            if path.is_file():
                fields, _ = read_header(path.read_bytes())
                if fields["checkpoint_id"] == checkpoint_id:
                    return path, fields
        raise LookupError(checkpoint_id)

    def _block(self, checkpoint_id: str) -> tuple[Path, int]:
        path, fields = self._find(checkpoint_id)
        (block,) = path.parent.glob(f"b*{fields['own_block']}")
        return block, fields["own_block"]

    def back_up(self) -> Callable[[], None]:
        copy = self.path.with_name(f"backup-{os.urandom(4).hex()}")
        shutil.copytree(self.path, copy)

        def restore() -> None:
            shutil.rmtree(self.path)
            shutil.copytree(copy, self.path)

        return restore

    def grow_old(self) -> None:
        for path in self.path.glob(".tmp/*"):
            os.utime(path, (1, 1))

    def reading(self) -> contextlib.AbstractContextManager[Callable[[], int]]:
        return read_by_this_process()


# --- SQLite -----------------------------------------------------------------------------------------------------------


class SQLitePlace(Place):
    name = "sqlite"
    capabilities = dataclasses.replace(EVERYTHING, search=True)

    def __init__(self, *, folder: Path, **_: Any) -> None:
        self.path = folder / "store.db"
        self.url = f"sqlite:///{self.path}"
        self.address = json.dumps(["locus_store.backends.sqlite", "SQLiteBackend", {"path": str(self.path)}])

    def open(self, **options: Any) -> Backend:
        return SQLiteBackend(path=str(self.path), **options)

    def disk(self) -> int:
        """How many bytes the files have."""
        return sum(p.stat().st_size for p in self.path.parent.glob("store.db*"))

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Runs one statement, by a connection of its own."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchall()

    def count(self) -> int:
        return sum(self.execute(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES) if self.path.exists() else 0

    def size(self) -> int:
        return int(self.execute(_SIZE)[0][0])

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        for old in self.payloads(checkpoint_id)[slice(1) if what == "payload" else slice(1, None)]:
            table = Checkpoint.__tablename__ if what == "payload" else Block.__tablename__
            self.execute(f"UPDATE {table} SET payload = ? WHERE payload = ?", (change(old), old))

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        return [row[0] for row in self.execute(_PAYLOADS.format("?1"), (checkpoint_id,))]

    def back_up(self) -> Callable[[], None]:
        copy = self.path.with_name(f"backup-{os.urandom(4).hex()}.db")
        _copy_sqlite(self.path, copy)
        return lambda: _copy_sqlite(copy, self.path)

    def reading(self) -> contextlib.AbstractContextManager[Callable[[], int]]:
        return read_by_this_process()


def _copy_sqlite(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source, timeout=10)) as a,
        contextlib.closing(sqlite3.connect(target, timeout=10)) as b,
    ):
        a.backup(b)


_SIZE = (
    "SELECT (SELECT coalesce(sum(length(payload) + length(ranges) + coalesce(length(metadata), 0)), 0)"
    " FROM locus_store_checkpoints) + (SELECT coalesce(sum(length(payload)), 0) FROM locus_store_blocks)"
)
_PAYLOADS = (
    "SELECT payload FROM (SELECT 1 AS n, payload FROM locus_store_checkpoints WHERE checkpoint_id = {0} UNION ALL"
    " SELECT 2, b.payload FROM locus_store_blocks b JOIN locus_store_checkpoints c ON c.thread = b.thread"
    " AND c.own_block BETWEEN b.block_number AND b.last_number WHERE c.checkpoint_id = {0}) AS found ORDER BY n"
)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class PostgreSQLPlace(Place):
    name = "postgresql"
    capabilities = dataclasses.replace(EVERYTHING, search=True)
    pooled: ClassVar = {"min_pool_size": 1, "max_pool_size": 1}

    def __init__(self, *, server: servers.PostgreSQLServer, url: str, empty: bool = False, **_: Any) -> None:
        self.server = server
        self.url = url
        self.address = json.dumps(["locus_store.backends.postgresql", "PostgreSQLBackend", {"dsn": url}])
        if not empty:
            self.clear()

    def open(self, **options: Any) -> Backend:
        return PostgreSQLBackend(dsn=self.url, **options)

    def disk(self) -> int:
        """How many bytes the database takes."""
        return int(self.execute("SELECT pg_database_size(current_database())")[0][0])

    def execute(self, *statements: str) -> list[Any]:
        """Runs statements, by a connection of its own."""
        return self.server.execute(*statements, url=self.url)

    def count(self) -> int:
        return sum(row[0] for row in self.execute(" UNION ALL ".join(f"SELECT count(*) FROM {t}" for t in TABLES)))

    def size(self) -> int:
        return int(self.execute(_SIZE)[0][0])

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        for old in self.payloads(checkpoint_id)[slice(1) if what == "payload" else slice(1, None)]:
            table = Checkpoint.__tablename__ if what == "payload" else Block.__tablename__
            self.execute(
                rf"UPDATE {table} SET payload = '\x{change(old).hex()}' WHERE payload = '\x{old.hex()}'",
            )

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        literal = "'" + checkpoint_id.replace("'", "''") + "'"
        return [row[0] for row in self.execute(_PAYLOADS.format(literal))]

    def clear(self) -> None:
        self.execute(_THROW_OUT, *[f"DELETE FROM {table}" for table in TABLES])
        if self.execute("SELECT to_regclass('locus_store_search_queue')")[0][0] is not None:
            self.execute(*[f"DROP FUNCTION locus_store_search_note_{n} CASCADE" for n in NOTED], _NO_INDEX, _NO_RECORD)

    def connections(self, state: str = "%") -> int:
        """How many connections other than this one the database has, in a state."""
        rows = self.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
            f" AND pid <> pg_backend_pid() AND state LIKE '{state}'"
        )
        return int(rows[0][0])

    def assert_nothing_open(self) -> None:
        # The server needs a moment to notice that a client has gone.
        deadline = time.monotonic() + 15
        while self.connections() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.connections() == 0

    def throw_out(self) -> None:
        """Ends all connections of all stores."""
        self.execute(_THROW_OUT)

    def back_up(self) -> Callable[[], None]:
        kept = {table: self.execute(f"SELECT * FROM {table}") for table in TABLES}

        def restore() -> None:
            servers.run_apart(_put_rows(self.url, kept))

        return restore

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[[], int]]:
        # What PostgreSQL keeps outside of its rows, which is where payloads of some size are.
        start = self._toast_blocks()
        yield lambda: 8192 * (self._toast_blocks() - start)

    def _toast_blocks(self) -> int:
        # A session's numbers are seen by others when it ends, or a second later.
        self.throw_out()
        return int(
            self.execute(
                "SELECT pg_sleep(0.05)",
                "SELECT coalesce(sum(toast_blks_read + toast_blks_hit), 0)::bigint FROM pg_statio_user_tables",
            )[0][0]
        )


NOTED = ("threads", "blocks", "checkpoints")
_NO_INDEX = "DROP TABLE locus_store_search_queue, locus_store_search_texts, locus_store_search_places"
_NO_RECORD = "DELETE FROM locus_store_schema WHERE id = 2"
_THROW_OUT = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def _put_rows(url: str, kept: dict[str, list[Any]]) -> None:
    import asyncpg

    connection = await asyncpg.connect(url, timeout=10)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {', '.join(kept)}")
            for table, rows in kept.items():
                await connection.execute(f"DELETE FROM {table}")
                if rows:
                    await connection.copy_records_to_table(
                        table, records=map(tuple, rows), columns=list(rows[0].keys())
                    )
    finally:
        await connection.close()


# --- Oracle, or what stands for it ------------------------------------------------------------------------------------


class OracleStandInPlace(PostgreSQLPlace):
    """The store's Oracle code over the stand-in (tests/oracle/oracle_standin), which runs on PostgreSQL: no Oracle."""

    name = "oracle-standin"
    capabilities = dataclasses.replace(EVERYTHING, reclaim=False)

    def __init__(self, **needed: Any) -> None:
        super().__init__(**needed)
        self.address = json.dumps(["oracle.oracle_standin.backend", "StandInBackend", {"url": self.url}])

    def open(self, **options: Any) -> Backend:
        return StandInBackend(self.url, **options)

    def size(self) -> int:
        # The type of a LOB is one of the stand-in's own, which has no functions of PostgreSQL's.
        columns = {Checkpoint.__tablename__: ("payload", "ranges", "metadata"), Block.__tablename__: ("payload",)}
        sums = [
            f"(SELECT coalesce(sum({' + '.join(f'coalesce(length({c}::bytea), 0)' for c in names)}), 0) FROM {table})"
            for table, names in columns.items()
        ]
        return int(self.execute(f"SELECT {' + '.join(sums)}")[0][0])

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        for old in self.payloads(checkpoint_id)[slice(1) if what == "payload" else slice(1, None)]:
            table = Checkpoint.__tablename__ if what == "payload" else Block.__tablename__
            new = change(old).hex()
            self.execute(rf"UPDATE {table} SET payload = '\x{new}' WHERE payload::bytea = '\x{old.hex()}'")

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        literal = "'" + checkpoint_id.replace("'", "''") + "'"
        return [
            row[0] for row in self.execute(_PAYLOADS.format(literal).replace("SELECT payload", "SELECT payload::bytea"))
        ]

    def back_up(self) -> Callable[[], None]:
        name = f"backup_{os.urandom(4).hex()}"
        self.execute(f"CREATE SCHEMA {name}", *[f"CREATE TABLE {name}.{t} AS TABLE {t}" for t in TABLES])

        def restore() -> None:
            steps = [f"DELETE FROM {t}; INSERT INTO {t} TABLE {name}.{t};" for t in TABLES]
            self.execute(f"DO $$ BEGIN {' '.join(steps)} END $$")

        return restore

    def assert_nothing_open(self) -> None:
        super().assert_nothing_open()
        assert JOURNAL.wrong == []


class OraclePlace(Place):
    """A real Oracle database, where ``LOCUS_STORE_TEST_ORACLE_URL`` names one; its user's own tables are emptied."""

    name = "oracle"
    capabilities = dataclasses.replace(EVERYTHING, reclaim=False)
    pooled: ClassVar = {"min_pool_size": 1, "max_pool_size": 1}

    def __init__(self, **_: Any) -> None:
        self.url = os.environ[ORACLE_URL]
        self.address = json.dumps(["locus_store.backends.oracle", "OracleBackend", {"dsn": self.url}])
        servers.run_apart(self._create_schema())
        self.execute(*[f"DELETE FROM {table}" for table in TABLES])

    async def _create_schema(self) -> None:
        async with self.open() as store:
            await store.setup()

    def open(self, **options: Any) -> Backend:
        return OracleBackend(dsn=self.url, **options)

    def execute(self, *statements: str, **values: Any) -> list[Any]:
        """Runs statements and commits, by a connection of its own; the rows of the last."""
        import oracledb

        rows: list[Any] = []
        with oracledb.connect(**oracle_address(self.url)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, values, fetch_lobs=False)
                rows = cursor.fetchall() if cursor.description else []
            connection.commit()
        return rows

    def count(self) -> int:
        return sum(self.execute(f"SELECT COUNT(*) FROM {table}")[0][0] for table in TABLES)

    def size(self) -> int:
        lengths = " + ".join(f"NVL(DBMS_LOB.GETLENGTH({name}), 0)" for name in ("payload", "ranges", "metadata"))
        sums = [
            f"SELECT NVL(SUM({lengths}), 0) FROM {Checkpoint.__tablename__}",
            f"SELECT NVL(SUM(DBMS_LOB.GETLENGTH(payload)), 0) FROM {Block.__tablename__}",
        ]
        return int(sum(self.execute(statement)[0][0] for statement in sums))

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        for row, old in self._stored(checkpoint_id)[slice(1) if what == "payload" else slice(1, None)]:
            table = Checkpoint.__tablename__ if what == "payload" else Block.__tablename__
            self.execute(f"UPDATE {table} SET payload = :changed WHERE ROWID = :place", changed=change(old), place=row)

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        return [payload for _, payload in self._stored(checkpoint_id)]

    def _stored(self, checkpoint_id: str) -> list[Any]:
        checkpoints, blocks = Checkpoint.__tablename__, Block.__tablename__
        return self.execute(
            f"SELECT ROWID, payload FROM {checkpoints} WHERE checkpoint_id = :named", named=checkpoint_id
        ) + self.execute(
            f"SELECT b.ROWID, b.payload FROM {blocks} b JOIN {checkpoints} c ON c.thread = b.thread"
            " AND c.own_block BETWEEN b.block_number AND b.last_number WHERE c.checkpoint_id = :named",
            named=checkpoint_id,
        )

    def back_up(self) -> Callable[[], None]:
        kept = {table: f"backup_{os.urandom(4).hex()}" for table in TABLES}
        self.execute(*[f"CREATE TABLE {copy} AS SELECT * FROM {table}" for table, copy in kept.items()])

        def restore() -> None:
            changes = [(f"DELETE FROM {t}", f"INSERT INTO {t} SELECT * FROM {copy}") for t, copy in kept.items()]
            self.execute(*[statement for pair in changes for statement in pair])

        return restore


async def create_postgresql_schema(url: str) -> None:
    """Makes the tables in an empty database."""
    async with PostgreSQLBackend(dsn=url) as store:
        await store.setup()


# --- MariaDB ----------------------------------------------------------------------------------------------------------


class MariaDBPlace(Place):
    name = "mariadb"
    pooled: ClassVar = {"min_pool_size": 1, "max_pool_size": 1}

    def __init__(self, *, server: servers.MariaDBServer, url: str, empty: bool = False, **_: Any) -> None:
        self.server = server
        self.url = url
        self.address = json.dumps(["locus_store.backends.mysql", "MySQLBackend", {"dsn": url}])
        if not empty:
            self.clear()

    def open(self, **options: Any) -> Backend:
        return MySQLBackend(dsn=self.url, **options)

    def disk(self) -> int:
        """How many bytes the tables' files have."""
        name = database_of(self.url)
        rows = self.execute(
            "SELECT coalesce(sum(file_size), 0) FROM information_schema.innodb_sys_tablespaces"
            f" WHERE name LIKE '{name}/%'"
        )
        return int(rows[0][0])

    def execute(self, *statements: str) -> list[Any]:
        """Runs statements, by a connection of its own."""
        return self.server.execute(*statements, url=self.url)

    def count(self) -> int:
        return sum(row[0] for row in self.execute(" UNION ALL ".join(f"SELECT count(*) FROM {t}" for t in TABLES)))

    def size(self) -> int:
        return int(self.execute(_SIZE)[0][0])

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        for old in self.payloads(checkpoint_id)[slice(1) if what == "payload" else slice(1, None)]:
            table = Checkpoint.__tablename__ if what == "payload" else Block.__tablename__
            self.execute(f"UPDATE {table} SET payload = X'{change(old).hex()}' WHERE payload = X'{old.hex()}'")

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        return [row[0] for row in self.execute(_PAYLOADS.format(f"X'{checkpoint_id.encode().hex()}'"))]

    def clear(self) -> None:
        self.throw_out()
        kept = [row[0] for row in self.execute("SHOW TABLES LIKE 'kept%'")]
        self.execute(*[f"DELETE FROM {table}" for table in TABLES], *[f"DROP TABLE {table}" for table in kept])

    def connections(self, state: str = "%") -> int:
        """How many connections the database has; with "idle in transaction%", those that leave one open."""
        if not state.startswith("idle in transaction"):
            return len(self.server.sessions(self.url))
        idle = (
            "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist"
            " ON id = trx_mysql_thread_id WHERE db = database() AND command = 'Sleep'"
        )
        # A connection that was closed in the middle of a statement is noticed at the statement's end.
        deadline = time.monotonic() + 15
        while (found := int(self.execute(idle)[0][0])) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def assert_nothing_open(self) -> None:
        deadline = time.monotonic() + 15
        while self.connections() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.server.sessions(self.url) == []

    def throw_out(self) -> None:
        """Ends all connections of all stores."""
        self.server.throw_out(self.url)

    def back_up(self) -> Callable[[], None]:
        mark = f"kept_{os.urandom(4).hex()}"
        for table in TABLES:
            self.execute(
                f"CREATE TABLE {mark}_{table} LIKE {table}", f"INSERT INTO {mark}_{table} SELECT * FROM {table}"
            )

        def restore() -> None:
            changes = [
                statement
                for table in TABLES
                for statement in (f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM {mark}_{table}")
            ]
            self.execute("BEGIN", *changes, "COMMIT")

        return restore

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[[], int]]:
        # With nothing in memory, what is looked at is read from the files.
        self.server.restart()
        start = self._bytes_read()
        yield lambda: self._bytes_read() - start

    def _bytes_read(self) -> int:
        return int(self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_data_read'")[0][1])


async def create_mariadb_schema(url: str) -> None:
    """Makes the tables in an empty database."""
    async with MySQLBackend(dsn=url) as store:
        await store.setup()


# --- OpenSearch -------------------------------------------------------------------------------------------------------


class OpenSearchPlace(Place):
    """An index of its own on a server of OpenSearch, or on a double of it."""

    name = "opensearch"
    capabilities = dataclasses.replace(EVERYTHING, reclaim=False, transactions=False, search=True)
    server_fixture = "external_opensearch"

    def __init__(self, *, server: opensearch_servers.OpenSearchServer, **_: Any) -> None:
        self.server = server
        self.index = server.new_index()
        self.url = server.address(self.index)
        self.address = json.dumps(["locus_store.backends.opensearch", "OpenSearchBackend", {"dsn": self.url}])

    def open(self, **options: Any) -> Backend:
        return OpenSearchBackend(dsn=self.url, **options)

    def count(self) -> int:
        """Checkpoints and blocks, which may share a document, and all other documents.

        Those that hold nothing any more but a number that must not be given out again are left out, and so are the
        names of checkpoints that are there: the head needs none.
        """
        found = [one["_source"] for one in self.server.documents(self.index)]
        slots = [one for one in found if one["kind"] in ("checkpoint", "block", "event", "empty")]
        named = {(one["life"], one["slot"]) for one in slots if "checkpoint" in one["data"]}
        total = sum(("checkpoint" in one["data"]) + ("block" in one["body"]) for one in slots)
        total += sum(one["kind"] in ("thread", "life", "records") for one in found)
        return total + sum((one["life"], one["data"]["slot"]) not in named for one in found if one["kind"] == "name")

    def size(self) -> int:
        total = 0
        for one in self.server.documents(self.index):
            body, checkpoint = one["_source"].get("body", {}), one["_source"].get("data", {}).get("checkpoint") or {}
            texts = [body.get("payload"), body.get("block"), checkpoint.get("metadata")]
            total += sum(len(b64decode(text)) for text in texts if text) + len(checkpoint.get("ranges", ""))
        return total

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        found = self._find(checkpoint_id)
        body = found["_source"]["body"]
        body[what] = b64encode(change(b64decode(body[what]))).decode()
        self.server.write(self.index, [found])

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        body = self._find(checkpoint_id)["_source"]["body"]
        return [b64decode(body[what]) for what in ("payload", "block") if what in body]

    def _find(self, checkpoint_id: str) -> dict[str, Any]:
        for one in self.server.documents(self.index):
            source = one["_source"]
            if source["kind"] == "checkpoint" and source["data"]["checkpoint"]["id"] == checkpoint_id:
                return one
        raise LookupError(checkpoint_id)

    def back_up(self) -> Callable[[], None]:
        kept = self.server.documents(self.index)

        def restore() -> None:
            self.server.clear(self.index)
            self.server.write(self.index, kept)

        return restore

    def grow_old(self) -> None:
        found = self.server.documents(self.index)
        old = [one for one in found if "at" in one["_source"] and one["_source"]["kind"] != "checkpoint"]
        for one in old:
            one["_source"]["at"] = 1
        self.server.write(self.index, old)


class OpenSearchDoublePlace(OpenSearchPlace):
    name = "opensearch-double"
    server_fixture = "osmem"


class ElasticsearchDoublePlace(OpenSearchPlace):
    name = "elasticsearch-double"
    server_fixture = "noida"


# --- Redis and Valkey -------------------------------------------------------------------------------------------------


class RedisPlace(Place):
    """All keys of one prefix on a server; on one of our own all keys that there are."""

    name = "redis"
    server_fixture = "redis_server"
    capabilities = EVERYTHING_SHARED
    pooled: ClassVar = {"max_connections": 1}

    def __init__(self, *, server: RedisServer | RedisCluster, **_: Any) -> None:
        self.server = server
        self.prefix = f"locus_test_{os.getpid()}:"
        self.url = server.store_url
        arguments = {"url": self.url, "prefix": self.prefix}
        self.address = json.dumps(["locus_store.backends.redis", "RedisBackend", arguments])
        self.clear()

    def open(self, **options: Any) -> Backend:
        return RedisBackend(self.url, self.prefix, **options)

    def keys(self) -> dict[bytes, RedisServer]:
        """All keys, each with the server that has it."""
        found = {}
        for node in self.server.nodes:
            with node.client() as client:
                found.update(dict.fromkeys(client.scan_iter(match=f"{self.prefix}*", count=1000), node))
        return found

    def command(self, name: str, key: bytes, *words: Any) -> Any:
        """Runs a command on the server that has a key."""
        return self.keys()[key].command(name, key, *words)

    def stored(self) -> dict[str, int]:
        """What is stored, by kind: how many fields and members there are, and how many keys of anything else."""
        found: Counter[str] = Counter()
        for key, node in self.keys().items():
            kind = key.rpartition(b":")[2].decode()
            with node.client() as client:
                if kind == "h":
                    names = client.hkeys(key)
                    found.update(f"{kind} {name[:1].decode()}" for name in names if len(name) > 1)
                elif kind == "n":
                    found[kind] += client.get(key) != b"0"  # that there was nothing is forgotten within the hour
                else:
                    found[kind] += client.zcard(key)
        return dict(found)

    def count(self) -> int:
        return sum(self.stored().values())

    def size(self) -> int:
        total = 0
        for key, node in self.keys().items():
            if not key.endswith(b":h"):
                continue
            with node.client() as client:
                for name, value in client.hgetall(key).items():
                    if name[:1] in (b"b", b"j"):
                        total += len(value)
                    elif name[:1] == b"c":
                        record = redis_layout.read(value)
                        total += len(record.payload) + len(record.ranges) + len(record.metadata or b"")
        return total

    def damage(self, checkpoint_id: str, change: Change, what: Literal["payload", "block"] = "payload") -> None:
        node, key, name, record = self._find(checkpoint_id)
        if what == "payload":
            node.command(
                "HSET", key, name, redis_layout.with_payload(record, change(redis_layout.read(record).payload))
            )
        else:
            name, block = self._block(node, key, redis_layout.read(record).own_block)
            node.command("HSET", key, name, change(block))

    def payloads(self, checkpoint_id: str) -> list[bytes]:
        node, key, _, data = self._find(checkpoint_id)
        record = redis_layout.read(data)
        own = [self._block(node, key, record.own_block)[1]] if record.own_block else []
        return [record.payload, *own]

    @staticmethod
    def _block(node: RedisServer, key: bytes, number: int) -> tuple[str, bytes]:
        """The field that has a block, and what is in it."""
        for name in redis_joining.fields([number]):
            if (payload := node.command("HGET", key, name)) is not None:
                return name, payload
        raise LookupError(f"block {number} of {key!r}")

    def _find(self, checkpoint_id: str) -> tuple[RedisServer, bytes, bytes, bytes]:
        for key, node in self.keys().items():
            version = node.command("ZSCORE", key, checkpoint_id) if key.endswith(b":v") else None
            if version is not None:
                name = b"c%d" % int(version)
                return node, key[:-1] + b"h", name, node.command("HGET", key[:-1] + b"h", name)
        raise LookupError(checkpoint_id)

    def clear(self) -> None:
        for node in self.server.nodes:
            if self.server.managed:
                node.command("FLUSHALL")
        for key, node in self.keys().items():
            node.command("UNLINK", key)

    def connections(self, state: str = "%") -> int:
        """How many connections there are; none has a transaction open, for a script has no end that could be missing."""
        return 0 if state != "%" else sum(node.clients() for node in self.server.nodes)

    def throw_out(self) -> None:
        """Ends all connections of all stores."""
        for node in self.server.nodes:
            node.throw_out()

    def assert_nothing_open(self) -> None:
        deadline = time.monotonic() + 15
        while self.server.managed and self.connections() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not self.server.managed or self.connections() == 0

    def back_up(self) -> Callable[[], None]:
        kept = [(key, node, node.command("DUMP", key)) for key, node in self.keys().items()]

        def restore() -> None:
            for node in self.server.nodes:
                with node.client() as client, client.pipeline(transaction=True) as changes:
                    for key in [key for key, owner in self.keys().items() if owner is node]:
                        changes.delete(key)
                    for key, owner, dump in kept:
                        if owner is node:
                            changes.restore(key, 0, dump)
                    changes.execute()

        return restore

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[[], int]]:
        # What it sends; nobody else reads.
        start = self._sent()
        yield lambda: self._sent() - start

    def _sent(self) -> int:
        return sum(int(node.info("stats")["total_net_output_bytes"]) for node in self.server.nodes)


class RedisClusterPlace(RedisPlace):
    name = "redis-cluster"
    server_fixture = "redis_cluster"


# --- object storage ---------------------------------------------------------------------------------------------------


class OCIPlace(BucketContents, Place):
    """A prefix of a bucket of OCI Object Storage, where ``LOCUS_STORE_TEST_OCI_BUCKET`` names one."""

    name = "oci"
    bucket_fixture = "oci_bucket"
    capabilities = dataclasses.replace(EVERYTHING_SHARED, incremental=False)
    pooled: ClassVar = {"max_requests": 1}

    def __init__(self, *, bucket: OCIBucket, **_: Any) -> None:
        self.bucket = bucket
        self.bucket.empty()
        self.url = bucket.url
        self.address = json.dumps(["locus_store.backends.objects.oci", "OCIBucketBackend", bucket.arguments])

    def open(self, **options: Any) -> Backend:
        return OCIBucketBackend(**self.bucket.arguments, **options)

    def objects(self) -> dict[str, bytes]:
        return self.bucket.objects()

    def put(self, key: str, data: bytes) -> None:
        self.bucket.put(key, data)

    def remove(self, key: str) -> None:
        self.bucket.remove(key)


class OCIDoublePlace(OCIPlace):
    """The same over the double of the service (tests/oci_double): no OCI."""

    name = "oci-double"
    bucket_fixture = "oci_double_bucket"


_prefixes = itertools.count(1)


class S3Place(BucketContents, Place):
    """A prefix of its own in the bucket of a server that all tests share."""

    name = "s3"
    server_fixture = "seaweedfs"
    capabilities = dataclasses.replace(EVERYTHING_SHARED, incremental=False)
    pooled: ClassVar = {"max_pool_connections": 1}

    def __init__(self, *, server: s3_servers.S3Server, **_: Any) -> None:
        self.server = server
        self.bucket = self._bucket_of(server)
        self.prefix = f"place-{next(_prefixes)}/"
        self.arguments = {
            "bucket": self.bucket.name,
            "prefix": self.prefix,
            "endpoint_url": server.endpoint,
            "region_name": s3_servers.REGION,
            "aws_access_key_id": s3_servers.ACCESS_KEY,
            "aws_secret_access_key": s3_servers.SECRET_KEY,
        }
        options = urlencode({"endpoint": server.endpoint, "region": s3_servers.REGION})
        self.url = f"s3://{self.bucket.name}/{self.prefix}?{options}"
        self.address = json.dumps(["locus_store.backends.objects.s3", "S3Backend", self.arguments])

    def _bucket_of(self, server: s3_servers.S3Server) -> s3_servers.Bucket:
        return server.shared_bucket()

    def open(self, **options: Any) -> Backend:
        return S3Backend(**self.arguments, **options)

    def objects(self) -> dict[str, bytes]:
        return {key.removeprefix(self.prefix): self.bucket.get(key) for key in self.bucket.sizes(self.prefix)}

    def count(self) -> int:
        return len(self.bucket.sizes(self.prefix))

    def put(self, key: str, data: bytes) -> None:
        self.bucket.put(self.prefix + key, data)

    def remove(self, key: str) -> None:
        self.bucket.delete(self.prefix + key)


class S3MotoPlace(S3Place):
    """The same over moto, a double."""

    name = "s3-moto"
    server_fixture = "moto"

    def _bucket_of(self, server: s3_servers.S3Server) -> s3_servers.Bucket:
        return server.create_bucket()  # to list some objects, it goes through all of a bucket


# --- the table --------------------------------------------------------------------------------------------------------

TABLE: dict[str, type[Place]] = {
    place.name: place
    for place in (MemoryPlace, FilePlace, SQLitePlace, PostgreSQLPlace, MariaDBPlace, OracleStandInPlace)
    + (RedisPlace, RedisClusterPlace, OpenSearchDoublePlace, ElasticsearchDoublePlace, S3Place, S3MotoPlace)
    + ((OraclePlace,) if os.environ.get(ORACLE_URL) else ())
    + ((OpenSearchPlace,) if os.environ.get(opensearch_servers.OPENSEARCH_URL) else ())
    + (OCIDoublePlace,)
    + ((OCIPlace,) if os.environ.get(OCI_BUCKET) else ())
}
"""The backends of the shared suite."""

SHARED = [name for name, place in TABLE.items() if place.capabilities.shared]
"""Those on whose storage several processes can work."""

# --- what this process has open ---------------------------------------------------------------------------------------


class Left:
    """The threads and descriptors that came up since this object was made."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._descriptors = _descriptors()

    def now(self) -> list[str]:
        """What is open and was not then."""
        threads = [t for t in threading.enumerate() if t not in self._threads]
        # Those of the event loop's own executor end with the loop.
        found = [f"thread {t.name}" for t in threads if not t.name.startswith(("asyncio_", "servers"))]
        return found + [f"descriptor of {name}" for name in (_descriptors() - self._descriptors).elements()]

    async def assert_nothing(self) -> None:
        """Asserts that nothing is left, after a moment in which the loop may close transports."""
        for _ in range(200):
            if not self.now():
                return
            await asyncio.sleep(0.01)
        assert self.now() == []


def _descriptors() -> Counter[str]:
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # no /proc here: only threads are looked at
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return Counter(n for n in names if not n.startswith("/proc/"))


@contextlib.contextmanager
def read_by_this_process() -> Iterator[Callable[[], int]]:
    """Counts the bytes that this process reads from files."""

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    start = read()
    yield lambda: read() - start


def database_of(url: str) -> str:
    """The name of the database of a URL."""
    return urlsplit(url).path.lstrip("/")
