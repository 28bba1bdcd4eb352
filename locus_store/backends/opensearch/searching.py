"""The index of words, and where it says that texts may be which match a query.

What is searched is not the text but its words, in the form in which `locus_store.core.words` compares them, with a
blank between them: so words mean the same here as everywhere, and the index has to do no more than to split at blanks.
The texts that a save adds are in the document of its slot, each with the digest by which the core knows it.

Texts that went through a codec which may be there to keep them secret are not indexed. Documents that hold such texts
say so, and a search looks at all of their threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from locus_store.backends.opensearch.listing import prefix_of
from locus_store.backends.opensearch.names import Source, slot_name, unpack
from locus_store.backends.opensearch.reading import DisturbedError, consistent
from locus_store.backends.opensearch.slots import checkpoint_in
from locus_store.backends.opensearch.thread import Thread
from locus_store.backends.opensearch.wire import Wire
from locus_store.core import patterns
from locus_store.core.driver import Clue, Clues, Contents, ContentsRow, Key
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.texts import digest, hides, texts_of_block, texts_of_rest
from locus_store.core.words import Query, split

_PHRASES = 50
"""Of a longer query no more than this is looked for in the index: what it finds is looked at anyway."""
_WORDS = 20
"""The same for the words of one phrase."""
_ONE_SEARCH = 10_000


def add_texts(source: Source, texts: Iterable[str], codec: Codec | None) -> None:
    """Put the words of texts into a slot's document, in place of those that are there."""
    source.pop("words", None)
    source["data"].pop("digests", None)
    source["searchable"] = not hides(codec)
    if hides(codec):
        return
    found = {digest(text).hex(): " ".join([word.text for word in split(text)]) for text in texts}
    found = {one: words for one, words in found.items() if words}
    if found:
        source["words"] = list(found.values())
        source["data"]["digests"] = list(found)


def add_texts_again(source: Source, codec: Codec | None, thread: ThreadName) -> None:
    """The same, with the texts of what is left in the document."""
    texts: list[str] = []
    body = source["body"]
    try:
        if "block" in body:
            texts += texts_of_block(unpack(body["block"]), codec, thread)
        if "payload" in body:
            texts += texts_of_rest(unpack(body["payload"]), codec, thread)
    except (DamagedError, UnknownFormatError, ValueError):
        texts = []  # what is damaged has no text that could be found
    add_texts(source, texts, codec)


class Searcher:
    """The primitives that find words.

    Args:
        wire: Where they are.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def clues(self, tenant: str, query: Query, pattern: str, limit: int | None) -> Clues:
        """See `Driver.clues`."""
        await self.wire.refresh()
        within: list[Source] = [{"terms": {"kind": ["checkpoint", "block"]}}, {"term": {"tenant": tenant}}]
        within += prefix_of(pattern)
        fits = patterns.parse(pattern).regex().fullmatch
        found: dict[Clue, None] = {}
        hidden: Source = {"bool": {"filter": [*within, {"term": {"searchable": False}}]}}
        async with aclosing(self.wire.scan(hidden, _ORDER, ["thread_id"])) as pages:
            async for page in pages:
                found |= {Clue(hit["_source"]["thread_id"], None): None for hit in page}
        words = [{"match_phrase": {"words": " ".join(phrase[:_WORDS])}} for phrase in query.phrases[:_PHRASES]]
        wanted: Source = {"bool": {"filter": within, "must": words}}
        fields = ["thread_id", "words", "data.digests"]
        complete = True
        if limit is not None and limit <= _ONE_SEARCH:
            hits = await self.wire.search(wanted, [{"_score": "desc"}, *_ORDER], fields, limit)
            complete = len(hits) < limit
            found |= dict.fromkeys(_clues(hits, query))
        else:
            async with aclosing(self.wire.scan(wanted, [{"_score": "desc"}, *_ORDER], fields)) as pages:
                async for page in pages:
                    found |= dict.fromkeys(_clues(page, query))
        return Clues([clue for clue in found if fits(clue.thread_id)], complete)

    async def contents(self, key: Key, now: int) -> Contents | None:
        """See `Driver.contents`."""

        async def action(thread: Thread) -> Contents | None:
            wanted = sorted({*thread.live.slots(), *thread.blocks.slots()})
            names: list[tuple[str, Any]] = [(slot_name(thread.life, slot), _CONTENTS) for slot in wanted]
            rows: list[ContentsRow] = []
            blocks: dict[int, bytes] = {}
            for slot, one in zip(wanted, await self.wire.get_several(names), strict=True):
                if one is None or one.source["data"]["cleaned"] > thread.slot:
                    raise DisturbedError
                body = one.source.get("body", {})
                checkpoint = checkpoint_in(one.source)
                if checkpoint is not None and slot == thread.live.slot(checkpoint.version) and "payload" in body:
                    rows.append(
                        ContentsRow(
                            checkpoint.checkpoint_id,
                            checkpoint.version,
                            checkpoint.own_block,
                            checkpoint.ranges.encode(),
                            unpack(body["payload"]),
                        )
                    )
                if "block" in body:
                    blocks[slot] = unpack(body["block"])
            return Contents(thread.updated_at, rows, [blocks[s] for _, s in thread.blocks.pairs() if s in blocks])

        return await consistent(self.wire, key, now, action, None)


_CONTENTS = {"includes": ["data.slot", "data.cleaned", "data.checkpoint", "body"]}
_ORDER: list[Source] = [{"thread_id": "asc"}, {"life": "asc"}, {"slot": "asc"}]


def _clues(hits: Iterable[Source], query: Query) -> list[Clue]:
    """The texts in some documents that match."""
    found: list[Clue] = []
    for hit in hits:
        source = hit["_source"]
        digests = source.get("data", {}).get("digests", [])
        found += [
            Clue(source["thread_id"], bytes.fromhex(one))
            for one, words in zip(digests, source.get("words", []), strict=True)
            if all([f" {' '.join(phrase)} " in f" {words} " for phrase in query.phrases])
        ]
    return found
