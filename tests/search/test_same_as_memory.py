"""Any texts and any queries: what is found in a database is what reading everything finds."""

from __future__ import annotations

import asyncio
import itertools

import backends
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fixtures import only

from locus_store import MemoryBackend

LATIN = ["a", "B", "ab", "a_b", "A-b", "é", "e\u0301", "ß", "SS", "İ", "ı", "ﬁ", "µ", "Å", "x" * 300]
OTHERS = ["東京", "京", "ｶﾅ", "नमस्ते", "٣", "\u0301", "\0", "\ud800"]
SIGNS = ["'", '"', "*", ":", "(", "&", "|", "!", "\\", "<->", "NOT", "OR", "~", "%"]
PIECES = st.sampled_from(LATIN + OTHERS + SIGNS)
TEXTS = st.lists(PIECES, min_size=1, max_size=8).flatmap(
    lambda pieces: st.lists(st.sampled_from(["", " ", "\n"]), min_size=len(pieces), max_size=len(pieces)).map(
        lambda gaps: "".join(itertools.chain.from_iterable(zip(pieces, gaps, strict=True)))
    )
) | st.text(max_size=30)


@only("sqlite", "postgresql")
@pytest.mark.parametrize("examples", [60, pytest.param(400, marks=pytest.mark.endurance)])
def test_the_same_as_memory(place: backends.Place, examples: int) -> None:
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        store, memory = place.open(), MemoryBackend()
        runner.run(store.enable_search())

        @settings(max_examples=examples)
        @given(texts=st.lists(TEXTS, max_size=4), queries=st.lists(TEXTS, min_size=1, max_size=3), data=st.data())
        def check(texts: list[str], queries: list[str], data: st.DataObject) -> None:
            n = next(numbers)
            if texts:  # parts of what is there, so that something is found
                text = data.draw(st.sampled_from(texts))
                start = data.draw(st.integers(0, len(text)))
                queries.append(text[start : start + data.draw(st.integers(0, 12))])
                queries.append(f'"{queries[-1]}"')
            runner.run(compare(n, texts, queries))

        async def compare(n: int, texts: list[str], queries: list[str]) -> None:
            document = {"messages": [{"role": "user", "content": text} for text in texts]}
            for one in (store, memory):
                await one.save(f"t{n}", document, "c")
            for query in queries:
                # In the threads of the last examples, too.
                for pattern in (f"t{n}", f"t{n // 10}*"):
                    hits = [await one.search(query, None, pattern) for one in (store, memory)]
                    first, second = (sorted(map(str, found)) for found in hits)
                    assert first == second, (query, pattern)

        try:
            check()
        finally:
            runner.run(store.close())
