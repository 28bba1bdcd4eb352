"""Fragments: the part of a text in which something was found, to be shown to people."""

from __future__ import annotations

import re
from collections.abc import Sequence

Span = tuple[int, int]

MARKS = ("**", "**")
"""What stands before and behind a found word."""
WIDTH = 160
"""Characters of the text that a fragment has at most, unless one find is longer."""
_CUT = "…"
_REACH = 24
"""So far a cut is moved to be between two words."""


def fragment(text: str, spans: Sequence[Span], marks: tuple[str, str] = MARKS) -> str:
    """The part of a text with the most finds in it; white space is one blank, ``…`` shows where it was cut.

    Args:
        text: The text.
        spans: The finds, in order and apart.
        marks: What to put before and behind each find.
    """
    first, last = _best(spans)
    low, high = spans[first][0], spans[last - 1][1]
    room = max(0, WIDTH - (high - low))
    start = max(0, low - room // 2)
    end = min(len(text), start + max(WIDTH, high - low))
    start = max(0, min(start, end - WIDTH))
    start, end = _between_words(text, start, end, low, high)
    out: list[str] = [_CUT if text[:start].strip() else ""]
    at = start
    for begin, stop in spans:
        if start <= begin and stop <= end:
            out += [text[at:begin], marks[0], text[begin:stop], marks[1]]
            at = stop
    out += [text[at:end], _CUT if text[end:].strip() else ""]
    return re.sub(r"\s+", " ", "".join(out)).strip()


def _best(spans: Sequence[Span]) -> tuple[int, int]:
    """The first and the last (exclusive) of the most finds that have room together."""
    best = (0, 1)
    first = 0
    for last in range(1, len(spans) + 1):
        while spans[last - 1][1] - spans[first][0] > WIDTH and first < last - 1:
            first += 1
        if last - first > best[1] - best[0]:
            best = first, last
    return best


def _between_words(text: str, start: int, end: int, low: int, high: int) -> tuple[int, int]:
    """The same part with its ends moved inwards to white space, where there is some near."""
    if start > 0 and not text[start - 1].isspace():
        blank = re.compile(r"\s").search(text, start, min(low, start + _REACH))
        start = blank.end() if blank else start
    if end < len(text) and not text[end].isspace():
        tail = max(high, end - _REACH)
        blanks = [m.start() for m in re.compile(r"\s").finditer(text, tail, end)]
        end = blanks[-1] if blanks else end
    return start, end
