"""PostgreSQL's save in one statement, for a save that nobody raced.

The thread's row alone gives the order. An INSERT that becomes an UPDATE on conflict waits for the row and then sees its
newest state, whatever the statement's snapshot; all else in a statement sees the snapshot. So everything that a save
must know is taken from the row:

- What the row was before cannot be returned. The parent is the head before the save; where that is the last version
  given out it is the new version less one, and where it is not (the newest checkpoint was deleted) nothing matches.
- The base is looked up in the snapshot, which is older than the row: entries that it refers to may have gone meanwhile,
  but then the epoch on the row is another.
- ``lock_timeout`` is set inside the statement: a pooler between us and the server may give each one another session.

When it returns no row, or fails with a duplicate or `THREAD_GONE`, nothing was written, and `locus_store.sql.writing`
finds out why.
"""
# ruff: noqa: S608 - only names of tables are put in, and they are quoted

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from locus_store.core.driver import Key, Plan
from locus_store.core.ids import new_epoch
from locus_store.sql.dialects.postgresql import quoted
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, TERMS, THREADS

THREAD_GONE = "22P02"
"""What it fails with where the thread that a base belongs to is not there at all."""


class Shape(NamedTuple):
    """What a save's statement consists of.

    Attributes:
        schema: The schema of the tables, or None.
        lock_timeout: How long to wait for the thread's row, in milliseconds.
        based: The save reuses blocks of a base.
        expects: The save names the head's version; only with a base.
        block: The save adds a block.
        terms: The save has terms.
    """

    schema: str | None
    lock_timeout: int
    based: bool
    expects: bool
    block: bool
    terms: bool


def fits(plan: Plan) -> bool:
    """Whether one statement can do all that a save asks for."""
    return (
        plan.fresh_id
        and plan.parent is None
        and plan.keep is None
        and (plan.expected_version is None or plan.base is not None)
    )


def save(schema: str | None, lock_timeout: int, key: Key, plan: Plan) -> tuple[str, list[Any]]:
    """The statement and its parameters; it returns version, epoch and number of the own block."""
    shape = Shape(
        schema,
        lock_timeout,
        plan.base is not None,
        plan.expected_version is not None,
        plan.block is not None,
        bool(plan.terms),
    )
    arguments = [
        key.tenant,
        key.thread_id,
        plan.checkpoint_id,
        plan.stamp,
        plan.low,
        plan.high,
        plan.ranges,
        plan.payload,
        plan.metadata,
        plan.size,
        plan.now,
        plan.expires_at,
        new_epoch() if plan.base is None else plan.base.epoch,
    ]
    if plan.base is not None:
        arguments += [plan.base.version, plan.base.stamp]
    if plan.expected_version is not None:
        arguments.append(plan.expected_version)
    if plan.block is not None:
        arguments.append(plan.block)
    if plan.terms:
        arguments.append(b"".join(dict.fromkeys(plan.terms)))
    return _text(shape), arguments


@cache
def _text(shape: Shape) -> str:
    prefix = "" if shape.schema is None else quoted(shape.schema) + "."
    threads, checkpoints, blocks, terms = [prefix + t.name for t in (THREADS, CHECKPOINTS, BLOCKS, TERMS)]
    added, own = ("1", "t.block_count") if shape.block else ("0", "0::bigint")
    numbers = iter(range(14, 20))
    condition = ""
    parent = "nullif(version - 1, 0)"
    if shape.based:
        version, stamp = next(numbers), next(numbers)
        # Written as a range with an order, so that the planner takes the index by version under any statistics.
        condition = f"""
    AND h.epoch = $13
    AND (SELECT k.stamp FROM {checkpoints} AS k
      WHERE k.thread = h.id AND k.version >= ${version}::bigint AND k.version < ${version}::bigint + 1
      ORDER BY k.version LIMIT 1) = ${stamp}::bytea"""
        # Like this, and not as a plain UPDATE, the row is found by the unique index, under any statistics. But it must
        # not insert: the cast fails if it did, and undoes all.
        parent = """CASE WHEN version > 1 THEN version - 1
    ELSE ('locus_store: the thread was deleted meanwhile, this save is planned again ' || version)::bigint END"""
    if shape.expects:
        condition += f"""
    AND h.head_version = ${next(numbers)}::bigint"""
    text = f"""WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', '{shape.lock_timeout}ms', true)),
t AS (
  INSERT INTO {threads} AS h
    (tenant, thread_id, version, head_version, head_id, block_count, epoch, created_at, updated_at, expires_at)
  SELECT $1::varchar, $2::varchar, 1, 1, $3::varchar, {added}, $13::bigint, $11::bigint, $11, $12::bigint
  FROM patience
  ON CONFLICT (tenant, thread_id) DO UPDATE SET
    version = h.version + 1, head_version = h.version + 1, head_id = $3, block_count = h.block_count + {added},
    updated_at = greatest($11, h.updated_at + 1), expires_at = $12
  WHERE h.head_version = h.version AND (h.expires_at IS NULL OR h.expires_at > $11){condition}
  RETURNING id, version, block_count, epoch, updated_at, {parent} AS parent),
c AS (
  INSERT INTO {checkpoints}
    (thread, version, checkpoint_id, parent_version, stamp, own_block, first_block, last_block, ranges, payload,
    metadata, stored_size, created_at)
  SELECT id, version, $3, parent, $4::bytea, {own}, coalesce($5::bigint, {own}), greatest($6::bigint, {own}),
    $7::bytea, $8::bytea, $9::bytea, $10::bigint, updated_at
  FROM t)"""
    if shape.block:
        text += f""",
b AS (
  INSERT INTO {blocks} (thread, block_number, last_number, payload)
  SELECT id, block_count, block_count, convert_to(block_count || ' ', 'UTF8') || ${next(numbers)}::bytea
  FROM t)"""
    if shape.terms:
        digests = f"${next(numbers)}::bytea"
        text += f""",
m AS (
  INSERT INTO {terms} (thread, version, term)
  SELECT id, version, substr({digests}, 16 * i + 1, 16)
  FROM t, generate_series(0, length({digests}) / 16 - 1) AS i)"""
    return text + f"\nSELECT version, epoch, {own} FROM t"
