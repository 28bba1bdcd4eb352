"""What `OracleBackend` takes, what it shows, and what its errors mean; with python-oracledb's own error objects."""

from __future__ import annotations

from typing import Any

import oracledb
import pytest
import servers
from oracledb import errors as driver_errors
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import create_async_engine

from locus_store import BackendUnavailableError, OracleBackend, OracleCheckpointer, open_backend
from locus_store.backends.oracle.options import address, place
from locus_store.memory.backends import oracle_checkpointer
from locus_store.sql.dialects.base import Kind
from locus_store.sql.dialects.oracle import OracleDialect
from locus_store.sql.types import from_oracle, to_oracle

SECRET = "s3cr3t"
WITH_SECRETS: list[dict[str, Any]] = [
    {"dsn": "db:1522/S", "password": SECRET},
    {"dsn": f"scott/{SECRET}@db:1522/S"},
    {"dsn": f"oracle://scott:{SECRET}@db:1522/S"},
    {"dsn": f"oracle+oracledb://scott:{SECRET}@db:1522/?service_name=S"},
    {"dsn": f"oracle+oracledb_async://scott:x@db:1522/S?wallet_location=/w&wallet_password={SECRET}"},
    {"host": "db", "port": 1522, "service_name": "S", "wallet_location": "/w", "wallet_password": SECRET},
    {"dsn": "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcps)(HOST=db)(PORT=1522))(CONNECT_DATA=(SERVICE_NAME=S)))"},
]


@pytest.mark.parametrize("options", WITH_SECRETS)
def test_a_repr_says_where_it_is_and_no_secret(options: dict[str, Any]) -> None:
    assert repr(OracleBackend(**options)) == "OracleBackend(OracleDriver(db:1522/S))"
    assert repr(OracleCheckpointer(**options)) == "OracleCheckpointer(OracleDriver(db:1522/S))"


@pytest.mark.parametrize(
    ("dsn", "found"),
    [
        ("mydb_high", {"dsn": "mydb_high", "user": "admin"}),
        ("scott/tiger@h:1/s", {"dsn": "h:1/s", "user": "scott", "password": "tiger"}),
        ("oracle://u:p%40@h/s", {"host": "h", "port": 1521, "service_name": "s", "user": "u", "password": "p@"}),
        ("oracle://u:p@h:5?sid=XE", {"host": "h", "port": 5, "sid": "XE", "user": "u", "password": "p"}),
        ("oracle://u:p@name?retry_count=2", {"dsn": "name", "retry_count": 2, "user": "u", "password": "p"}),
    ],
)
def test_forms_of_a_dsn(dsn: str, found: dict[str, Any]) -> None:
    assert address(dsn, user="admin", password="") == {"tcp_connect_timeout": 10.0, **found}


