"""Oracle's save in one block of PL/SQL, for a save that nobody raced.

The block locks the thread's row first. From there on all that it reads is the newest state, so it checks and writes as
`locus_store.sql.writing` does, and commits: one round trip. What is too large for a variable of PL/SQL is left out;
then the block does not commit, and one INSERT for each such row follows, of which the last commits.

Where it saved nothing it leaves no transaction and says so; `locus_store.sql.writing` then finds out why.
"""
# ruff: noqa: S608 - only names of tables are put in, and they are quoted

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy.dialects.oracle import base as oracle

from locus_store.core import frames
from locus_store.core.driver import Key, Plan
from locus_store.core.ids import new_epoch
from locus_store.sql.statements import BLOCKS, CHECKPOINTS, TERMS, THREADS
from locus_store.sql.types import to_oracle

LARGEST = 32_000
"""Bytes that a variable of PL/SQL may have here; its own limit is 32,767, and a block's number comes in front."""

RETURNED = ("saved", "thread_row", "version", "block", "epoch", "parent", "moment")
"""What the block answers with; ``saved`` is 1, or 0 if it wrote nothing."""

_preparer = oracle.OracleDialect().identifier_preparer


class Shape(NamedTuple):
    """What a save's block consists of.

    Attributes:
        schema: The schema of the tables, or None.
        patience: How many seconds to wait for the thread's row.
        based: The save reuses blocks of a base.
        expects: The save names the head's version.
        adds: The save adds a block.
        block: That block is small enough for the block of PL/SQL.
        checkpoint: The checkpoint is.
        terms: The save has terms.
    """

    schema: str | None
    patience: int
    based: bool
    expects: bool
    adds: bool
    block: bool
    checkpoint: bool
    terms: bool

    @property
    def whole(self) -> bool:
        """Whether nothing is left to be sent."""
        return self.checkpoint and self.block == self.adds


def fits(plan: Plan) -> bool:
    """Whether a block can do all that a save asks for."""
    return plan.fresh_id and plan.parent is None and plan.keep is None and 16 * len(plan.terms) <= LARGEST


def shape(schema: str | None, patience: int, plan: Plan) -> Shape:
    """What the block of a save consists of."""
    small = all(len(piece) <= LARGEST for piece in (plan.ranges, plan.payload, plan.metadata or b""))
    return Shape(
        schema,
        patience,
        plan.base is not None,
        plan.expected_version is not None,
        plan.block is not None,
        plan.block is not None and len(plan.block) <= LARGEST,
        small,
        bool(plan.terms),
    )


def parameters(found: Shape, key: Key, plan: Plan) -> dict[str, Any]:
    """What the block's names stand for, but for `RETURNED`."""
    values: dict[str, Any] = {
        "tenant": key.tenant,
        "name": key.thread_id,
        "checkpoint": plan.checkpoint_id,
        "now": plan.now,
        "expires": plan.expires_at,
        "new_epoch": new_epoch() if plan.base is None else plan.base.epoch,
    }
    if plan.base is not None:
        values |= {"base_version": plan.base.version, "base_stamp": plan.base.stamp}
    if plan.expected_version is not None:
        values["expected"] = plan.expected_version
    if found.block:
        values["content"] = plan.block
    if found.checkpoint:
        values |= _content(plan)
    if found.terms:
        values["terms"] = b"".join(dict.fromkeys(plan.terms))
    return values


def rest(found: Shape, plan: Plan, answer: Mapping[str, int | None]) -> list[tuple[str, dict[str, Any]]]:
    """The INSERTs that follow a block which could not take everything, with their parameters.

    Args:
        found: The block's shape.
        plan: The save.
        answer: What the block returned.
    """
    _, checkpoints, blocks, _ = _tables(found.schema)
    own = answer["block"] or 0
    left: list[tuple[str, dict[str, Any]]] = []
    if found.adds and not found.block:
        content = frames.numbered(own, plan.block or b"")
        text = f"{_insert_block(blocks)} VALUES (:thread_row, :block, :block, :content)"
        left.append((text, {"thread_row": answer["thread_row"], "block": own, "content": content}))
    if not found.checkpoint:
        values = _content(plan) | {
            **{name: answer[name] for name in ("thread_row", "version", "parent", "moment")},
            "checkpoint": plan.checkpoint_id,
            "block": own,
            "low": plan.low or own,
            "high": own or plan.high or 0,
        }
        text = (
            f"{_insert_checkpoint(checkpoints)} VALUES (:thread_row, :version, :checkpoint, :parent, :stamp, :block, "
            ":low, :high, :ranges, :payload, :metadata, :stored, :moment)"
        )
        left.append((text, values))
    return left


def _content(plan: Plan) -> dict[str, Any]:
    return {
        "stamp": plan.stamp,
        "low": plan.low,
        "high": plan.high,
        "ranges": to_oracle(plan.ranges),
        "payload": to_oracle(plan.payload),
        "metadata": to_oracle(plan.metadata),
        "stored": plan.size,
    }


def _tables(schema: str | None) -> list[str]:
    prefix = "" if schema is None else _preparer.quote_schema(schema) + "."
    return [prefix + table.name for table in (THREADS, CHECKPOINTS, BLOCKS, TERMS)]


def _insert_block(blocks: str) -> str:
    return f"INSERT INTO {blocks} (thread, block_number, last_number, payload)"


def _insert_checkpoint(checkpoints: str) -> str:
    return (
        f"INSERT INTO {checkpoints} (thread, version, checkpoint_id, parent_version, stamp, own_block, first_block, "
        "last_block, ranges, payload, metadata, stored_size, created_at)"
    )


