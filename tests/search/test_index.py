"""The life of the index of words: made, filled, removed, made again; what is in it and what must not be."""

from __future__ import annotations

import asyncio

import pytest
from search.conftest import indexed, said, words
from store_fixtures import only

from locus_store import PlainTextError, SchemaAheadError, SearchNotEnabledError, ZlibCodec
from locus_store.core.errors import UnsupportedOperationError
from locus_store.sql.search.postgresql import POSTGRESQL_INDEX
from locus_store.sql.search.sqlite import SQLITE_INDEX

pytestmark = only("sqlite", "postgresql")


@pytest.fixture
def small_steps(monkeypatch):
    """Few sources are enqueued and filled in one transaction."""
    for index in (SQLITE_INDEX, POSTGRESQL_INDEX):
        monkeypatch.setattr(index, "enqueued", 3)
        monkeypatch.setattr(index, "page", 2)


class Hiding:
    name = "hiding"
    bound = True

    def encode(self, data, thread):
        return data[::-1]

    def decode(self, data, thread):
        return data[::-1]


async def found(store, query="needle", **options):
    return sorted([hit["thread_id"] for hit in await store.search(query, limit=None, **options)])


async def test_searching_before_it_is_enabled_says_what_to_do(store):
    await store.save("t", said("needle"))
    with pytest.raises(SearchNotEnabledError, match=r"make it once: await backend\.enable_search\(\)") as caught:
        await store.search("needle")
    assert isinstance(caught.value, UnsupportedOperationError)
    await store.enable_search()
    assert await found(store) == ["t"]


async def test_enabled_twice_disabled_and_enabled_again(store, open_store, place):
    await store.save("t", said("needle"))
    await store.enable_search()
    before = indexed(place)
    await open_store().enable_search()
    assert indexed(place) == before
    await store.disable_search()
    await store.disable_search()
    for one in (store, open_store()):
        with pytest.raises(SearchNotEnabledError):
            await one.search("needle")
    await store.save("u", said("needle"))
    await store.delete("t")
    await store.enable_search()
    assert await found(open_store()) == ["u"]


async def test_it_is_noted_in_a_row_of_its_own_and_is_no_revision(store, place):
    await store.setup()
    before = place.execute("SELECT id, revision, format FROM locus_store_schema")
    await store.enable_search()
    (row,) = [tuple(row) for row in place.execute("SELECT id, revision, format FROM locus_store_schema WHERE id > 1")]
    assert row == (2, "search1", 1)
    assert [tuple(r) for r in place.execute("SELECT id, revision, format FROM locus_store_schema WHERE id = 1")] == [
        tuple(r) for r in before
    ]
    await store.disable_search()
    assert len(place.execute("SELECT id FROM locus_store_schema")) == 1


async def test_what_a_newer_release_made_is_left_alone(store, place):
    await store.enable_search()
    place.execute("UPDATE locus_store_schema SET revision = 'search2' WHERE id = 2")
    for call in (store.search("needle"), store.enable_search()):
        with pytest.raises(SchemaAheadError, match="the index of words was made by a newer release"):
            await call


async def test_a_history_that_is_there_is_taken_in_by_small_transactions(store, place, small_steps):
    messages = []
    for n in range(12):
        messages.append({"role": "user", "content": f"needle{n} " + "filler " * 60})
        await store.save("t", {"messages": messages})
        await store.save(f"u{n}", said(f"needle{n}"))
    await store.enable_search()
    assert indexed(place)[0] == 0
    for n in range(12):
        assert await found(store, f"needle{n}") == ["t", f"u{n}"]


async def test_the_queue_is_what_searches_and_sweeps_take_in(store, place, small_steps):
    await store.enable_search()
    for n in range(7):
        await store.save(f"t{n}", said(f"needle {n}", "filler " * 60))
    waiting, texts, _ = indexed(place)
    assert waiting >= 7
    assert texts == 0
    assert len(await found(store)) == 7
    waiting, texts, _ = indexed(place)
    assert (waiting, texts) == (0, 14)
    await store.save("t7", said("needle 7"))
    assert indexed(place)[0] > 0
    await store.vacuum()
    assert indexed(place)[0] == 0
    assert "7" in words(place).replace("'", " ").split()


async def test_nothing_is_left_of_what_was_removed(open_store, clock, place):
    store = open_store(clock=clock)
    await store.enable_search()
    await store.save("t", said("one needle", "filler " * 60), "a")
    await store.save("t", said("one needle", "filler " * 60, "two needles"), "b")
    await store.copy_thread("t", "copy")
    await open_store(clock=clock, ttl_seconds=5).save("mortal", said("three needles"))
    await found(store)
    assert "needles" in words(place)
    await store.delete("t", "b")
    await store.delete("copy", ["a", "b"])
    clock.advance(seconds=6)
    await store.vacuum()
    assert "needles" not in words(place)
    assert await found(store, "one") == ["t"]
    await store.delete("t")
    assert words(place) == ""
    assert indexed(place) == (0, 0, 0)


