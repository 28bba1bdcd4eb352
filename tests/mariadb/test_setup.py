"""The host's engines, users with few rights, tables that go, packets, and what is not there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import servers
from drivers.plans import KEY, tick
from mariadb.conftest import Open
from migrations.conftest import Database
from postgresql.steps import fresh, lines, save
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from locus_store.backends.mysql import MySQLDriver
from locus_store.core.errors import BackendError, BackendUnavailableError, PayloadTooLargeError, SchemaNotReadyError
from locus_store.sql.models import metadata


async def test_an_engine_of_the_host(mariadb_url: str) -> None:
    engine = create_async_engine(mariadb_url.replace("mariadb:", "mariadb+asyncmy:"), pool_size=1, max_overflow=0)
    driver = MySQLDriver(engine=engine, lock_timeout=3)
    asked = text("SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.sql_mode, @@SESSION.tx_isolation")
    async with engine.connect() as connection:
        await connection.execute(text("SET SESSION innodb_lock_wait_timeout = 17"))
        before = (await connection.execute(asked)).one()
        assert before[0] == 17
    await save(driver, fresh("x"))
    await save(driver, fresh("y"))
    assert await lines(driver) == ["y"]
    await driver.aclose()
    async with engine.connect() as connection:
        assert (await connection.execute(asked)).one() == before
    assert await lines(driver) == ["y"]
    await engine.dispose()


@pytest.fixture
async def poor_url(mariadb_url: str, mariadb: Database) -> AsyncIterator[str]:
    """The database for a user who may only use tables."""
    name = f"poor_{mariadb.short_name[-20:]}"
    mariadb.execute(
        f"CREATE USER {name} IDENTIFIED BY 's3cret-pw'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {mariadb.short_name}.* TO {name}",
    )
    yield f"mariadb://{name}:s3cret-pw@{mariadb_url.rpartition('@')[2]}"
    mariadb.execute(f"DROP USER {name}")


async def test_a_user_who_may_not_create(open_driver: Open, poor_url: str) -> None:
    poor = open_driver(poor_url)
    with pytest.raises(SchemaNotReadyError, match="may not create") as raised:
        await save(poor, fresh("x"))
    assert_secret(raised.value)
    await open_driver().prepare()
    await save(poor, fresh("x"))
    assert await lines(open_driver(poor_url, create_schema=False)) == ["x"]


async def test_the_tables_go_under_a_running_store(open_driver: Open, mariadb: Database) -> None:
    driver, strict = open_driver(), open_driver(create_schema=False)
    await save(driver, fresh("x"))
    await save(strict, fresh("x"))
    mariadb.execute(f"DROP TABLE {', '.join(metadata.tables)}, locus_store_alembic")
    with pytest.raises(SchemaNotReadyError):
        await lines(strict)
    await save(driver, fresh("y"))
    assert await lines(driver) == await lines(strict) == ["y"]


async def test_what_is_larger_than_a_packet_is_refused_and_what_just_fits_is_stored(new_mariadb: Any) -> None:
    server = new_mariadb({"max-allowed-packet": "1M"})
    driver = MySQLDriver(server.create_database())
    try:
        # An apostrophe takes two bytes on its way.
        for line in ("x" * 1_031_000, "'" * 515_000):
            await save(driver, fresh(line))
            assert await lines(driver) == [line]
            for more in (line + line[:3_000], line * 4):
                with pytest.raises(PayloadTooLargeError):
                    await driver.put(KEY, fresh(more))
            assert await lines(driver) == [line]
    finally:
        await driver.aclose()


async def test_a_binary_log_of_statements_is_named(new_mariadb: Any) -> None:
    """As docs/mysql.md says: READ COMMITTED does not go with it, and MIXED does."""
    server = new_mariadb({"skip-log-bin": "0", "log-bin": "log", "server-id": "1", "binlog-format": "STATEMENT"})
    url = server.create_database()
    driver, later = MySQLDriver(url), MySQLDriver(url)
    try:
        with pytest.raises(BackendError, match=r"\(1665\).*BINLOG_FORMAT = STATEMENT"):
            await driver.put(KEY, fresh("x"))
        server.execute("SET GLOBAL binlog_format = 'MIXED'")
        await save(later, fresh("x"))
        assert await lines(later) == ["x"]
    finally:
        await driver.aclose()
        await later.aclose()


def assert_secret(error: BaseException) -> None:
    """No text of an error, or of those behind it, holds the password."""
    seen: BaseException | None = error
    while seen is not None:
        assert "s3cret" not in f"{seen} {seen!r} {seen.args}"
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mariadb://nobody:s3cret-pw@{place}", "Access denied for user 'nobody'"),
        ("mariadb://root:s3cret-pw@{place}", "Access denied for user 'root'"),
        ("{url}_none", "Unknown database"),
        ("mariadb://root:s3cret-pw@127.0.0.1:1/x", "Can't connect"),
        ("mariadb://root:s3cret-pw@no.such.host.invalid/x", "Can't connect"),
    ],
)
async def test_what_is_not_there_is_said_without_the_password(
    open_driver: Open,
    mariadb_url: str,
    mariadb_server: servers.MariaDBServer,
    caplog: pytest.LogCaptureFixture,
    url: str,
    told: str,
) -> None:
    if not mariadb_server.managed:
        pytest.skip("the server is somebody else's, and so is its root")
    caplog.set_level(logging.DEBUG)
    driver = open_driver(url.format(place=mariadb_url.rpartition("@")[2], url=mariadb_url))
    with pytest.raises(BackendUnavailableError, match=told) as raised:
        await driver.get(KEY, None, now=tick())
    assert_secret(raised.value)
    assert "s3cret" not in repr(driver) + caplog.text
