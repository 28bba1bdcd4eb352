"""Schemas, roles and searches of PostgreSQL's catalog."""

from __future__ import annotations

import pytest
import servers
from search.conftest import said
from sqlalchemy import make_url

from locus_store import BackendError, PostgreSQLBackend


async def found(store, query="needle"):
    return sorted([hit["thread_id"] for hit in await store.search(query, limit=None)])


def as_role(url: str, role: str) -> str:
    return make_url(url).set(username=role, password="secret").render_as_string(hide_password=False)


async def test_in_schemas_with_odd_names(postgresql_server, postgresql_url):
    names = ['we"ird. schema', "plain"]
    for name in names:
        postgresql_server.execute('CREATE SCHEMA "{}"'.format(name.replace('"', '""')), url=postgresql_url)
    first, second, public = stores = [PostgreSQLBackend(dsn=postgresql_url, schema=name) for name in [*names, None]]
    for n, store in enumerate(stores):
        await store.save(f"t{n}", said("needle"))
    await first.enable_search()
    await public.enable_search()
    assert await found(first) == ["t0"]
    assert await found(public) == ["t2"]
    await first.disable_search()
    await second.enable_search()
    await second.save("u", said("needle"))
    await second.delete("t1")
    assert await found(second) == ["u"]
    assert await found(public) == ["t2"]
    await second.vacuum(reclaim=True)
    rows = postgresql_server.execute(
        "SELECT nspname, count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relname LIKE 'locus\\_store\\_search\\_%' AND relkind = 'r' GROUP BY 1 ORDER BY 1",
        url=postgresql_url,
    )
    assert [tuple(row) for row in rows] == [("plain", 3), ("public", 3)]
    for store in stores:
        await store.close()


@pytest.fixture
def roles(postgresql_server, postgresql_url):
    """One who reads and writes the tables but may make none, and one who reads only."""
    made = ["search_writer", "search_reader"]
    for role in made:
        postgresql_server.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'", url=postgresql_url)
    yield made
    for role in made:
        postgresql_server.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}", url=postgresql_url)


async def test_who_may_use_the_tables_may_use_the_index(postgresql_server, postgresql_url, roles):
    owner = PostgreSQLBackend(dsn=postgresql_url)
    await owner.save("t", said("needle"))
    tables = "locus_store_threads, locus_store_checkpoints, locus_store_blocks, locus_store_terms, locus_store_records"
    postgresql_server.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO search_writer",
        f"GRANT SELECT ON {tables} TO search_reader",
        "GRANT SELECT ON locus_store_schema TO search_writer, search_reader",
        url=postgresql_url,
    )
    writer, reader = [PostgreSQLBackend(dsn=as_role(postgresql_url, role), create_schema=False) for role in roles]
    with pytest.raises(BackendError, match=r"permission denied|must be owner"):
        await writer.enable_search()
    await owner.enable_search()
    await writer.save("u", said("needle"))
    assert await found(reader) == ["t", "u"]
    assert await found(writer) == ["t", "u"]
    assert postgresql_server.execute("SELECT count(*) FROM locus_store_search_queue", url=postgresql_url)[0][0] == 0
    await writer.delete("t")
    assert await found(reader) == ["u"]
    # Nobody but the owner can hang these functions on a table of his own.
    rows = postgresql_server.execute(
        "SELECT bool_or(has_function_privilege('search_writer', oid, 'EXECUTE')), count(*) FROM pg_proc"
        " WHERE proname LIKE 'locus\\_store\\_search\\_%'",
        url=postgresql_url,
    )
    assert tuple(rows[0]) == (False, 3)
    for store in (owner, writer, reader):
        await store.close()


async def test_words_and_texts_beyond_what_a_vector_holds(postgresql_url):
    servers.note_ran("postgresql")
    many = " ".join(f"w{n}" for n in range(60_000))
    too_many = " ".join(f"word{n:07}" for n in range(70_000))
    often = "needle " + "again " * 20_000 + "hay needle"
    long = "ä" * 3000
    async with PostgreSQLBackend(dsn=postgresql_url) as store:
        await store.enable_search()
        for name, text in {"many": many, "too many": too_many, "often": often, "long": long}.items():
            await store.save(name, said(text))
        for query, expected in {
            "w59999 w0": ["many"],
            '"w59998 w59999"': ["many"],
            '"w59999 w59998"': [],
            "word0069999": ["too many"],
            "word0070000": [],
            '"hay needle"': ["often"],
            '"needle hay"': [],
            "ä" * 3000: ["long"],
            "ä" * 2999: [],
        }.items():
            assert await found(store, query) == expected, query[:40]
