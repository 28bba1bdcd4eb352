"""Oracle SQL as a row of tokens: what the lint reads, and what the stand-in translates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["word", "quoted", "text", "number", "bind", "sign"]

_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<text>    [nN]?'(?:[^']|'')*' )
    | (?P<quoted>  "[^"]*" )
    | (?P<number>  (?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)? )
    | (?P<cast>    :: )
    | (?P<bind>    :(?:"[^"]*"|\w+) )
    | (?P<word>    [^\W\d][\w$\#]* )
    | (?P<sign>    \|\| | <= | >= | <> | != | := | => | \.\. | ->>? | <@ | @> | . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: What it is.
        text: As it is written.
        upper: The same in capitals, and for a bind or a quoted name without what surrounds the name.
        before: The white space and comments before it.
    """

    kind: Kind
    text: str
    upper: str
    before: str

    def is_(self, *texts: str) -> bool:
        """Whether it is one of these words or signs, written without quotes."""
        return self.kind in ("word", "sign") and self.upper in texts


def tokens(sql: str) -> list[Token]:
    """All tokens of a text."""
    return list(_tokens(sql))


def _tokens(sql: str) -> Iterator[Token]:
    before = ""
    for match in _TOKEN.finditer(sql):
        kind, text = str(match.lastgroup), match.group()
        if kind == "space":
            before += text
            continue
        if kind == "bind":
            name = text[1:]
            yield Token("bind", text, name[1:-1] if name.startswith('"') else name.upper(), before)
        elif kind == "quoted":
            yield Token("quoted", text, text[1:-1], before)
        else:
            yield Token("sign" if kind == "cast" else kind, text, text.upper(), before)  # type: ignore[arg-type]
        before = ""


def inside(found: list[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`, or the end of the list."""
    depth = 0
    for i in range(opening, len(found)):
        if found[i].is_("("):
            depth += 1
        elif found[i].is_(")"):
            depth -= 1
            if depth == 0:
                return i
    return len(found)


def parts(found: list[Token]) -> list[list[Token]]:
    """The tokens between commas that no brackets surround."""
    split: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.is_("(") - token.is_(")")
        if token.is_(",") and depth == 0:
            split.append([])
        else:
            split[-1].append(token)
    return split
