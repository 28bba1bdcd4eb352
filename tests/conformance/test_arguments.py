"""Wrong arguments: a ValueError or TypeError that names the parameter, before anything is read or written."""

from __future__ import annotations

import pytest

from locus_store import FileBackend, FileCheckpointer, MemoryBackend, SQLiteBackend

CALLS = {
    "older_than_days": lambda s: s.vacuum(older_than_days="1"),
    "keep_last": lambda s: s.vacuum(keep_last=-1),
    "checkpoint_id": lambda s: s.delete("t", 5),
    "parent": lambda s: s.save("t", {}, parent=5),
    "upto": lambda s: s.copy_thread("t", "u", upto=3),
    "values": lambda s: s.put_records("t", "s", [1]),
    "scope": lambda s: s.put_records("t", 1, {}),
    "limit": lambda s: s.list_threads(limit="5"),
    "offset": lambda s: s.list_threads(offset=-1),
    "pattern": lambda s: s.list_threads(pattern=b"*"),
    "expected_version": lambda s: s.save("t", {}, expected_version="1"),
    "if_exists": lambda s: s.save("t", {}, if_exists="replace"),
    "versions": lambda s: s.query_by_metadata({}, versions="some"),
    "key": lambda s: s.query_by_metadata(5),
    "metadata": lambda s: s.save("t", {}, metadata=[1]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_wrong_argument_is_named(store, name):
    with pytest.raises((ValueError, TypeError), match=name):
        await CALLS[name](store)
    assert await store.list_threads() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttl_seconds", 0),
        ("ttl_seconds", -1),
        ("ttl_seconds", "5"),
        ("ttl_seconds", 1e300),
        ("ttl_seconds", float("nan")),
        ("keep_checkpoints", 0),
        ("keep_checkpoints", True),
        ("codec", 5),
        ("clock", 5),
        ("tenant", ""),
    ],
)
def test_a_wrong_option_is_named(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        MemoryBackend(**{name: value})


async def test_ages_without_end_are_no_trouble(store):
    await store.save("t", {})
    assert await store.vacuum(older_than_days=float("inf")) == 0
    assert await store.vacuum(older_than_days=1e300, keep_last=0) == 0


@pytest.mark.parametrize("made", [MemoryBackend, FileBackend, SQLiteBackend])
def test_an_option_that_there_is_not_is_named_with_the_class_that_was_called(made):
    with pytest.raises(TypeError, match=rf"^{made.__name__}\(\) got an unexpected keyword argument 'ttl'$"):
        made(ttl=5)


@pytest.mark.parametrize("made", [FileBackend, FileCheckpointer, SQLiteBackend])
def test_an_empty_path_is_not_the_current_folder(made):
    with pytest.raises(ValueError, match="is empty: name a"):
        made("")
