"""Threads, checkpoints, blocks, terms, records, and the schema row.

Revision ID: ls0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

from locus_store.sql.search.removal import index_removal
from locus_store.sql.types import TABLE_OPTIONS, Digest, Identifier, ascii_name, frames, surrogate_key

revision = "ls0001"
down_revision = None
branch_labels = ("locus_store",)
depends_on = None


def _primary(name: str) -> str:
    """The name of a primary key. On MySQL all have one name, and another is complained of in the log."""
    return op.f("PRIMARY" if op.get_context().dialect.name in ("mysql", "mariadb") else name)


def upgrade() -> None:
    schema = op.get_context().opts.get("locus_store_schema")
    op.create_table(
        "locus_store_threads",
        sa.Column("id", surrogate_key(), sa.Identity(), nullable=False),
        sa.Column("tenant", Identifier(128), nullable=False),
        sa.Column("thread_id", Identifier(512), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("head_version", sa.BigInteger(), nullable=False),
        sa.Column("head_id", Identifier(512), nullable=True),
        sa.Column("block_count", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=_primary("pk_locus_store_threads")),
        sa.UniqueConstraint("tenant", "thread_id", name=op.f("uq_locus_store_threads")),
        sqlite_autoincrement=True,
        schema=schema,
        **TABLE_OPTIONS,
    )
    op.create_index(
        op.f("ix_locus_store_threads_recent"),
        "locus_store_threads",
        ["tenant", "updated_at"],
        schema=schema,
    )
    op.create_table(
        "locus_store_checkpoints",
        sa.Column("id", surrogate_key(), sa.Identity(), nullable=False),
        sa.Column("thread", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_id", Identifier(512), nullable=False),
        sa.Column("parent_version", sa.BigInteger(), nullable=True),
        sa.Column("stamp", Digest(), nullable=False),
        sa.Column("own_block", sa.BigInteger(), nullable=False),
        sa.Column("first_block", sa.BigInteger(), nullable=False),
        sa.Column("last_block", sa.BigInteger(), nullable=False),
        sa.Column("ranges", frames(), nullable=False),
        sa.Column("payload", frames(), nullable=False),
        sa.Column("metadata", frames(), nullable=True),
        sa.Column("stored_size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=_primary("pk_locus_store_checkpoints")),
        sa.UniqueConstraint("thread", "version", name=op.f("uq_locus_store_checkpoints_v")),
        sa.UniqueConstraint("thread", "checkpoint_id", name=op.f("uq_locus_store_checkpoints_id")),
        sqlite_autoincrement=True,
        schema=schema,
        **TABLE_OPTIONS,
    )
    blocks = op.create_table(
        "locus_store_blocks",
        sa.Column("thread", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("block_number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_number", sa.BigInteger(), nullable=False),
        sa.Column("payload", frames(), nullable=False),
        sa.PrimaryKeyConstraint("thread", "block_number", name=_primary("pk_locus_store_blocks")),
        schema=schema,
        **TABLE_OPTIONS,
    )
    if op.get_context().dialect.name == "postgresql":
        # What fits into a page stays in its row; what is larger (joined blocks) the server compresses and moves out.
        storage = "SET (toast_tuple_target = 8160)"
        op.execute(sa.DDL(f"ALTER TABLE %(fullname)s {storage}").against(blocks))  # type: ignore[no-untyped-call]
    op.create_table(
        "locus_store_terms",
        sa.Column("thread", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("term", Digest(), nullable=False),
        sa.PrimaryKeyConstraint("thread", "version", "term", name=_primary("pk_locus_store_terms")),
        schema=schema,
        **TABLE_OPTIONS,
    )
    op.create_index(
        op.f("ix_locus_store_terms"),
        "locus_store_terms",
        ["term", "thread", "version"],
        schema=schema,
    )
    op.create_table(
        "locus_store_records",
        sa.Column("id", surrogate_key(), sa.Identity(), nullable=False),
        sa.Column("thread", sa.BigInteger(), nullable=False),
        sa.Column("scope", Identifier(512), nullable=False),
        sa.Column("record_key", Identifier(512), nullable=False),
        sa.Column("payload", frames(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=_primary("pk_locus_store_records")),
        sa.UniqueConstraint("thread", "scope", "record_key", name=op.f("uq_locus_store_records")),
        sqlite_autoincrement=True,
        schema=schema,
        **TABLE_OPTIONS,
    )
    schema_row = op.create_table(
        "locus_store_schema",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", ascii_name(32), nullable=False),
        sa.Column("format", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=_primary("pk_locus_store_schema")),
        schema=schema,
        **TABLE_OPTIONS,
    )
    # Last, so that a migration cut short where DDL cannot be rolled back is not taken for a whole one.
    op.bulk_insert(schema_row, [{"id": 1, "revision": "ls0001", "format": 1}])


def downgrade() -> None:
    schema = op.get_context().opts.get("locus_store_schema")
    for statement in index_removal(op.get_context().dialect, schema):
        op.execute(statement)
    op.drop_table("locus_store_schema", schema=schema)
    op.drop_table("locus_store_records", schema=schema)
    op.drop_table("locus_store_terms", schema=schema)
    op.drop_table("locus_store_blocks", schema=schema)
    op.drop_table("locus_store_checkpoints", schema=schema)
    op.drop_table("locus_store_threads", schema=schema)
