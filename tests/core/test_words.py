"""Words of texts and queries, matches, scores and fragments."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus_store.core.fragments import WIDTH
from locus_store.core.words import Query, split


def words(text):
    return [word.text for word in split(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Plan a trip", ["plan", "a", "trip"]),
        ("  a_b  c-d/e.f ", ["a", "b", "c", "d", "e", "f"]),
        ("x1 2y 3.14", ["x1", "2y", "3", "14"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("ÉCOLE e\u0301cole école", ["école", "école", "école"]),
        ("ﬁn ＦＵＬＬ ①", ["fin", "full", "1"]),
        ("Привет МИР", ["привет", "мир"]),
        ("हिन्दी", ["हिन्दी"]),
        ("שָׁלוֹם", [unicodedata.normalize("NFKC", "שָׁלוֹם")]),
        ("東京tower", ["東", "京", "tower"]),
        ("カタカナ ｶﾅ", ["カ", "タ", "カ", "ナ", "カ", "ナ"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("한국 \u1112\u1161\u11ab", ["한국", "한"]),
        ("I ❤️ you 👍🏽", ["i", "you"]),
        ("a\0b\ud800c", ["a", "b", "c"]),
        ("İ ı", ["i̇", "ı"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text(max_size=40))
def test_words_stand_where_they_say(text):
    for word in split(text):
        assert 0 <= word.start < word.end <= len(text)
        assert word.text in words(text[word.start : word.end])
        assert " " not in word.text
        assert word.text


@given(st.text(max_size=40))
def test_forms_of_one_text_have_the_same_words(text):
    folded = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC")]
    if "\u0345" not in text:  # whose folding differs with what stands around it
        assert words(folded[0]) == words(folded[1])


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_a_query(text, query):
    found = Query.parse(query).match(text)
    if found is not None:
        assert 0 < found.score < 1
        assert found.fragment()


@given(st.text(max_size=40))
def test_a_text_is_found_by_its_own_words(text):
    own = words(text)
    assert Query.parse(" ".join(own)).matches(text) is bool(own)
    assert Query.parse('"' + text.replace('"', " ") + '"').matches(text) is bool(own)


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("", ()),
        (" . - ", ()),
        ("Plan TRIP", (("plan",), ("trip",))),
        ("plan plan", (("plan",),)),
        ('"a trip" plan', (("a", "trip"), ("plan",))),
        ("a_b", (("a", "b"),)),
        ("foo-bar baz", (("foo", "bar"), ("baz",))),
        ("東京", (("東", "京"),)),
        ('say "hello wor', (("say",), ("hello",), ("wor",))),
        ('"', ()),
        ('""""', ()),
        ('a"b c"d', (("a",), ("b", "c"), ("d",))),
        ("NOT (x OR y*) NEAR:3", (("not",), ("x",), ("or",), ("y",), ("near", "3"))),
    ],
)
def test_queries(query, phrases):
    assert Query.parse(query).phrases == phrases


def test_a_query_is_a_text():
    with pytest.raises(TypeError, match="query must be a str, got NoneType"):
        Query.parse(None)


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("trip", "Plan a TRIP.", True),
        ("rip", "Plan a trip", False),
        ("trip plan", "Plan a trip", True),
        ('"plan trip"', "Plan a trip", False),
        ('"a trip"', "Plan a — trip", True),
        ("a_b", "a b", True),
        ("a_b", "b a", False),
        ("京都", "東京都", True),
        ("京東", "東京都", False),
        ("é", "e", False),
        ("ß", "SS", True),
        ("one missing", "one", False),
    ],
)
def test_matches(query, text, found):
    assert Query.parse(query).matches(text) is found


def test_the_score_counts_how_much_of_a_text_was_looked_for():
    def score(text, query="needle hay"):
        return Query.parse(query).match(text).score

    assert score("needle hay") > score("needle hay " + "x " * 100)
    assert score("needle hay needle") > score("needle hay other")
    assert score("hay needle") == score("Needle: HAY!")


def test_a_fragment_is_the_part_with_most_finds_between_whole_words():
    text = "needle " + "filler " * 60 + "then a needle and\n\n another  needle end " + "filler " * 60
    found = Query.parse("needle").match(text).fragment()
    assert found.startswith("…filler")
    assert found.endswith("filler…")
    assert "a **needle** and another **needle** end" in found
    assert found.count("**") == 4
    assert len(found) <= WIDTH + 10


def test_a_short_text_is_its_own_fragment():
    assert Query.parse("foo-bar").match("  A Foo-Bar, ok ").fragment(("<b>", "</b>")) == "A <b>Foo-Bar</b>, ok"
    assert Query.parse("東京").match("私は東京が好き").fragment() == "私は**東京**が好き"
    assert Query.parse('"a a"').match("a a a").fragment() == "**a a a**"


@given(st.text(alphabet="ab .\n", min_size=1, max_size=800))
def test_fragments_are_parts_of_their_text(text):
    found = Query.parse("a").match(text)
    if found is not None:
        shown = found.fragment(("<", ">"))
        plain = re.sub("[<>…]", "", shown)
        assert plain in re.sub(r"\s+", " ", text)
        assert "<a>" in shown
        assert len(plain) <= WIDTH


def test_a_find_that_is_longer_than_a_fragment_is_shown_whole():
    word = "x" * 500
    assert Query.parse(word).match(f"a {word} b").fragment() in (f"…**{word}**…", f"…**{word}** b", f"a **{word}**…")
