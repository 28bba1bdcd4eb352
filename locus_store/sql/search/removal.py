"""What removes the index of words with the tables that it is of."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Dialect

from locus_store.sql.search.index import WordIndex
from locus_store.sql.search.postgresql import POSTGRESQL_INDEX
from locus_store.sql.search.sqlite import SQLITE_INDEX

_INDEXES: dict[str, WordIndex] = {"postgresql": POSTGRESQL_INDEX, "sqlite": SQLITE_INDEX}


def index_removal(dialect: Dialect, schema: str | None) -> Sequence[str]:
    """The statements that remove the index in a schema, as far as it is there; a downgrade's first ones."""
    index = _INDEXES.get(dialect.name)
    if index is None:
        return ()
    return index.removal("" if schema is None else dialect.identifier_preparer.quote_schema(schema) + ".")