@cache
def block(found: Shape) -> str:
    """The block of PL/SQL."""
    threads, checkpoints, blocks, terms = _tables(found.schema)
    give_up = "ROLLBACK; RETURN;"
    declared = ["v_thread", "v_version", "v_head", "v_block", "v_epoch", "v_moment", "v_found_expires", "v_parent"]
    large = ["content"] * found.block + ["ranges", "payload", "metadata"] * found.checkpoint + ["terms"] * found.terms
    lines = [
        "DECLARE",
        "  v_now NUMBER(19) := :now;",
        "  v_checkpoint VARCHAR2(512 BYTE) := :checkpoint;",
        "  v_expires NUMBER(19) := :expires;",
        "  v_new_epoch NUMBER(19) := :new_epoch;",
        "  v_own NUMBER(19) := 0;",
        *[f"  v_{name} RAW(32767) := :{name};" for name in large],
        *[f"  {name} NUMBER(19);" for name in declared],
        *["  v_bases NUMBER(19);"] * found.based,
        *["  v_expected NUMBER(19) := :expected;"] * found.expects,
        *["  v_term RAW(16);"] * found.terms,
        "BEGIN",
        "  :saved := 0;",
        "  BEGIN",
        "    SELECT id, version, head_version, block_count, epoch, updated_at, expires_at",
        "    INTO v_thread, v_version, v_head, v_block, v_epoch, v_moment, v_found_expires",
        f"    FROM {threads} WHERE tenant = :tenant AND thread_id = :name FOR UPDATE WAIT {found.patience};",
        "  EXCEPTION WHEN NO_DATA_FOUND THEN",
        "    v_thread := NULL;",
        "  END;",
        "  IF v_thread IS NULL THEN",
    ]
    if found.based:
        lines += [f"    {give_up}"]
    else:
        lines += [
            *[f"    IF v_expected > 0 THEN {give_up} END IF;"] * found.expects,
            "    v_version := 1;",
            f"    v_block := {int(found.adds)};",
            "    v_epoch := v_new_epoch;",
            "    v_moment := v_now;",
            f"    INSERT INTO {threads} (tenant, thread_id, version, head_version, head_id, block_count, epoch, "
            "created_at, updated_at, expires_at)",
            "    VALUES (:tenant, :name, v_version, v_version, v_checkpoint, v_block, v_epoch, v_now, v_now, "
            "v_expires)",
            "    RETURNING id INTO v_thread;",
        ]
    lines += ["  ELSE", f"    IF v_found_expires <= v_now THEN {give_up} END IF;"]
    if found.based:
        lines += [
            f"    IF v_epoch <> v_new_epoch THEN {give_up} END IF;",
            f"    SELECT COUNT(*) INTO v_bases FROM {checkpoints}",
            "    WHERE thread = v_thread AND version = :base_version AND stamp = :base_stamp;",
            f"    IF v_bases = 0 THEN {give_up} END IF;",
        ]
    lines += [
        *[f"    IF v_head <> v_expected THEN {give_up} END IF;"] * found.expects,
        "    IF v_head > 0 THEN",
        "      v_parent := v_head;",
        "      v_moment := GREATEST(v_now, v_moment + 1);",
        "    ELSE",
        "      v_moment := v_now;",
        "    END IF;",
        "    v_version := v_version + 1;",
        f"    v_block := v_block + {int(found.adds)};",
        f"    UPDATE {threads} SET version = v_version, head_version = v_version, head_id = v_checkpoint,",
        "    block_count = v_block, updated_at = v_moment, expires_at = v_expires WHERE id = v_thread;",
        "  END IF;",
    ]
    if found.adds:
        lines += ["  v_own := v_block;"]
    if found.block:
        lines += [
            "  v_content := UTL_RAW.CONCAT(UTL_RAW.CAST_TO_RAW(TO_CHAR(v_own) || ' '), v_content);",
            f"  {_insert_block(blocks)}",
            "  VALUES (v_thread, v_own, v_own, v_content);",
        ]
    if found.checkpoint:
        lines += [
            f"  {_insert_checkpoint(checkpoints)}",
            "  VALUES (v_thread, v_version, v_checkpoint, v_parent, :stamp, v_own, NVL(:low, v_own), "
            "GREATEST(NVL(:high, 0), v_own), v_ranges, v_payload, v_metadata, :stored, v_moment);",
        ]
    if found.terms:
        lines += [
            "  FOR i IN 1 .. UTL_RAW.LENGTH(v_terms) / 16 LOOP",
            "    v_term := UTL_RAW.SUBSTR(v_terms, 16 * i - 15, 16);",
            f"    INSERT INTO {terms} (thread, version, term) VALUES (v_thread, v_version, v_term);",
            "  END LOOP;",
        ]
    lines += [
        *["  COMMIT;"] * found.whole,
        "  :saved := 1;",
        "  :thread_row := v_thread;",
        "  :version := v_version;",
        "  :block := v_own;",
        "  :epoch := v_epoch;",
        "  :parent := v_parent;",
        "  :moment := v_moment;",
        "EXCEPTION",
        "  WHEN DUP_VAL_ON_INDEX THEN",
        "    ROLLBACK;",
        "    :saved := 0;",
        "  WHEN OTHERS THEN",
        "    ROLLBACK;",
        "    RAISE;",
        "END;",
    ]
    return "\n".join(lines)
