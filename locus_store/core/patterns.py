"""Patterns of `list_threads`: ``*`` or ``%`` for any run of characters, ``?`` for one, all else literal.

A backslash before a wildcard or another backslash takes it literally; before anything else it is itself. Case counts.
There are no character classes: ``[`` and ``_`` are themselves.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from locus_store.core.ids import MAX_ID_BYTES


class Wildcard(Enum):
    """What is not literal in a pattern."""

    RUN = "*"
    ONE = "?"


class Pattern(NamedTuple):
    """A pattern, read: literal runs and the wildcards between them."""

    tokens: tuple[str | Wildcard, ...]

    @property
    def everything(self) -> bool:
        """True if every id matches."""
        return self.tokens == (Wildcard.RUN,)

    @property
    def literal(self) -> str | None:
        """The one id that matches, if there are no wildcards."""
        if any(isinstance(t, Wildcard) for t in self.tokens):
            return None
        return "".join(str(t) for t in self.tokens)

    @property
    def prefix(self) -> str:
        """What every id that matches begins with."""
        return self.tokens[0] if self.tokens and isinstance(self.tokens[0], str) else ""

    @property
    def possible(self) -> bool:
        """False for what matches no id, and what a database may refuse: too long, with NUL or lone surrogates."""
        try:
            shortest = sum(len(t.encode()) if isinstance(t, str) else t is Wildcard.ONE for t in self.tokens)
        except UnicodeEncodeError:
            return False
        return shortest <= MAX_ID_BYTES and not any(isinstance(t, str) and "\0" in t for t in self.tokens)

    def regex(self) -> re.Pattern[str]:
        """A regular expression to be used with ``fullmatch``; it takes linear time, whatever the pattern."""
        parts = [""]
        for t in self.tokens:
            if t is Wildcard.RUN:
                parts.append("")
            else:
                parts[-1] += "." if t is Wildcard.ONE else re.escape(t)
        first, *between = parts
        if not between:
            return re.compile(first, re.S)
        # The shortest run will do, once found, for all but the last part: an atomic group never looks again.
        *between, last = between
        return re.compile(first + "".join([f"(?>.*?{part})" for part in between]) + ".*" + last, re.S)

    def like(self, escape: str = "\\") -> str:
        """The pattern in the language of SQL's ``LIKE``.

        Args:
            escape: The escape character.
        """
        wild = {Wildcard.RUN: "%", Wildcard.ONE: "_"}
        literal = str.maketrans({sign: escape + sign for sign in (escape, "%", "_")})
        return "".join([wild[t] if isinstance(t, Wildcard) else t.translate(literal) for t in self.tokens])


def parse(pattern: str) -> Pattern:
    """Read a pattern."""
    tokens: list[str | Wildcard] = []
    literal = ""
    for part in re.findall(r"\\[\\*%?]|[*%?]|[^\\*%?]+|\\", pattern):
        if part not in ("*", "%", "?"):
            literal += part[1:] if len(part) == 2 and part[0] == "\\" else part
            continue
        if literal:
            tokens.append(literal)
            literal = ""
        wildcard = Wildcard.ONE if part == "?" else Wildcard.RUN
        if wildcard is Wildcard.ONE or not tokens or tokens[-1] is not Wildcard.RUN:
            tokens.append(wildcard)
    if literal:
        tokens.append(literal)
    return Pattern(tuple(tokens))
