"""Search: the same words, the same hits on every backend that can search."""

from __future__ import annotations

import random

import pytest
from elsewhere import connect

from locus_store import ZlibCodec
from locus_store.core import patterns
from locus_store.core.errors import PlainTextError, UnsupportedFormatError, UnsupportedOperationError
from locus_store.core.messages import Message
from locus_store.core.state import AgentState
from locus_store.core.texts import texts_of
from locus_store.core.words import Query


@pytest.fixture
async def searching(store):
    """A store that can search; where it cannot, it says so, and the test is over."""
    await ready(store)
    return store


async def ready(store):
    if not store.capabilities.search:
        for call in (store.search("words"), store.enable_search(), store.disable_search()):
            with pytest.raises(UnsupportedOperationError, match="does not support search"):
                await call
        pytest.skip("it cannot search, and said so")
    await store.enable_search()


def said(*texts):
    return {"messages": [{"role": "user", "content": text} for text in texts]}


async def found(store, query, **options):
    return [(hit["thread_id"], hit["checkpoint_id"]) for hit in await store.search(query, **options)]


TEXTS = {
    "trip": "Plan a trip to Zürich — by train!",
    "code": "call foo_bar(a-b) in C:\\temp; SELECT * FROM t WHERE x='%_' --",
    "german": "Die Straße ist naß. STRASSE?",
    "japanese": "私は東京都に住んでいます。カタカナ",
    "mixed": "iPhone15用ケース and 한국어 текст हिन्दी",
    "long": "word " * 3000 + "needle in the haystack " + "word " * 3000,
    "other": "trip trip trip",
    "odd": "NUL \0 and \ud800 surrogate",
    "quotes": 'it\'s a "quoted" thing & | ! ( ) : * <-> \\ end',
    "wide": "x" * 5000,
}

QUERIES = [
    ("trip", {"trip", "other"}),
    ("TRIP plan", {"trip"}),
    ("train zürich", {"trip"}),
    ("zurich", set()),
    ("tri", set()),
    ("foo_bar", {"code"}),
    ("bar_foo", set()),
    ("bar foo", {"code"}),
    ('"a b"', {"code"}),
    ("temp", {"code"}),
    ("%_", set()),
    ("x='%_'", {"code"}),
    ("strasse", {"german"}),
    ("NASS", {"german"}),
    ("東京", {"japanese"}),
    ("京東", set()),
    ("京 東", {"japanese"}),
    ("カタカナ 住", {"japanese"}),
    ("ｶﾀｶﾅ", {"japanese"}),
    ("iphone15", {"mixed"}),
    ("ケース", {"mixed"}),
    ("한국어 ТЕКСТ", {"mixed"}),
    ("हिन्दी", {"mixed"}),
    ("हिन्द", set()),
    ("needle", {"long"}),
    ('"needle in the haystack"', {"long"}),
    ('"word needle"', {"long"}),
    ('"haystack needle"', set()),
    ('"haystack word word"', {"long"}),
    ("surrogate nul", {"odd"}),
    ("\0", set()),
    ("\ud800", set()),
    ("and\ud800surrogate", {"odd"}),
    ("it's", {"quotes"}),
    ("quoted end", {"quotes"}),
    ("' OR 1=1 --", set()),
    ("a & b", {"code"}),
    ("thing*", {"quotes"}),
    ("NOT trip", set()),
    ("trip OR needle", set()),
    ('") OR ("', set()),
    ("words: needle", set()),
    ("{words} : needle", set()),
    ("<-> thing <->", {"quotes"}),
    ("x" * 5000, {"wide"}),
    ("x" * 4999, set()),
    ("x" * 5000 + "y", set()),
    ("", set()),
    (" \n\t.,;!?", set()),
    ('"', set()),
    (" ".join(f"w{i}" for i in range(300)), set()),
    ('"' + " ".join(["word"] * 500) + '"', {"long"}),
    ('"' + " ".join(["word"] * 500) + ' nothing"', set()),
    (" ".join(["trip"] * 2000), {"trip", "other"}),
]


