"""Ids: what is allowed is stored as it is, and everything else is refused before anything is asked of a database."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any

import pytest
from exactness import any_text
from hypothesis import example, given
from hypothesis import strategies as st

from locus_store.core import ids

CHECKS: dict[str, tuple[Callable[[Any], str], int]] = {
    "thread_id": (ids.check_thread_id, ids.MAX_ID_BYTES),
    "checkpoint_id": (ids.check_checkpoint_id, ids.MAX_ID_BYTES),
    "tenant": (ids.check_tenant, ids.MAX_TENANT_BYTES),
    "anything": (lambda value: ids.check_id(value, "anything"), ids.MAX_ID_BYTES),
}
checks = pytest.mark.parametrize("what", CHECKS)


class Text(str):
    """Lies about everything."""

    def __str__(self) -> str:
        return "other"

    def __len__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __contains__(self, part: object) -> bool:
        return True

    def isascii(self) -> bool:
        return True

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b""


class Named(enum.StrEnum):
    ONE = "one"


def encodable(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


@checks
@given(st.one_of(any_text, st.text(min_size=100, max_size=300)))
@example("").via("empty")
@example("\ud83d\ude00").via("a pair of surrogates")
def test_an_id_is_taken_as_it_is_or_refused(what, text):
    check, limit = CHECKS[what]
    allowed = encodable(text) and "\0" not in text and 1 <= len(text.encode()) <= limit
    if allowed:
        assert check(text) == text
        found = check(Text(text))
        assert type(found) is str
        assert found == text
        return
    for value in (text, Text(text)):
        with pytest.raises(ValueError, match=f"^{what} "):
            check(value)


@checks
@pytest.mark.parametrize("character", ["a", "é", "漢", "😀"])
def test_limits_are_in_bytes(what, character):
    check, limit = CHECKS[what]
    size = len(character.encode())
    longest = character * (limit // size) + "x" * (limit % size)
    assert check(longest) == longest
    for text in (longest + "x", longest[:-1] + "😀😀", longest * 1000):
        with pytest.raises(ValueError, match=f"{what} must have 1 to {limit} bytes of UTF-8, got {len(text.encode())}"):
            check(text)
    with pytest.raises(ValueError, match=f"{what} must have 1 to {limit} bytes of UTF-8, got 0"):
        check("")


@checks
def test_characters_that_no_database_stores_are_refused(what):
    check, _ = CHECKS[what]
    for text in ("\0", "a\0b", "é\0", "\0" * 100):
        with pytest.raises(ValueError, match=f"{what} holds a NUL") as caught:
            check(text)
        assert "\0" not in str(caught.value)
    for text in ("\ud800", "a\udfffb", "\ud83d\ude00", "\ude00\ud83d"):
        with pytest.raises(ValueError, match=f"{what} holds a lone surrogate") as caught:
            check(text)
        assert not isinstance(caught.value, UnicodeError)
        str(caught.value).encode()  # can be printed and logged


@checks
def test_an_error_holds_no_payload(what):
    check, _ = CHECKS[what]
    for text in ("x" * 10**6, "x" * 10**6 + "\ud800", "\ud800" * 10**6, "\0" * 10**6):
        with pytest.raises(ValueError, match=what) as caught:
            check(text)
        assert len(str(caught.value)) < 4_000


@checks
@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"a", bytearray(b"a"), ["a"], ("a",), {"a"}, object(), str, len])
def test_what_is_no_str_is_refused_by_its_type(what, value):
    check, _ = CHECKS[what]
    with pytest.raises(TypeError, match=f"^{what} must be a str, got {type(value).__name__}$"):
        check(value)


@checks
def test_subclasses_become_exact_strs_of_what_they_hold(what):
    check, _ = CHECKS[what]
    for value, wanted in ((Text("one"), "one"), (Named.ONE, "one"), (Text("é"), "é")):
        found = check(value)
        assert type(found) is str
        assert found == wanted


@checks
@pytest.mark.parametrize(
    "text", [" ", "\n", "a/b", "..", "a:b", "'; DROP TABLE x; --", "%", "\\", "é", "e\u0301", "\u2028", "\U0010ffff"]
)
def test_everything_else_is_an_id(what, text):
    assert CHECKS[what][0](text) == text


def test_new_checkpoint_ids_are_ids():
    made = {ids.new_checkpoint_id() for _ in range(1000)}
    assert len(made) == 1000
    for checkpoint_id in made:
        assert re.fullmatch("[0-9a-f]{32}", checkpoint_id)
        assert ids.check_checkpoint_id(checkpoint_id) == checkpoint_id


def test_stamps_and_epochs():
    assert len({ids.new_stamp() for _ in range(1000)}) == 1000
    assert {len(ids.new_stamp()) for _ in range(100)} == {16}
    epochs = [ids.new_epoch() for _ in range(1000)]
    assert len(set(epochs)) == 1000
    assert all(0 < e < 2**63 for e in epochs)


@pytest.mark.parametrize("what", ["getpid", "time_ns"])
def test_a_copy_of_the_process_draws_something_else(monkeypatch, what):
    """A forked child has the same memory, and so has a machine that was started twice from one snapshot."""
    module, real = (ids.os, ids.os.getpid) if what == "getpid" else (ids.time, ids.time.time_ns)
    if what == "getpid":  # the time alone must not be what tells them apart
        monkeypatch.setattr(ids.time, "time_ns", lambda: 17)
    drawn = []
    for process in range(3):
        monkeypatch.setattr(module, what, lambda process=process: real() + process)
        monkeypatch.setattr(ids, "_source", ids._Source(b"k" * 32, iter(range(5))))
        drawn += [ids.new_stamp() for _ in range(5)]
    assert len(set(drawn)) == 15


def test_the_key_is_renewed(monkeypatch):
    monkeypatch.setattr(ids, "_source", ids._Source(b"k" * 32, iter(range(2))))
    assert len({ids.new_stamp() for _ in range(5)}) == 5
    assert ids._source.key != b"k" * 32
    assert len(ids._source.key) == 32
