"""Words: what a search takes a text for, the same on every backend.

A text is brought to the form NFKC; then a word is a run of letters, marks and digits, compared without regard to case.
In scripts that are written without spaces (Han, Kana, Thai, …) each character is a word by itself. Everything else is
between words.

In a query, a piece without spaces that holds several words (``a_b``, ``foo-bar``, ``東京``) is a phrase: its words must
follow each other. So is what stands in double quotes. All words and phrases must be in one text. Nothing else in a
query means anything, so there is nothing to escape.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from locus_store.core.fragments import MARKS, Span, fragment

Phrase = tuple[str, ...]

_LETTER, _MARK, _ALONE, _BETWEEN = "a", "m", "o", " "
_word_of_kinds = re.compile(f"{_LETTER}[{_LETTER}{_MARK}]*|{_ALONE}").finditer
_ascii_words = re.compile(r"[0-9a-z]+").finditer
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19FF),  # Tai Le, New Tai Lue, symbols of Khmer
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x2E80, 0x2FDF),  # radicals of Han
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3040, 0x30FF),  # Kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA980, 0xA9DF),  # Javanese
    (0xA9E0, 0xA9FF),  # Myanmar
    (0xAA60, 0xAADF),  # Myanmar, Tai Viet
    (0xF900, 0xFAFF),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
)


class Word(NamedTuple):
    """A word of a text, in the form in which words are compared, and where it stands."""

    text: str
    start: int
    end: int


class _Kinds(dict[int, str]):
    """For `str.translate`: what each character is."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))[0]
        if category not in "LMN":
            kind = _BETWEEN
        elif any(first <= code <= last for first, last in _UNSPACED):
            kind = _ALONE
        else:
            kind = _MARK if category == "M" else _LETTER
        self[code] = kind
        return kind


_kinds = _Kinds()


def split(text: str) -> list[Word]:
    """The words of a text, in its order."""
    if text.isascii():
        return [Word(m[0], m.start(), m.end()) for m in _ascii_words(text.lower())]
    if unicodedata.is_normalized("NFKC", text):
        return [Word(_fold(text[m.start() : m.end()]), m.start(), m.end()) for m in _word_of_kinds(_kinds_in(text))]
    normal, starts = _normalised(text)
    return [
        Word(_fold(normal[m.start() : m.end()]), starts[m.start()][0], starts[m.end() - 1][1])
        for m in _word_of_kinds(_kinds_in(normal))
    ]


def _kinds_in(text: str) -> str:
    return text.translate(_kinds)


def _fold(word: str) -> str:
    # Twice, as Unicode defines it: what folding makes may be another form of something else.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())


def _normalised(text: str) -> tuple[str, list[Span]]:
    """The text in NFKC, character by character with its marks, and where each character comes from."""
    out: list[str] = []
    places: list[Span] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and unicodedata.category(text[end])[0] == "M":
            continue
        normal = unicodedata.normalize("NFKC", text[start:end])
        out.append(normal)
        places += [(start, end)] * len(normal)
        start = end
    return "".join(out), places


class Match(NamedTuple):
    """A text in which all of a query was found.

    Attributes:
        score: Above 0 and below 1. Higher where more of the text is what was looked for.
        spans: Where the words and phrases are, each once, in order.
        text: The text.
    """

    score: float
    spans: Sequence[Span]
    text: str

    def fragment(self, marks: tuple[str, str] = MARKS) -> str:
        """About 160 characters around the best place, with marks around what was found."""
        return fragment(self.text, self.spans, marks)


class Query(NamedTuple):
    """What is looked for: every one of these phrases, most of which have one word. Without any, nothing is found.

    Attributes:
        phrases: The phrases, each once.
    """

    phrases: tuple[Phrase, ...]

    @classmethod
    def parse(cls, query: str) -> Query:
        """Read a query; any text is one.

        Raises:
            TypeError: It is no text.
        """
        if not isinstance(query, str):
            raise TypeError(f"query must be a str, got {type(query).__name__}")
        parts = query.split('"')
        if len(parts) % 2 == 0:  # the last quote has no partner
            parts[-2:] = [" ".join(parts[-2:])]
        pieces = [p for i, part in enumerate(parts) for p in ([part] if i % 2 else part.split())]
        found = [tuple([word.text for word in split(piece)]) for piece in pieces]
        return cls(tuple(dict.fromkeys([phrase for phrase in found if phrase])))

    def match(self, text: str) -> Match | None:
        """Where all of the query is in a text, or None if some of it is not."""
        if not self.phrases:
            return None
        if text.isascii():  # most texts do not match, and this is quickly seen
            lowered = text.lower()
            if not all([word in lowered for phrase in self.phrases for word in phrase]):
                return None
        words = split(text)
        places: dict[str, list[int]] = {}
        for i, word in enumerate(words):
            places.setdefault(word.text, []).append(i)
        spans: list[Span] = []
        score = 0.0
        for phrase in self.phrases:
            found = [i for i in places.get(phrase[0], ()) if _follow(words, i, phrase)]
            if not found:
                return None
            spans += [(words[i].start, words[i + len(phrase) - 1].end) for i in found]
            # BM25 with a fixed average length, and without the rarity of words, which only an index knows.
            score += len(found) / (len(found) + 0.3 + 0.9 * len(words) / _AVERAGE)
        return Match(score / len(self.phrases), _apart(spans), text)

    def matches(self, text: str) -> bool:
        """Whether all of the query is in a text."""
        return self.match(text) is not None


_AVERAGE = 100
"""So many words has a text whose length counts neither for nor against it."""


def _follow(words: Sequence[Word], at: int, phrase: Phrase) -> bool:
    return len(phrase) == 1 or tuple([word.text for word in words[at : at + len(phrase)]]) == phrase


def _apart(spans: list[Span]) -> list[Span]:
    """The spans in order; those that overlap are one."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start < out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((start, end))
    return out
