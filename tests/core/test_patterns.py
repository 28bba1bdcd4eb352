"""Patterns of `list_threads`: one meaning, whether the regular expression or a database's LIKE applies them."""

from __future__ import annotations

import re
import sqlite3
import time
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locus_store.core.ids import MAX_ID_BYTES
from locus_store.core.patterns import Pattern, Wildcard, parse

ALPHABET = "ab*%?\\_[]^-.$(){}|+\n\r éÉ😀\u2028"
pattern_texts = st.one_of(
    st.text(st.sampled_from(ALPHABET), max_size=12),
    st.text(st.sampled_from("ab*?\\"), max_size=14),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8),
)


def reading(pattern: str) -> list[str | bool | None]:
    """A pattern character by character: None for any run, True for any one character, else the character."""
    found: list[str | bool | None] = []
    rest = list(pattern)
    while rest:
        c = rest.pop(0)
        if c == "\\" and rest and rest[0] in "\\*%?":
            found.append(rest.pop(0))
        else:
            found.append(None if c in "*%" else True if c == "?" else c)
    return found


def naively(pattern: str, text: str) -> bool:
    """What a pattern means, written out."""
    wanted = reading(pattern)

    @cache
    def fits(i: int, j: int) -> bool:
        if i == len(wanted):
            return j == len(text)
        if wanted[i] is None:
            return fits(i + 1, j) or (j < len(text) and fits(i, j + 1))
        return j < len(text) and wanted[i] in (True, text[j]) and fits(i + 1, j + 1)

    return fits(0, 0)


@st.composite
def texts_for(draw: st.DrawFn, pattern: str) -> str:
    """A text that fits the pattern, or nearly does, or has nothing to do with it."""
    some = st.text(st.sampled_from(ALPHABET), max_size=3)
    one = st.sampled_from(ALPHABET)
    made = "".join(draw(some) if c is None else draw(one) if c is True else str(c) for c in reading(pattern))
    how = draw(st.sampled_from(["as it is", "as it is", "one less", "one more", "other case", "other"]))
    at = draw(st.integers(0, len(made)))
    if how == "one less":
        return made[:at] + made[at + 1 :]
    if how == "one more":
        return made[:at] + draw(one) + made[at:]
    if how == "other case":
        return made.swapcase()
    return draw(st.text(st.sampled_from(ALPHABET), max_size=10)) if how == "other" else made


@pytest.fixture(scope="module")
def database():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    yield connection
    connection.close()


def liked(database: sqlite3.Connection, pattern: Pattern, text: str) -> bool:
    return bool(database.execute("SELECT ? LIKE ? ESCAPE '\\'", (text, pattern.like())).fetchone()[0])


@settings(max_examples=300)
@example("*", "").via("edge")
@example("", "").via("edge")
@example("a*\\", "ab\\").via("edge")
@example("*a?b*a", "aababxa").via("edge")
@given(pattern_texts, st.data())
def test_a_pattern_means_the_same_everywhere(database, pattern, data):
    text = data if isinstance(data, str) else data.draw(texts_for(pattern))
    read = parse(pattern)
    wanted = naively(pattern, text)
    assert bool(read.regex().fullmatch(text)) == wanted
    assert liked(database, read, text) == wanted
    if wanted:
        assert read.possible
        assert text.startswith(read.prefix)
        assert read.literal in (None, text)
    if read.literal is not None:
        assert (text == read.literal) == wanted
        assert read.prefix == read.literal
    if read.everything:
        assert wanted


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20))
def test_any_id_can_be_written_literally(database, text):
    pattern = re.sub(r"([\\*%?])", r"\\\1", text)
    read = parse(pattern)
    assert read.literal == text
    assert read.regex().fullmatch(text)
    assert liked(database, read, text)
    around = parse(f"*{pattern}*")
    for longer in (text, f"x{text}", f"{text}x", f"\n{text}\n"):
        assert around.regex().fullmatch(longer)
        assert liked(database, around, longer)


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("*", ["a", "a\nb", "%", "é😀"], []),
        ("%", ["a", "a\nb"], []),
        ("user-*", ["user-", "user-1", "user-a\nb"], ["user", "User-1", "xuser-1"]),
        ("user-%", ["user-", "user-1"], ["user"]),
        ("?", ["a", "😀", "\n", "?"], ["ab", ""]),
        ("a?c", ["abc", "a😀c"], ["ac", "abbc"]),
        (r"a\*", ["a*"], ["ab", "a\\", "a\\*"]),
        (r"a\%", ["a%"], ["ab", "a\\%"]),
        (r"a\?", ["a?"], ["ab"]),
        (r"a\\*", ["a\\", "a\\b"], ["a*", "ab"]),
        (r"a\\\*", ["a\\*"], ["a\\b"]),
        (r"a\b", ["a\\b"], ["ab"]),
        (r"a\_", ["a\\_"], ["a_", "ab", "a\\b"]),
        ("a\\", ["a\\"], ["a"]),
        ("a_b", ["a_b"], ["axb"]),
        ("[ab]", ["[ab]"], ["a", "b"]),
        ("a.c", ["a.c"], ["abc"]),
        ("(a|b)+", ["(a|b)+"], ["a"]),
        ("é*", ["é", "éa"], ["É", "e\u0301"]),
        ("*a*b*", ["ab", "xaxbx"], ["ba", "AB"]),
        ("a", ["a"], ["a\n", "\na", "A"]),
    ],
)
def test_what_patterns_mean(database, pattern, fits, others):
    read = parse(pattern)
    for text in fits + others:
        assert bool(read.regex().fullmatch(text)) == (text in fits), text
        assert liked(database, read, text) == (text in fits), text


