"""The shared suite: one file per operation, run over every backend of `backends.TABLE`; no backend is named here."""

import pytest
from store_fixtures import (
    checkpointer,
    clock,
    mariadb_database,
    open_store,
    oracle_standin_database,
    other,
    own_connections,
    postgresql_database,
    store,
    with_a_bucket,
)
from store_fixtures import place_or_session as place

__all__ = [
    "checkpointer",
    "clock",
    "mariadb_database",
    "open_store",
    "oracle_standin_database",
    "other",
    "own_connections",
    "place",
    "postgresql_database",
    "store",
]

ON_A_BUCKET = {
    "save",
    "exists",
    "expected_version",
    "if_exists",
    "list_checkpoints",
    "list_threads",
    "tenants",
    "delete",
}
"""The files, without ``test_``, whose tests `make test` runs over object storage; the others are run by `make endurance`."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition("test_")[2] in ON_A_BUCKET:
        with_a_bucket(metafunc)
