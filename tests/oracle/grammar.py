"""Oracle's grammar, as another project wrote it down: qivo-parseora, a parser for 12.2 to 26ai.

It knows nothing of the rules that the server checks after parsing; those are the business of `oracle.lint`.
"""

from __future__ import annotations

import parseora
from oracle.lint import Version

_KEPT = "kept as tokens"
"""What the parser says where it takes a part of DDL for granted."""


def complaints(sql: str, version: Version) -> list[str]:
    """Why a statement is none of this version; empty if it is one."""
    found = parseora.parse(sql, version=version)
    if len(found) != 1:
        return [f"{len(found)} statements"]
    (statement,) = found
    if statement["kind"] not in ("sql", "plsql"):
        return [f"{statement['kind']}: no statement that a server takes"]
    errors = [str(error["message"]) for error in statement["errors"]]
    warnings = [str(warning["message"]) for warning in statement["warnings"]]
    return errors + [message for message in warnings if _KEPT not in message]
