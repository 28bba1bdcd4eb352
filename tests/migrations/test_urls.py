"""Which database is meant."""

from __future__ import annotations

import sys

import pytest

from locus_store.migrations.environment import with_connection
from locus_store.migrations.urls import database_url, engine_url, schema_in


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///x.db", "sqlite+pysqlite"),
        ("sqlite+aiosqlite:///x.db", "sqlite+pysqlite"),
        ("sqlite+pysqlite:///x.db", "sqlite+pysqlite"),
        ("postgresql://h/d", "postgresql+asyncpg"),
        ("postgres://h/d", "postgresql+asyncpg"),
        ("postgresql+asyncpg://h/d", "postgresql+asyncpg"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg"),
        ("oracle://h/d", "oracle+oracledb_async"),
    ],
)
def test_the_driver(given: str, driver: str) -> None:
    assert engine_url(given).drivername == driver


@pytest.mark.parametrize(
    ("written", "password"),
    [("p%25w", "p%w"), ("100%", "100%"), ("%(here)s", "%(here)s"), ("a%40b%2Fc%3A", "a@b/c:"), ("%%", "%%")],
)
def test_a_password_with_percent_signs(written: str, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"postgresql://me:{written}@localhost/db"
    assert database_url({"url": text}).password == password
    monkeypatch.setenv("LOCUS_STORE_URL", text)
    assert database_url({}).password == password


def test_the_default_is_a_file_in_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUS_STORE_URL", "")
    assert database_url({}).database == "locus_store.db"


def test_the_word_of_libpq_for_ssl() -> None:
    url = engine_url("postgresql://h/d?sslmode=require&timeout=3")
    assert dict(url.query) == {"ssl": "require", "timeout": "3"}


def test_what_is_no_url_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="not the URL of a relational database") as caught:
        engine_url("my-password")
    assert "my-password" not in str(caught.value)


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"needs the package 'psycopg'"):
        with_connection(engine_url("postgresql+psycopg://h/d"), lambda connection: None)


def test_options_of_the_store_in_the_url_are_no_business_of_the_client() -> None:
    url = engine_url("postgresql://h/d?tenant=acme&schema=agents&ttl_seconds=5&timeout=3")
    assert dict(url.query) == {"timeout": "3"}
    assert dict(engine_url("sqlite:///x.db?tenant=acme").query) == {}
    assert schema_in({"url": "postgresql://h/d?tenant=acme&schema=agents"}) == "agents"
    assert schema_in({"url": "postgresql://h/d"}) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("oracle://u:p%40@h/FREEPDB1", "oracle+oracledb_async://u:***@?dsn=h%3A1521%2FFREEPDB1"),
        ("oracle+oracledb://u:p@h:1522/?service_name=S&tenant=t", "oracle+oracledb_async://u:***@?dsn=h%3A1522%2FS"),
        ("oracle://u:p@h:1522?sid=XE", "oracle+oracledb_async://u:***@h:1522/XE"),
        ("oracle://u:p@alias", "oracle+oracledb_async://u:***@alias"),
    ],
)
def test_an_oracle_url_names_a_service(text: str, found: str) -> None:
    assert engine_url(text).render_as_string() == found


def test_a_wallet_is_also_where_names_are_looked_up_and_needs_tls() -> None:
    url = engine_url("oracle://u:p@h:1522/S?wallet_location=/w&wallet_password=x")
    assert dict(url.query) == {
        "wallet_location": "/w",
        "wallet_password": "x",
        "config_dir": "/w",
        "dsn": "tcps://h:1522/S",
    }
