"""${message}.

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def _set_revision(value: str) -> None:
    """What a store reads at start; add the id to REVISIONS in locus_store/sql/schema.py."""
    schema = op.get_context().opts.get("locus_store_schema")
    row = sa.table("locus_store_schema", sa.column("revision", sa.String), schema=schema)
    op.execute(row.update().values(revision=value))


def upgrade() -> None:
    # Name the schema in each operation: schema=op.get_context().opts.get("locus_store_schema")
    ${upgrades if upgrades else "pass"}
    _set_revision(${repr(up_revision)})


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
    _set_revision(${repr(down_revision)})
