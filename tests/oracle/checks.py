"""Both checks of a statement together, for every version that is promised."""

from __future__ import annotations

from functools import cache

from oracle import grammar
from oracle.lint import VERSIONS, lint

COUNT_CHARACTERS = ("revision", "version_num")
"""Columns of VARCHAR2(32 CHAR): the names of revisions are ASCII, and one of them is in Alembic's own table."""


@cache
def complaints(sql: str) -> list[str]:
    """What the lint and the grammar have against a statement, each with the version."""
    found = [
        f"{version}: {said}"
        for version in VERSIONS
        for said in [
            *(f"{f.rule}: {f.message}" for f in lint(sql, version) if not _allowed(f.rule, f.message)),
            *(f"grammar: {message}" for message in grammar.complaints(sql, version)),
        ]
    ]
    return [f"{line} in {sql}" for line in found]


def _allowed(rule: str, message: str) -> bool:
    return rule == "length" and message.startswith(COUNT_CHARACTERS)