async def test_the_meaning_of_queries(searching):
    for name, text in TEXTS.items():
        await searching.save(name, said(text))
    for query, expected in QUERIES:
        hits = await searching.search(query, limit=None)
        assert {hit["thread_id"] for hit in hits} == expected, query[:100]
        assert len(hits) == len(expected), query[:100]


async def test_a_hit_names_thread_checkpoint_score_and_fragment(searching):
    await searching.save("t", said("Plan a trip"), "first")
    await searching.save("t", said("Plan a trip", "To Rome, please"), "second")
    await searching.save("u", said("rome " * 3), "third")
    (best, other) = await searching.search("Rome")
    assert best == {
        "thread_id": "u",
        "checkpoint_id": "third",
        "score": Query.parse("Rome").match("rome " * 3).score,
        "fragment": "**rome** **rome** **rome**",
    }
    assert other["checkpoint_id"] == "second"
    assert 0 < other["score"] < best["score"] < 1
    assert other["fragment"] == "To **Rome**, please"
    assert (await searching.search("Rome", marks=("<", ">")))[1]["fragment"] == "To <Rome>, please"


async def test_all_words_must_be_in_one_text(searching):
    await searching.save("t", {**said("one two", "three"), "title": "four", "more": {"deep": "five"}})
    assert await searching.search("one three") == []
    assert await searching.search("one four") == []
    assert len(await searching.search("two one")) == 1
    assert (await searching.search("five four"))[0]["fragment"] == "**four** **five**"


async def test_small_and_large_lists_and_rests_are_searched_alike(searching):
    for n, filler in enumerate(("", "x" * 300, "y" * 5000)):
        document = {"few": [f"apple {filler}"], "title": f"pear {filler}", "deep": {"list": (f"plum {filler}",)}}
        await searching.save(f"t{n}", document)
    for word in ("apple", "pear", "plum"):
        assert sorted(await found(searching, word)) == [(f"t{n}", c) for n in range(3) for c in await ids(searching, n)]
    assert await searching.search("apple pear") == []


async def ids(store, n):
    return await store.list_checkpoints(f"t{n}")


async def test_every_checkpoint_is_searched_and_each_text_found_once(searching):
    await searching.save("t", said("old words"), "a")
    await searching.save("t", said("old words", "new words"), "b")
    await searching.save("t", said("new words"), "c")
    assert sorted(await found(searching, "words")) == [("t", "a"), ("t", "b")]


async def test_a_hit_is_named_with_the_oldest_checkpoint_that_holds_it(searching, open_store):
    filler = "filler " * 60
    await searching.save("t", said("alpha " + filler), "a")
    await searching.save("t", said("alpha " + filler, "beta " + filler), "b")
    await searching.save("t", said("alpha " + filler, "beta " + filler), "c")
    assert await found(searching, "alpha") == [("t", "a")]
    assert await searching.delete("t", "a")
    assert await found(searching, "alpha") == [("t", "b")]
    assert await found(open_store(), "beta") == [("t", "b")]
    assert await searching.delete("t", "b")
    assert await found(searching, "alpha") == await found(searching, "beta") == [("t", "c")]
    await searching.save("t", said("gamma"), "c")
    assert await found(searching, "alpha") == []
    assert await found(searching, "gamma") == [("t", "c")]
    await searching.save("t", said("delta"), "c", if_exists="in_place")
    assert await found(searching, "gamma") == []
    assert await found(searching, "delta") == [("t", "c")]
    await searching.delete("t")
    assert await searching.search("delta") == []


async def test_a_text_that_is_stored_twice_outlives_one_of_them(searching, open_store):
    text = "kept in two blocks " + "filler " * 60
    await searching.save("t", said(text), "a")
    await open_store().save("t", said("before", text), "b")
    await found(searching, "kept")
    await searching.delete("t", "a")
    assert await found(searching, "kept") == [("t", "b")]
    assert await found(searching, "before") == [("t", "b")]


