"""What "equal and of the same types" means, the values that documents may hold, and a way to run a store without a loop.

`differs` is written out here and owes nothing to the package: it is what the package is judged by.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Coroutine
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pydantic_core import TzInfo


def differs(found: Any, wanted: Any, path: str = "$") -> str | None:
    """Where two values differ: in type, value, order of keys, sign of a zero, digits, zone or fold; None if nowhere."""
    if type(found) is not type(wanted):
        return f"{path}: {type(found).__name__} instead of {type(wanted).__name__}"
    if type(wanted) is float:
        same = math.isnan(found) if math.isnan(wanted) else struct.pack("d", found) == struct.pack("d", wanted)
        return None if same else f"{path}: {found!r} instead of {wanted!r}"
    if type(wanted) is dict:
        if len(found) != len(wanted):
            return f"{path}: {len(found)} keys instead of {len(wanted)}"
        for i, ((k, v), (wanted_k, wanted_v)) in enumerate(zip(found.items(), wanted.items(), strict=True)):
            where = differs(k, wanted_k, f"{path}<key {i}>") or differs(v, wanted_v, f"{path}[{wanted_k!a}]")
            if where:
                return where
        return None
    if type(wanted) in (list, tuple):
        if len(found) != len(wanted):
            return f"{path}: {len(found)} elements instead of {len(wanted)}"
        pairs = enumerate(zip(found, wanted, strict=True))
        return next((where for i, (f, w) in pairs if (where := differs(f, w, f"{path}[{i}]"))), None)
    if type(wanted) in (set, frozenset):
        # Each member must be there with its very type: {1} is not {True}.
        left = list(found)
        for member in wanted:
            match = next((i for i, other in enumerate(left) if differs(other, member) is None), None)
            if match is None:
                return f"{path}: {member!r} is missing"
            del left[match]
        return f"{path}: {left!r} too many" if left else None
    if type(wanted) is Decimal:
        return None if found.as_tuple() == wanted.as_tuple() else f"{path}: {found!r} instead of {wanted!r}"
    if type(wanted) in (datetime, time):
        same = (found.replace(tzinfo=None), found.fold) == (wanted.replace(tzinfo=None), wanted.fold)
        zones = found.tzinfo, wanted.tzinfo
        same = same and type(zones[0]) is type(zones[1]) and repr(zones[0]) == repr(zones[1])
        return None if same else f"{path}: {found!r} instead of {wanted!r}"
    return None if found == wanted else f"{path}: {found!r} instead of {wanted!r}"


def assert_exact(found: Any, wanted: Any) -> None:
    where = differs(found, wanted)
    assert where is None, where


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing: the core runs to its end without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as e:
        return e.value
    raise AssertionError("it waited for something")


# --- strategies -------------------------------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=12)
"""Lone surrogates and NUL included."""
zones = st.one_of(
    st.none(),
    st.timezones(),
    st.integers(-86_399, 86_399).map(lambda s: timezone(timedelta(seconds=s))),
    st.builds(
        lambda us, name: timezone(timedelta(microseconds=us), name),
        st.integers(-86_399_999_999, 86_399_999_999),
        any_text,
    ),
    st.integers(-86_399, 86_399).map(TzInfo),
    st.just(UTC),
)
datetimes = st.builds(lambda d, z, f: d.replace(tzinfo=z, fold=f), st.datetimes(), zones, st.integers(0, 1))
times = st.builds(lambda t, z, f: t.replace(tzinfo=z, fold=f), st.times(), zones, st.integers(0, 1))
integers = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.integers(-2, 2).map(lambda d: 2**53 + d),
    st.integers(-2, 2).map(lambda d: -(2**53) + d),
    st.integers(60, 4000).map(lambda n: 7**n),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, 1e16, 1e22, 5e-324, math.nan, math.inf, -math.inf]),
    any_text,
    st.sampled_from(["\ud800\udc00", "\udc00\ud800", "\x00", "\\ud800", '"', "\u2028", "$tuple"]),
    st.binary(max_size=12),
    datetimes,
    st.dates(),
    times,
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.sampled_from([Decimal("1.10"), Decimal("1.1"), Decimal("-0"), Decimal("NaN"), Decimal("-Infinity")]),
    st.uuids(),
)
hashables = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
marks = st.sampled_from(
    ["$tuple", "$bytes", "$dict", "$int", "$float", "$str", "$set", "$", "$$", "$unknown", "$datetime", "tuple"]
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(any_text, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=3),
        st.dictionaries(marks, inner, min_size=1, max_size=2),
        st.sets(hashables, max_size=3),
        st.frozensets(hashables, max_size=3),
    )


values = st.recursive(leaves, _containers, max_leaves=12)
"""Everything that a document may hold."""
documents = st.dictionaries(st.one_of(any_text, marks, hashables), values, max_size=5)