def test_a_wallet_is_where_names_are_looked_up_and_a_host_is_spoken_to_by_tls() -> None:
    found = address(None, host="h", service_name="s", wallet_location="/w", wallet_password="x")
    assert found.items() >= {"wallet_location": "/w", "config_dir": "/w", "protocol": "tcps"}.items()
    assert address("name", wallet_location="/w", connect_args={"config_dir": "/etc"})["config_dir"] == "/etc"


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        (None, "pass a dsn"),
        (f"oracle://u:{SECRET}@h/s?service_name=t", "twice"),
        (f"oracle://u:{SECRET}@h/s?nonsense=1", "nonsense"),
        (f"oracle://u:{SECRET}@h/s?retry_count=x", "no number"),
        (f"oracle+cx_oracle://u:{SECRET}@h/s", "no scheme"),
        ("oracle://", "names no host"),
    ],
)
def test_what_is_no_place_is_refused_without_its_password(dsn: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        address(dsn)
    assert SECRET not in str(caught.value)


def test_the_function_of_the_sdk_and_the_url_lead_to_the_same_place() -> None:
    assert "db:1522/S" in repr(oracle_checkpointer("db:1522/S", "scott", SECRET, max_pool_size=2))
    assert "db:1522/S" in repr(open_backend(f"oracle://scott:{SECRET}@db:1522/S?tenant=acme&max_pool_size=2"))
    assert place({"params": object()}) == "a database of connect_args"


def test_a_table_name_and_what_stands_beside_an_engine_are_refused() -> None:
    with pytest.raises(ValueError, match="table_name"):
        OracleBackend("db", table_name="t")
    engine = create_async_engine("oracle+oracledb_async://u:p@h:1/?service_name=s")
    with pytest.raises(ValueError, match="dsn"):
        OracleBackend("db", engine=engine)
    with pytest.raises(ValueError, match="auto_convert_lobs"):
        OracleBackend(engine=create_async_engine("oracle+oracledb_async://h", auto_convert_lobs=False))
    assert SECRET not in repr(OracleBackend(engine=create_async_engine(f"oracle+oracledb_async://u:{SECRET}@h:1")))


async def test_a_server_that_is_not_there_is_an_outage_and_not_a_missing_thread() -> None:
    async with OracleBackend(f"127.0.0.1:{servers.free_port()}/S", password=SECRET) as store:
        with pytest.raises(BackendUnavailableError) as caught:
            await store.load("t")
    assert isinstance(caught.value.__cause__, oracledb.OperationalError)
    assert "DPY-6005" in str(caught.value)
    assert SECRET not in str(caught.value)


def error(code: int, text: str = "said") -> oracledb.Error:
    found = driver_errors._Error(f"ORA-{code:05}: {text}", code=code)
    raised: oracledb.Error = found.exc_type(found)
    return raised


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (Kind.DUPLICATE, [1]),
        (Kind.REFERENCED, [2292]),
        (Kind.RETRYABLE, [60, 8177, 1555]),
        (Kind.BUSY, [54, 30006]),
        (Kind.GONE, [28, 600, 1012, 1017, 1033, 1034, 1089, 2396, 3113, 3114, 12514, 12541, 28000]),
        (Kind.OTHER, [942, 1400, 1438, 1950, 6550, 12899]),
    ],
)
def test_codes_of_the_server(kind: Kind, codes: list[int]) -> None:
    for code in codes:
        found = error(code)
        assert OracleDialect().classify(found) is kind
        assert OracleDialect().classify(exc.DBAPIError.instance("", {}, found, oracledb.Error)) is kind


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (driver_errors.ERR_NOT_CONNECTED, Kind.GONE),
        (driver_errors.ERR_CONNECTION_CLOSED, Kind.GONE),
        (driver_errors.ERR_CONNECTION_FAILED, Kind.GONE),
        (driver_errors.ERR_INVALID_SERVICE_NAME, Kind.GONE),
        (driver_errors.ERR_TNS_ENTRY_NOT_FOUND, Kind.GONE),
        (driver_errors.ERR_CALL_TIMEOUT_EXCEEDED, Kind.BUSY),
        (driver_errors.ERR_MISSING_BIND_VALUE, Kind.OTHER),
    ],
)
def test_codes_of_the_driver(number: int, kind: Kind) -> None:
    words = dict.fromkeys(("timeout", "name", "file_name", "host", "port", "service_name"), "x")
    found = driver_errors._create_err(number, **words)
    assert OracleDialect().classify(found.exc_type(found)) is kind


def test_a_table_that_is_missing_is_seen_in_a_block_too() -> None:
    dialect = OracleDialect()
    assert dialect.lacks_schema(error(942))
    assert dialect.lacks_schema(error(6550, "line 1\nPL/SQL: ORA-00942: table or view does not exist"))
    assert not dialect.lacks_schema(error(6550, "line 1\nPLS-00103: Encountered the symbol"))


def test_an_error_shows_no_values_of_a_row() -> None:
    found = OracleDialect().translate(error(1, f"unique\nORA-03301: (ORA-00001 details) row with ({SECRET})"))
    assert SECRET not in str(found)
    assert "ORA-00001" in str(found)
    assert "Help:" not in str(found)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0a", b"a\0", b"{}", None])
def test_case_15_bytes_that_may_be_none_at_all_come_back(value: bytes | None) -> None:
    stored = to_oracle(value)
    assert stored is None or stored
    assert from_oracle(stored) == value
