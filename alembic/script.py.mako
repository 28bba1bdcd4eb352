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

# Each revision writes this row: a store reads it at start. Add the id to REVISIONS in locus_store/sql/schema.py.
_ROW = sa.table("locus_store_schema", sa.column("revision", sa.String), sa.column("format", sa.Integer))


def upgrade() -> None:
    schema = op.get_context().opts.get("locus_store_schema")
    ${upgrades if upgrades else "pass"}
    row = sa.table(_ROW.name, *_ROW.c, schema=schema)
    op.execute(row.update().values(revision=revision))


def downgrade() -> None:
    schema = op.get_context().opts.get("locus_store_schema")
    ${downgrades if downgrades else "pass"}
    row = sa.table(_ROW.name, *_ROW.c, schema=schema)
    op.execute(row.update().values(revision=down_revision))