async def test_ranked_by_score_then_the_thread_that_was_written_last(open_store, clock):
    store = open_store(clock=clock)
    await ready(store)
    for name in ("b", "a", "c"):
        clock.advance(seconds=1)
        await store.save(name, said("same words"))
    clock.advance(seconds=1)
    await store.save("long", said("same words and others " + "more " * 30))
    assert [thread for thread, _ in await found(store, "same")] == ["c", "a", "b", "long"]
    clock.advance(seconds=1)
    await store.save("b", said("something else"))
    assert [thread for thread, _ in await found(store, "same")] == ["b", "c", "a", "long"]
    assert [thread for thread, _ in await found(store, "same", limit=2)] == ["b", "c"]


async def test_limits(searching):
    for n in range(60):
        await searching.save(f"t{n}", said(*[f"needle {n} {i}" for i in range(3)]))
    assert len(await searching.search("needle")) == 10
    assert len(await searching.search("needle", limit=None)) == 180
    assert len(await searching.search("needle", 170)) == 170
    assert await searching.search("needle", limit=0) == []
    assert {thread for thread, _ in await found(searching, "needle 7", limit=None)} == {"t7"}
    for limit, error in ((-1, ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match="limit must be"):
            await searching.search("needle", limit)
    with pytest.raises(TypeError, match="pattern must be a str"):
        await searching.search("needle", 1, None)
    with pytest.raises(TypeError, match="query must be a str"):
        await searching.search(b"needle")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", {"user_1", "userX1", "100%", "a\\b", "User_1", "[u]"}),
        ("user_*", {"user_1"}),
        ("100\\%", {"100%"}),
        ("a\\b", {"a\\b"}),
        ("user?1", {"user_1", "userX1"}),
        ("[u]", {"[u]"}),
        ("?ser*", {"user_1", "userX1", "User_1"}),
        ("nobody", set()),
        ("\0", set()),
    ],
)
async def test_case_31_only_threads_that_match_a_pattern(searching, pattern, expected):
    for name in ("user_1", "userX1", "100%", "a\\b", "User_1", "[u]"):
        await searching.save(name, said("needle a_b"))
    assert {thread for thread, _ in await found(searching, "needle", pattern=pattern)} == expected
    assert await found(searching, "a%b", pattern=pattern) == await found(searching, "a_b", pattern=pattern)
    assert await found(searching, "axb", pattern=pattern) == []


async def test_tenants_are_apart(searching):
    await searching.tenant("acme").save("t", said("secret plan"))
    await searching.save("u", said("public plan"))
    assert await found(searching, "plan") == [("u", (await searching.list_checkpoints("u"))[0])]
    assert await searching.search("secret") == []
    assert [thread for thread, _ in await found(searching.tenant("acme"), "plan")] == ["t"]


async def test_what_has_expired_is_not_found(open_store, clock):
    store = open_store(clock=clock, ttl_seconds=10)
    await ready(store)
    await store.save("t", said("needle"))
    clock.advance(seconds=9)
    await store.save("u", said("needle"))
    assert len(await store.search("needle")) == 2
    clock.advance(seconds=2)
    assert [thread for thread, _ in await found(store, "needle")] == ["u"]
    await store.vacuum()
    clock.advance(seconds=20)
    await store.save("t", said("hay"))
    assert await store.search("needle") == []


async def test_copies_are_found_too(searching):
    filler = "filler " * 60
    await searching.save("t", said("one " + filler), "a")
    await searching.save("t", said("one " + filler, "two " + filler), "b")
    await searching.copy_thread("t", "u", upto="a")
    assert sorted(await found(searching, "one")) == [("t", "a"), ("u", "a")]
    assert await found(searching, "two") == [("t", "b")]
    await searching.copy_thread("t", "u", overwrite=True)
    assert sorted(await found(searching, "two")) == [("t", "b"), ("u", "b")]
    await searching.delete("t")
    assert await found(searching, "one") == [("u", "a")]


