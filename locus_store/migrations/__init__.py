"""The migrations of the relational schema, and how a host runs them.

`upgrade`          over a connection of the caller's, in its transaction
`head_revision`    what `upgrade` leads to
`not_ours`         keeps a host's autogenerate away from our tables (`not_our_object`: the same, as ``include_object``)
`not_of_search`    keeps one that compares our tables, too, away from those that `enable_search` made

The command line is ``python -m locus_store.migrations`` with Alembic's own commands; in a checkout, ``alembic``.
"""

from __future__ import annotations

from locus_store.migrations.commands import head_revision, upgrade
from locus_store.migrations.filters import not_of_search, not_our_object, not_ours

__all__ = ["head_revision", "not_of_search", "not_our_object", "not_ours", "upgrade"]
