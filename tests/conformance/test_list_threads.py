"""``list_threads``: patterns, pages, and the order of the last write."""

from __future__ import annotations

import time

import pytest


async def fill(store, *names):
    for name in names:
        await store.save(name, {"n": name})


async def test_last_write_first(store):
    await fill(store, "a", "c", "b")
    assert await store.list_threads() == ["b", "c", "a"]


async def test_a_save_moves_its_thread_to_the_front(store, other):
    await fill(store, "a", "b", "c")
    await other.save("a", {})
    assert await store.list_threads() == ["a", "c", "b"]
    (first,) = await store.history("b", before=2)
    await store.save("b", {}, first.checkpoint_id)
    assert await store.list_threads() == ["b", "a", "c"]


async def test_reading_moves_nothing(store):
    await fill(store, "a", "b")
    await store.load("a")
    await store.history("a")
    await store.get_metadata("a")
    assert await store.list_threads() == ["b", "a"]


async def test_a_hundred_unless_told_otherwise(store):
    names = [f"t{i:03d}" for i in range(103)]
    await fill(store, *names)
    assert await store.list_threads() == names[:2:-1]
    assert await store.list_threads(limit=None) == names[::-1]
    assert await store.list_threads(0) == []


async def test_page_by_page_everything_once(store):
    names = [f"t{i:02d}" for i in range(23)]
    await fill(store, *names)
    seen = []
    while page := await store.list_threads(limit=5, offset=len(seen)):
        seen += page
    assert seen == names[::-1]
    assert await store.list_threads(5, 21) == ["t01", "t00"]
    assert await store.list_threads(limit=None, offset=20) == ["t02", "t01", "t00"]
    assert await store.list_threads(5, 23) == []


async def test_within_one_tick_the_order_is_that_of_the_saves(open_store, clock):
    store = open_store(clock=clock)
    await fill(store, *"badc")
    assert await store.list_threads() == list("cdab")


async def test_of_equal_times_the_order_is_that_of_the_ids(open_store, clock):
    for name in ("b", "a", "é", "Z", "_", "z"):
        await open_store(clock=clock).save(name, {})
    assert await open_store(clock=clock).list_threads() == ["Z", "_", "a", "b", "z", "é"]


async def test_no_threads(store):
    assert await store.list_threads() == []


NAMES = [
    "user_1",
    "userX1",
    "user_10",
    "User_1",
    "100%",
    "100x",
    "a\\b",
    "a*b",
    "aXb",
    "a?b",
    "ab",
    "[ab]",
    "é1",
    "line\nbreak",
    "会话1",
    "🙂x",
    "-",
]

PATTERNS = {
    "*": NAMES,
    "%": NAMES,
    "**": NAMES,
    "*%*": NAMES,
    "user_*": ["user_1", "user_10"],
    "user_%": ["user_1", "user_10"],
    "user_1": ["user_1"],
    "user?1": ["user_1", "userX1"],
    "User*": ["User_1"],
    "USER*": [],
    "*_1": ["user_1", "User_1"],
    "*1*": ["user_1", "userX1", "user_10", "User_1", "100%", "100x", "é1", "会话1"],
    "?ser_1": ["user_1", "User_1"],
    "??": ["ab", "é1", "🙂x"],
    "?": ["-"],
    "a?b": ["a\\b", "a*b", "aXb", "a?b"],
    "a*b": ["a\\b", "a*b", "aXb", "a?b", "ab"],
    "a\\b": ["a\\b"],
    "a\\\\b": ["a\\b"],
    "a\\*b": ["a*b"],
    "a\\?b": ["a?b"],
    "100\\%": ["100%"],
    "100%": ["100%", "100x"],
    "[ab]": ["[ab]"],
    "[a-b]": [],
    "[*": ["[ab]"],
    "*]": ["[ab]"],
    "[!x]*": [],
    "line*": ["line\nbreak"],
    "line?break": ["line\nbreak"],
    "会*": ["会话1"],
    "e*": [],
    "": [],
    "_": [],
    "' OR 1=1 --": [],
    "\\": [],
    "*\\": [],
    ".*": [],
    "^*$": [],
    "{user_1,ab}": [],
}


async def test_patterns(store):
    await fill(store, *NAMES)
    found = {pattern: sorted(await store.list_threads(pattern=pattern)) for pattern in PATTERNS}
    assert found == {pattern: sorted(names) for pattern, names in PATTERNS.items()}


async def test_a_pattern_is_applied_before_the_page_is_cut(store):
    await fill(store, "a1", "b1", "a2", "b2", "a3", "b3")
    assert await store.list_threads(limit=2, pattern="a*") == ["a3", "a2"]
    assert await store.list_threads(limit=2, offset=1, pattern="a*") == ["a2", "a1"]
    assert await store.list_threads(1, 2, "a*") == ["a1"]


async def test_wrong_arguments_are_refused(store):
    for name, value, error in (
        ("limit", -1, ValueError),
        ("limit", "1", TypeError),
        ("offset", -1, ValueError),
        ("offset", None, TypeError),
        ("pattern", None, TypeError),
        ("pattern", b"*", TypeError),
    ):
        with pytest.raises(error, match=name):
            await store.list_threads(**{name: value})


async def test_a_pattern_that_no_id_can_match_finds_nothing(store):
    await fill(store, "a", "ab")
    for pattern in ("a\x00b", "\x00*", "x\ud800*", "*\udfff", "a\ud800"):
        assert await store.list_threads(pattern=pattern) == []


async def test_a_hostile_pattern_is_no_trouble(store):
    """Each of these has more ways to be tried than there is time."""
    await fill(store, "ab" * 200)
    started = time.monotonic()
    for pattern, found in (("a*" * 12, True), ("a*" * 12 + "c", False), ("*a?" * 9 + "*c", False)):
        assert await store.list_threads(pattern=pattern) == ["ab" * 200] * found
    assert time.monotonic() - started < 20


async def test_a_very_long_pattern_finds_nothing(store):
    await fill(store, "x" * 500)
    for pattern in ("x" * 100_000, "x" * 100_000 + "*", "*" + "é?" * 50_000):
        assert await store.list_threads(pattern=pattern) == []
