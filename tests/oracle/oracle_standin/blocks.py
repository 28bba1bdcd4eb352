"""Blocks of PL/SQL: the few that are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oracle.oracle_standin.errors import StandInError

if TYPE_CHECKING:
    from oracle.oracle_standin.connection import StandInConnection


async def run(connection: StandInConnection, sql: str, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    """Run a block."""
    if "dbms_transaction.local_transaction_id" in sql:
        # SQLAlchemy asks for the isolation level like this, and does without where the answer is out of its reach.
        values["TRANS_ID"].setvalue(0, "1.2.3")
        return
    raise StandInError(f"the stand-in does not know this block: {sql}")