async def test_a_text_that_is_written_anew_before_it_was_taken_in(store, place):
    await store.enable_search()
    await store.save("t", said("first"), "a")
    await store.save("t", said("second"), "a", if_exists="in_place")
    assert await found(store, "first") == []
    await store.save("t", said("third"), "a", if_exists="in_place")
    assert await found(store, "second") == []
    assert await found(store, "third") == ["t"]
    assert "third" in words(place)
    assert "second" not in words(place)


async def test_what_a_codec_hides_is_indexed_only_where_that_is_allowed(open_store, place):
    store = open_store(codec=Hiding())
    await store.save("t", said("needle"))
    with pytest.raises(PlainTextError, match=r"enable_search\(allow_plain_text=True\)"):
        await store.enable_search()
    with pytest.raises(SearchNotEnabledError):
        await store.search("needle")
    # Compressed is not hidden, so that another store may enable it, for its own.
    await open_store(codec=ZlibCodec()).enable_search()
    assert await found(store) == ["t"]
    await store.vacuum()
    assert words(place) == ""
    with pytest.raises(PlainTextError):
        await store.enable_search()
    await store.enable_search(allow_plain_text=True)
    assert "needle" in words(place)
    await open_store().enable_search()
    await store.save("u", said("other needle"))
    assert await found(store) == ["t", "u"]
    assert "other" in words(place)


async def test_what_is_damaged_is_passed_over(store, place):
    await store.enable_search()
    await store.save("t", said("damaged needle"), "a")
    await store.save("u", said("needle"), "b")
    place.damage("a", lambda payload: payload[:-3])
    assert await found(store) == ["u"]
    assert indexed(place)[0] == 0
    assert await found(store) == ["u"]


async def test_many_enable_it_at_once_while_others_save(open_store, small_steps):
    stores = [open_store() for _ in range(4)]
    for n in range(10):
        await stores[0].save(f"early{n}", said("needle"))

    async def save(writer):
        for n in range(25):
            await stores[writer].save(f"late{writer}-{n % 5}", said(f"needle {n}"), f"c{n % 3}", if_exists="in_place")

    await asyncio.gather(*[store.enable_search() for store in stores], save(0), save(1))
    expected = sorted([*[f"early{n}" for n in range(10)], *[f"late{w}-{n}" for w in (0, 1) for n in range(5)]])
    assert sorted(set(await found(stores[2]))) == expected
    assert set(await found(stores[3], "24")) == {"late0-4", "late1-4"}


async def test_disabled_while_others_search_and_save(open_store):
    stores = [open_store() for _ in range(3)]
    await stores[0].enable_search()
    for n in range(5):
        await stores[0].save(f"t{n}", said("needle"))

    async def go_on(store):
        seen = 0
        while True:
            await store.save("t0", said(f"needle {seen}"))
            try:
                assert len(await found(store)) >= 5
            except SearchNotEnabledError:
                return seen
            seen += 1

    async def disable():
        await asyncio.sleep(0.05)
        await stores[0].disable_search()

    await asyncio.wait_for(asyncio.gather(disable(), *[go_on(store) for store in stores[1:]]), 60)


async def test_an_index_that_lost_its_triggers_is_made_anew(store, place):
    await store.enable_search()
    await store.save("gone", said("needle"))
    await store.save("t", said("needle"))
    await found(store)
    if place.name == "sqlite":
        place.execute("DROP TRIGGER locus_store_search_checkpoints_insert")
    else:
        place.execute("DROP TRIGGER locus_store_search_checkpoints_insert ON locus_store_checkpoints")
    await store.save("u", said("needle"))
    if place.name == "sqlite":  # where Alembic copies tables to change them
        with pytest.raises(SearchNotEnabledError):
            await store.search("needle")
    await store.enable_search()
    await store.delete("gone")
    assert await found(store) == ["t", "u"]


async def test_an_interrupted_making_is_brought_to_its_end(store, place, monkeypatch):
    """As when the process is killed between two of its transactions."""
    await store.save("t", said("needle"))
    index = SQLITE_INDEX if place.name == "sqlite" else POSTGRESQL_INDEX

    def fail(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(index, "enqueue", fail)
        with pytest.raises(ZeroDivisionError):
            await store.enable_search()
    with pytest.raises(SearchNotEnabledError):
        await store.search("needle")
    await store.save("u", said("needle"))
    await store.enable_search()
    assert await found(store) == ["t", "u"]


async def test_space_is_reclaimed_from_the_index_too(store):
    await store.enable_search()
    for n in range(30):
        await store.save(f"t{n}", said(" ".join(f"word{n}x{i}" for i in range(2000))))
    await found(store, "word1x1")
    for n in range(30):
        await store.delete(f"t{n}")
    await store.vacuum(reclaim=True)
    assert await found(store, "word1x1") == []