def test_runs_side_by_side_are_one():
    assert parse("**").tokens == parse("%*%").tokens == (Wildcard.RUN,)
    assert parse("a**b%%").tokens == ("a", Wildcard.RUN, "b", Wildcard.RUN)
    assert parse("*?*").tokens == (Wildcard.RUN, Wildcard.ONE, Wildcard.RUN)
    assert parse("*" * 100_000).everything
    assert not parse("*?").everything
    assert not parse("").everything
    assert not parse(r"\*").everything


def test_literals_and_prefixes():
    assert parse("").literal == ""
    assert parse(r"a\*b\\c\d").literal == r"a*b\c\d"
    assert parse("a*").literal is None
    assert parse("a?").literal is None
    assert parse(r"a\*b*c").prefix == "a*b"
    assert parse("*a").prefix == ""
    assert parse("?a").prefix == ""


HOSTILE = {
    "many runs": "*a" * 250,
    "many runs and another end": "*a" * 250 + "*b",
    "many single ones": "*?" * 500,
    "ones and letters": "*?a" * 170 + "b",
    "one run and ones": "*" + "?" * 511 + "b",
    "runs of letters": "*aa" * 170 + "b",
    "groups": "(a+)+" * 100 + "*$",
    "half and half": "*" + "a" * 250 + "b*" + "a" * 250,
    "backslashes": "\\" * 511 + "*b",
    "no runs": "a" * 510 + "?b",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pattern_is_answered_at_once(name):
    pattern = parse(HOSTILE[name])
    start = time.process_time()
    for text in ("a" * 512, "a" * 511 + "c", "ab" * 256, "\\" * 512, "é" * 256):
        pattern.regex().fullmatch(text)
    assert time.process_time() - start < 2


def test_a_very_long_pattern_is_read_at_once():
    start = time.process_time()
    for text in ("a" * 10**5, "*?" * 10**5, "\\" * 10**5, "*" * 10**5, "a*" * 10**5, "\\*" * 10**5):
        read = parse(text)
        assert read.possible == (text[0] == "*" and text[1] == "*")
    assert time.process_time() - start < 5


def test_what_no_id_can_fit_is_impossible():
    for pattern in ("", "*", "?", "a" * MAX_ID_BYTES, "é" * 256 + "*", "?" * MAX_ID_BYTES, "*" * 1000, r"\*" * 512):
        assert parse(pattern).possible, pattern[:20]
    for pattern in (
        "a" * (MAX_ID_BYTES + 1),
        "é" * 256 + "*a",
        "?" * (MAX_ID_BYTES + 1),
        "a" * MAX_ID_BYTES + "*?",
        "a\0*",
        "*\0",
        "\ud800*",
        "*\udfff",
        "\ud83d\ude00",
        "\ud83d*\ude00",
    ):
        assert not parse(pattern).possible, pattern[:20]


@given(st.text(st.one_of(st.sampled_from("*?%\\a\0"), st.characters(exclude_categories=())), max_size=8), st.data())
def test_only_what_is_possible_fits_an_id(pattern, data):
    text = data.draw(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8)
    )
    read = parse(pattern)
    if read.regex().fullmatch(text):
        assert read.possible
        read.like().encode()