async def test_what_others_saved_is_found_at_once(searching, open_store, place):
    await open_store().save("t", said("needle"))
    assert len(await searching.search("needle")) == 1
    await open_store().save("u", said("needle"))
    assert len(await open_store().search("needle")) == 2
    if place.capabilities.shared:
        async with connect(place.address) as elsewhere:
            await elsewhere.save("v", said("needle from elsewhere"))
            assert len(await elsewhere.search("needle")) == 3
            assert len(await searching.search("needle")) == 3
            await searching.delete("u")
            assert len(await elsewhere.search("needle")) == 2


async def test_vacuum_removes_from_what_is_found(open_store, clock):
    store = open_store(clock=clock)
    await ready(store)
    await store.save("t", said("early words"), "a")
    clock.advance(days=40)
    await store.save("t", said("late words"), "b")
    assert len(await store.search("words")) == 2
    assert await store.vacuum(older_than_days=30) == 1
    assert await found(store, "words") == [("t", "b")]
    await store.vacuum(older_than_days=0, keep_last=0)
    assert await store.search("words") == []


async def test_only_so_many_checkpoints_are_kept_and_found(open_store):
    store = open_store(keep_checkpoints=2)
    await ready(store)
    for n in range(5):
        await store.save("t", said(f"number {n}"), f"c{n}")
    assert sorted(await found(store, "number")) == [("t", "c3"), ("t", "c4")]


async def test_what_was_there_before_is_found(store):
    if not store.capabilities.search:
        pytest.skip("it cannot search")
    for n in range(3):
        await store.save(f"t{n}", said(f"early {n}", "filler " * 100))
    await ready(store)
    assert len(await store.search("early")) == 3
    await store.enable_search()
    assert len(await store.search("early")) == 3
    await store.disable_search()
    await store.disable_search()
    await store.save("t3", said("early 3"))
    await store.enable_search()
    assert len(await store.search("early")) == 4


async def test_states_are_searched_by_the_checkpointer(searching):
    checkpointer = searching.checkpointer()
    state = AgentState(agent_id="planner").with_message(Message.user("Where is the needle?"))
    await checkpointer.save(state, "t", "a")
    await checkpointer.save(state.with_message(Message.assistant("In the hay")), "t", "b")
    assert await found(checkpointer, "needle") == [("t", "a")]
    assert await found(checkpointer, "hay") == [("t", "b")]
    assert await found(checkpointer, "planner", limit=1) != []


async def test_blocks_that_were_joined_are_still_found(searching):
    messages = []
    for n in range(110):
        messages.append({"role": "user", "content": f"number{n} " + "filler " * 10})
        await searching.save("t", {"messages": messages}, f"c{n:03}")
        if n in (45, 60):
            assert await found(searching, "number44") == [("t", "c044")]
    for n in (0, 48, 49, 50, 99, 109):
        assert await found(searching, f"number{n}") == [("t", f"c{n:03}")]
    await searching.delete("t", [f"c{n:03}" for n in range(0, 109, 2)])
    assert await found(searching, "number50") == [("t", "c051")]
    assert await found(searching, "number51") == [("t", "c051")]


class Reversing:
    name = "reversing"
    bound = True

    def encode(self, data, thread):
        return data[::-1]

    def decode(self, data, thread):
        return data[::-1]


async def test_compressed_texts_are_searched(open_store):
    store = open_store(codec=ZlibCodec())
    await ready(store)
    await store.save("t", said("needle " * 30), "a")
    assert await found(store, "needle") == [("t", "a")]


