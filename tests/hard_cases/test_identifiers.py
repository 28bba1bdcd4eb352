"""Cases 25 to 33: identifiers."""

from __future__ import annotations

import random
import string

import pytest
from store_fixtures import only


@only("file")
async def test_case_25_nothing_appears_outside_the_folder(store, place, tmp_path):
    names = ["../../x", "..", ".", "/abs", "C:foo", "a\\b", f"{tmp_path}/abs", "....//x", "%2e%2e%2fx"]
    for i, name in enumerate(names):
        await store.save(name, {"i": i}, name, {"k": i})
        await store.put_records(name, name, {name: i})
        await store.tenant(name[:120]).save(name, {"i": i}, name)
    assert await store.list_threads() == names[::-1]
    for i, name in enumerate(names):
        assert await store.load(name, name) == {"i": i}
        assert await store.list_checkpoints(name) == [name]
    assert list(tmp_path.iterdir()) == [place.path]
    assert all(place.path in p.resolve().parents for p in place.path.rglob("*"))


async def test_case_25_a_nul_is_refused_alike(store, place):
    with pytest.raises(ValueError, match="NUL"):
        await store.save("a\x00b", {})
    with pytest.raises(ValueError, match="NUL"):
        await store.save("t", {}, "a\x00b")
    assert place.count() == 0


@only("file")
async def test_case_26_no_two_ids_share_a_name(store, other):
    for i, name in enumerate(("tg:a_b", "tg:a:b", "tg/a:b"), 1):
        await store.save(name, {"n": i})
    assert [(await other.load(n))["n"] for n in ("tg:a_b", "tg:a:b", "tg/a:b")] == [1, 2, 3]
    await store.delete("tg:a:b")
    assert await other.list_threads() == ["tg/a:b", "tg:a_b"]
    assert [(await other.load(n))["n"] for n in ("tg:a_b", "tg/a:b")] == [1, 3]


@only("file")
async def test_case_27_colons_long_ids_and_case(store, other, place):
    names = ["agent:main:1", "会" * 100, "x" * 250, "X" * 250, "Thread", "thread", "🙂" * 128]
    for i, name in enumerate(names):
        for _ in range(2):
            await store.save(name, {"i": i}, name)
    assert await other.list_threads() == names[::-1]
    for i, name in enumerate(names):
        assert await other.load(name, name) == {"i": i}
    parts = [part for path in place.path.rglob("*") for part in path.relative_to(place.path).parts]
    assert max(len(p.encode()) for p in parts) <= 255
    # On a disk that folds case, no two of them may become one.
    assert len({p.lower() for p in parts}) == len(set(parts))
    assert not [p for p in parts if set(p) & set('<>:"/\\|?*')]


async def test_case_28_512_bytes_are_an_id_and_513_are_not(store, other, place):
    rng = random.Random(28)
    letters = string.ascii_letters + string.digits + "äöü会🙂"
    for _ in range(20):
        name = ""
        while len(name.encode()) < 505:
            name += rng.choice(letters)
        name += "x" * (512 - len(name.encode()))
        await store.save(name, {"n": 1}, name)
        await store.put_records(name, name, {name: 1})
        assert await other.load(name, name) == {"n": 1}
        assert await other.records(name, name) == {name: 1}
        for arguments in ((name + "x", {}), ("t", {}, name + "x")):
            with pytest.raises(ValueError, match="512"):
                await store.save(*arguments)
    assert len(await other.list_threads()) == 20


@only("sqlite", "postgresql", "mariadb")
async def test_case_31_patterns_are_literal_but_for_their_wildcards(store):
    names = ["user_1", "userX1", "100%", "a\\b", "User_1", "[x]", "100x"]
    for name in names:
        await store.save(name, {})
    for pattern, expected in {
        "user_*": ["user_1"],
        "100\\%": ["100%"],
        "a\\b": ["a\\b"],
        "[x]": ["[x]"],
        "user?1": ["userX1", "user_1"],
        "User_1": ["User_1"],
        "USER_1": [],
    }.items():
        assert await store.list_threads(pattern=pattern) == expected, pattern


async def test_case_33_an_id_is_used_again(store, other, place):
    assert await store.save("t1", {"n": 1}, "c") == "c"
    assert await store.save("t2", {"n": 2}, "c") == "c"
    assert await other.load("t1", "c") == {"n": 1}
    assert await other.load("t2", "c") == {"n": 2}
    await store.save("t1", {"n": 5}, "d")
    before = place.count()
    assert await store.save("t1", {"n": 3}, "c") == "c"
    assert place.count() == before
    assert await other.list_checkpoints("t1") == ["c", "d"]
    assert await other.load("t1") == {"n": 3}
    assert (await other.get_metadata("t1"))["checkpoint_id"] == "c"
    assert await other.load("t2") == {"n": 2}
