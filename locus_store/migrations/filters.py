"""Which tables are whose, for Alembic's comparisons."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from locus_store.sql.models import metadata
from locus_store.sql.search.tables import PREFIX as SEARCH_PREFIX

PREFIX = "locus_store_"

_TABLES = frozenset(table.name for table in metadata.tables.values())


def not_ours(name: str | None, type_: str, parent_names: MutableMapping[Any, Any]) -> bool:
    """A host's ``include_name``: its autogenerate then leaves this package's tables alone.

    Give it to ``context.configure(include_name=not_ours)``. A host that joins our revisions to its own history and
    lists our MetaData beside its own does not need it, but `not_of_search` if it calls `enable_search`.
    """
    table = name if type_ == "table" else parent_names.get("table_name")
    return not (table or "").startswith(PREFIX)


def not_our_object(obj: Any, name: str | None, type_: str, _reflected: bool, _compare_to: Any) -> bool:
    """The same as an ``include_object``, which also keeps our tables out where the host's MetaData names them."""
    table = name if type_ == "table" else obj.table.name
    return not (table or "").startswith(PREFIX)


def not_of_search(name: str | None, type_: str, parent_names: MutableMapping[Any, Any]) -> bool:
    """An ``include_name`` for a host that lists our MetaData beside its own, once `enable_search` was called.

    What that makes is in no MetaData, and an autogenerate would remove it.
    """
    table = name if type_ == "table" else parent_names.get("table_name")
    return not (table or "").startswith(SEARCH_PREFIX)


def ours(schema: str | None) -> Callable[[str | None, str, MutableMapping[Any, Any]], bool]:
    """This package's own ``include_name``: its tables in `schema`, whatever else is beside them."""

    def include_name(name: str | None, type_: str, _parent_names: MutableMapping[Any, Any]) -> bool:
        if type_ == "schema":
            return name == schema
        return type_ != "table" or name in _TABLES

    return include_name


def our_object(_obj: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """This package's own ``include_object``: a host may add indexes and keys to our tables for uses of its own."""
    added = type_ in ("index", "unique_constraint", "foreign_key_constraint") and reflected and compare_to is None
    return not (added and PREFIX not in (name or ""))
