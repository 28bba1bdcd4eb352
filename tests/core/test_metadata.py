"""Metadata: what a query matches, and that the terms by which the database looks never lose what matches."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from exactness import any_text, assert_exact, documents, leaves
from hypothesis import given, settings
from hypothesis import strategies as st

from locus_store.core.errors import SerializationError
from locus_store.core.metadata import decode_metadata, encode_metadata, matches, terms

TENANT = "default"


def storable(metadata: Any) -> bool:
    try:
        encode_metadata(metadata)
    except SerializationError:
        return False
    return True


few = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "1", b"1", Decimal(1), Decimal("1.0"), 2**53, 2.0**53]
    ),
    st.sampled_from([(1,), (True,), (1.0,), frozenset({1}), frozenset({True})]),
    st.sampled_from(
        [datetime(2026, 1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))]
    ),
)
"""Values that are easily taken for one another."""
keys = st.one_of(st.sampled_from(["a", "b", "{}", "[*]", "k", "a.b"]), few)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.sets(few, max_size=3),
    )


alike = st.dictionaries(keys, st.recursive(few, containers, max_leaves=8), max_size=4)
varied = st.dictionaries(any_text, st.recursive(leaves, containers, max_leaves=8), max_size=4).filter(storable)


@st.composite
def contained(draw: st.DrawFn, value: Any) -> Any:
    """A query that matches the value: some of its keys and elements, in any order, some more than once."""
    if type(value) is dict:
        kept = [key for key in value if draw(st.booleans())]
        return {key: draw(contained(value[key])) for key in draw(st.permutations(kept))}
    if type(value) in (list, tuple):
        picked = draw(st.lists(st.sampled_from(value), max_size=4)) if value else []
        return type(value)(draw(contained(v)) for v in picked)
    if type(value) is float and value.is_integer():
        return draw(st.sampled_from([value, int(value)]))
    if type(value) is int and abs(value) <= 2**53:
        return draw(st.sampled_from([value, float(value)]))
    return copy.deepcopy(value)


def asked(query: Any, metadata: Any) -> bool:
    """Whether a query matches, after the law that ties terms to matches."""
    found = matches(query, metadata)
    if found:
        assert set(terms(TENANT, query)) <= set(terms(TENANT, metadata))
    return found


# --- the laws ---------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(alike, alike)
def test_terms_of_a_query_are_among_those_of_all_that_it_matches(query, metadata):
    asked(query, metadata)
    asked(metadata, query)


@given(few, few, few)
def test_terms_and_matches_agree_about_single_values_and_keys(one, other, value):
    """Without dicts in lists the terms decide alone."""
    for query, metadata in (
        ({"a": one}, {"a": other}),
        ({one: value}, {other: value}),
        ({"a": {one: value}}, {"a": {other: value}}),
        ({"a": [one]}, {"a": [value, other]}),
    ):
        asks, has = set(terms(TENANT, query)), set(terms(TENANT, metadata))
        assert asked(query, metadata) == (asks <= has)


@settings(max_examples=60)
@given(st.one_of(alike, varied))
def test_metadata_matches_itself_as_it_was_stored(metadata):
    stored = decode_metadata(encode_metadata(metadata))
    assert_exact(stored, metadata)
    assert asked(metadata, stored)
    assert asked(stored, metadata)
    assert asked({}, metadata)
    assert terms(TENANT, stored) == terms(TENANT, metadata)


@settings(max_examples=100)
@given(st.one_of(alike, varied), st.data())
def test_every_part_of_metadata_finds_it(metadata, data):
    query = data.draw(contained(metadata))
    assert asked(query, metadata)
    narrower = data.draw(contained(query))
    assert asked(narrower, query)
    assert asked(narrower, metadata)


@settings(max_examples=60)
@given(documents)
def test_all_metadata_is_stored_exactly_or_refused(metadata):
    try:
        text = encode_metadata(metadata)
    except SerializationError as e:
        assert e.path.startswith("$")
        return
    assert_exact(decode_metadata(text), metadata)
    if "Decimal('NaN')" not in repr(metadata) and "Decimal('sNaN')" not in repr(metadata):  # no key is found by it
        assert asked(metadata, decode_metadata(text))


@settings(max_examples=60)
@given(alike)
def test_terms_do_not_depend_on_the_order_of_keys(metadata):
    other = dict(reversed(metadata.items()))
    assert terms(TENANT, other) == terms(TENANT, metadata)
    assert asked(other, metadata)


@given(alike, any_text, any_text)
def test_tenants_have_no_terms_in_common(metadata, one, other):
    if one != other:
        assert set(terms(one, metadata)).isdisjoint(terms(other, metadata))


# --- types count ------------------------------------------------------------------------------------------------------

UNLIKE = [
    True,
    1,
    "1",
    b"1",
    None,
    "None",
    "",
    False,
    0,
    1.5,
    Decimal(1),
    [1],
    (1,),
    {1},
    frozenset({1}),
    {"a": 1},
    [],
    (),
    {},
    set(),
    datetime(2026, 1, 1),
    "2026-01-01T00:00:00",
    datetime(2026, 1, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("one", UNLIKE, ids=repr)
def test_a_value_matches_none_of_another_type(one):
    for other in UNLIKE:
        empty = type(one) is type(other) and one in ([], (), {}) and other  # is contained in every list, dict …
        same = other is one or bool(empty)
        for wrap in (lambda v: {"k": v}, lambda v: {"k": {"j": v}}, lambda v: {"k": [[v]]}):
            assert asked(wrap(one), wrap(other)) == same, (one, other)
    assert not asked({"k": one}, {})
    assert not asked({"k": one}, {"other": one})


def test_numbers_match_by_value():
    for one, other in ((1, 1.0), (0, -0.0), (0.0, -0.0), (2**53, 2.0**53), (-(10**22), -1e22), (int(1e300), 1e300)):
        assert asked({"n": one}, {"n": other})
        assert asked({"n": other}, {"n": one})
        assert terms(TENANT, {"n": one}) == terms(TENANT, {"n": other})
    for one, other in ((2**53 + 1, 2.0**53), (1, 1.5), (0.1, Decimal("0.1")), (5e-324, 0)):
        assert not asked({"n": one}, {"n": other})
        assert not asked({"n": other}, {"n": one})


def test_none_matches_an_explicit_null_only():
    assert asked({"a": None}, {"a": None})
    for metadata in ({}, {"b": None}, {"a": False}, {"a": 0}, {"a": ""}, {"a": []}, {"a": {}}, {"a": "null"}):
        assert not asked({"a": None}, metadata)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (1, "1"),
        (b"a", "a"),
        (None, "None"),
        ((1,), (True,)),
        ((1,), (1.0,)),
        (frozenset({1}), frozenset({True})),
        (Decimal("1.1"), Decimal("1.10")),
        (datetime(2026, 1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_keys_that_are_only_equal_are_other_keys(one, other):
    for a, b in ((one, other), (other, one)):
        assert asked({"d": {a: 1}}, {"d": {a: 1, "x": 2}})
        assert not asked({"d": {a: 1}}, {"d": {b: 1}})
        assert not asked({a: 1}, {b: 1})


def test_keys_are_literal():
    metadata = {"a.b": 1, "c": {"d": 2}, "*": 3, "$.c.d": 4}
    for query in ({"a.b": 1}, {"c": {"d": 2}}, {"*": 3}, {"$.c.d": 4}):
        assert asked(query, metadata)
    for query in ({"a": {"b": 1}}, {"c.d": 2}, {"*": 1}, {"A.B": 1}, {"a.b ": 1}):
        assert not asked(query, metadata)


# --- containment ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "metadata", "wanted"),
    [
        ({"tags": ["a"]}, {"tags": ["b", "a"]}, True),
        ({"tags": ["a", "b"]}, {"tags": ["b", "x", "a"]}, True),
        ({"tags": ["a", "a"]}, {"tags": ["a"]}, True),
        ({"tags": ["a", "c"]}, {"tags": ["a", "b"]}, False),
        ({"tags": "a"}, {"tags": ["a"]}, False),
        ({"tags": ["a"]}, {"tags": "a"}, False),
        ({"tags": ["a"]}, {"tags": ("a",)}, False),
        ({"tags": ("a",)}, {"tags": ("b", "a")}, True),
        ({"tags": []}, {"tags": ["a"]}, True),
        ({"tags": ["a"]}, {"tags": []}, False),
        ({"tags": {"a"}}, {"tags": {"a", "b"}}, False),
        ({"user": {}}, {"user": {"id": 1}}, True),
        ({"user": {"id": 1}}, {"user": {"id": 1.0, "name": "x"}}, True),
        ({"user": {"id": 1, "name": "y"}}, {"user": {"id": 1, "name": "x"}}, False),
        ({"users": [{"id": 1}]}, {"users": [{"id": 2}, {"id": 1, "name": "x"}]}, True),
        ({"m": [["a"], ["b"]]}, {"m": [["b", "a"]]}, True),
    ],
)
def test_containment(query, metadata, wanted):
    assert asked(query, metadata) is wanted


def test_terms_do_not_suffice_for_dicts_in_lists_and_matching_decides():
    query, metadata = {"users": [{"id": 1, "name": "y"}]}, {"users": [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]}
    assert set(terms(TENANT, query)) <= set(terms(TENANT, metadata))
    assert not matches(query, metadata)


def test_an_empty_query_has_no_terms():
    assert terms(TENANT, {}) == ()
    assert terms(TENANT, {"a": {}}) != ()
    assert len(terms(TENANT, {"a": 1, "b": [1, 1, 1]})) == 3


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("path", "wrap"),
    [
        ("$.score", lambda n: {"ok": 1.5, "score": n}),
        ("$.a.b", lambda n: {"a": {"b": n}}),
        ("$.a[1]", lambda n: {"a": [1.0, n]}),
        ("$.a[0].b[2]", lambda n: {"a": [{"b": (1, 2, n)}]}),
        ("$['a b'][7]", lambda n: {"a b": {7: n}}),
        ("$.a.<member>", lambda n: {"a": {n}}),
        ("$.a[0].<member>", lambda n: {"a": [frozenset({n})]}),
        ("$.a.<key>", lambda n: {"a": {n: 1}}),
        ("$.a.<key>[1]", lambda n: {"a": {(1, n): 1}}),
    ],
)
def test_a_number_that_is_not_finite_is_refused_where_it_is(number, path, wrap):
    with pytest.raises(SerializationError) as caught:
        encode_metadata(wrap(number))
    assert caught.value.path == path
    assert repr(number) in caught.value.reason


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    "value", [Colour.RED, object(), OrderedDict(a=1), bytearray(b"x"), 1j, len], ids=lambda value: type(value).__name__
)
def test_what_cannot_be_stored_is_refused_where_it_is(value):
    with pytest.raises(SerializationError) as caught:
        encode_metadata({"fine": 1, "a": [0, {"b": value}]})
    assert caught.value.path == "$.a[1].b"


@pytest.mark.parametrize("value", [[], [("a", 1)], "a", 1, True, {1}, b"x"], ids=repr)
def test_metadata_is_a_mapping(value):
    with pytest.raises(TypeError, match=f"dict, got {type(value).__name__}"):
        encode_metadata(value)


def test_no_metadata_is_none_and_other_mappings_become_dicts():
    assert encode_metadata(None) is None
    assert decode_metadata(None) is None
    assert decode_metadata(encode_metadata({})) == {}
    for mapping in (OrderedDict(a=(1,)), MappingProxyType({"a": (1,)})):
        assert_exact(decode_metadata(encode_metadata(mapping)), {"a": (1,)})
        assert terms(TENANT, mapping) == terms(TENANT, {"a": (1,)})


def test_what_contains_itself_is_refused():
    metadata: dict[str, Any] = {"a": 1}
    metadata["self"] = [metadata]
    with pytest.raises(SerializationError):
        encode_metadata(metadata)


@pytest.mark.parametrize("nan", ["NaN", "sNaN"])
@pytest.mark.parametrize(
    "key", [lambda n: n, lambda n: ("a", n), lambda n: (("a", n),)], ids=["it", "in it", "deep in it"]
)
def test_a_key_that_equals_nothing_is_refused(nan, key):
    """As a value it is told by its text, but a dict does not find it as a key."""
    try:
        metadata = {"a": [{key(Decimal(nan)): 1}]}
    except TypeError:  # a signaling one is no key at all
        return
    with pytest.raises(SerializationError, match="no query could find it") as caught:
        encode_metadata(metadata)
    assert caught.value.path.startswith("$.a[0].<key>")
    value = {"a": Decimal("NaN")}
    assert matches(value, decode_metadata(encode_metadata(value)))