async def test_texts_behind_another_codec_are_indexed_only_if_that_is_allowed(open_store):
    store = open_store(codec=Reversing())
    if not store.capabilities.search:
        pytest.skip("it cannot search")
    await store.save("t", said("needle"), "a")
    try:
        await store.enable_search()
    except PlainTextError as error:
        assert "allow_plain_text=True" in str(error)
        with pytest.raises(UnsupportedOperationError, match=r"enable_search"):
            await store.search("needle")
        await store.enable_search(allow_plain_text=True)
    assert await found(store, "needle") == [("t", "a")]
    await store.copy_thread("t", "u")
    assert sorted(await found(store, "needle")) == [("t", "a"), ("u", "a")]
    with pytest.raises(UnsupportedFormatError, match="codec 'reversing'"):
        await open_store().search("needle")


WORDS = ["apple", "pear", "plum", "Äpfel", "東京", "a_b", "x", "y", "NUL\0", "\udc00"]


def document_of(rng):
    def text():
        return " ".join(rng.choices(WORDS, k=rng.randrange(1, 6))) + rng.choice(["", "", " filler" * 40])

    def message():
        return rng.choice(
            [
                {"role": "user", "content": text()},
                text(),
                {"type": "ai", "content": [{"type": "text", "text": text()}, text()]},
                {"thought": text(), "tags": {text(), text()}},
                rng.randrange(100),
            ]
        )

    document = {"messages": [message() for _ in range(rng.randrange(6))], "title": text(), "n": rng.random()}
    if rng.random() < 0.3:
        document["deep"] = {
            "er": tuple(message() for _ in range(rng.randrange(3))),
            "large": "z" * rng.choice([0, 5000]),
        }
    return document


def changed(document, rng):
    kind = rng.randrange(4)
    if kind == 0:
        return document_of(rng)
    messages = list(document["messages"])
    if kind == 1 and messages:
        del messages[rng.randrange(len(messages))]
    else:
        messages += document_of(rng)["messages"]
    return {**document, "messages": messages}


async def naive(store, query, pattern):
    """What a search must find, by loading everything."""
    wanted, expected = Query.parse(query), []
    fits = patterns.parse(pattern).regex().fullmatch
    for thread in await store.list_threads(limit=None):
        first = {}
        for checkpoint in reversed(await store.list_checkpoints(thread, limit=None)):
            for text in texts_of(await store.load(thread, checkpoint)):
                first.setdefault(text, checkpoint)
        expected += [
            (thread, checkpoint, match.score, match.fragment())
            for text, checkpoint in first.items()
            if fits(thread) and (match := wanted.match(text))
        ]
    return sorted(expected)


@pytest.mark.parametrize("seed", range(3))
async def test_every_backend_finds_what_a_naive_scan_finds(searching, open_store, seed):
    rng = random.Random(seed)
    stores = [searching, open_store()]
    latest: dict[str, dict] = {}
    for step in range(40):
        store, thread = rng.choice(stores), f"t{rng.randrange(4)}"
        what = rng.random()
        if what < 0.6 or not latest:
            latest[thread] = changed(latest.get(thread) or document_of(rng), rng)
            id_ = f"c{rng.randrange(8)}" if rng.random() < 0.5 else None
            await store.save(thread, latest[thread], id_, if_exists=rng.choice(["newest", "newest", "in_place"]))
        elif what < 0.8:
            there = await store.list_checkpoints(thread, limit=None)
            await store.delete(thread, rng.sample(there, k=min(len(there), rng.randrange(1, 4))) if there else None)
        elif what < 0.85:
            await store.delete(thread)
        elif what < 0.92:
            await store.copy_thread(thread, f"t{rng.randrange(4, 6)}", overwrite=True)
        if step % 5 == 4:
            for query in ("apple", "pear plum", '"plum apple"', "äpfel", "京", "a-b x", "filler z", "nul"):
                pattern = rng.choice(["*", "*", "t?", "t1"])
                hits = await store.search(query, limit=None, pattern=pattern)
                shown = sorted((h["thread_id"], h["checkpoint_id"], h["score"], h["fragment"]) for h in hits)
                assert shown == await naive(store, query, pattern)
                assert [h["score"] for h in hits] == sorted([h["score"] for h in hits], reverse=True)
                assert (await store.search(query, limit=3, pattern=pattern)) == hits[:3]
