"""Searching: words in the texts of all checkpoints, with the same meaning on every backend.

The driver says where to look; what is stored there is decoded, matched and ranked here. So an index may name too much
and do no harm, and a hit is always something that is stored at that moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from locus_store.core import patterns
from locus_store.core.driver import Clue
from locus_store.core.errors import UnsupportedFormatError, UnsupportedOperationError
from locus_store.core.fragments import MARKS
from locus_store.core.frames import ThreadName, UnknownFormatError
from locus_store.core.infos import SearchHit
from locus_store.core.listings import Listings
from locus_store.core.options import check_limit
from locus_store.core.texts import Holder, digest, holders
from locus_store.core.words import Match, Query

_FEWEST = 50
"""How many texts an index is asked for at the least …"""
_FACTOR = 4
"""… and how many for each hit that is wanted: it ranks by a measure of its own."""


class _Hit(NamedTuple):
    """A match, and what it is ranked by."""

    match: Match
    thread_id: str
    updated_at: int
    holder: Holder

    def rank(self) -> tuple[float, int, str, int, str]:
        return -self.match.score, -self.updated_at, self.thread_id, -self.holder.version, self.match.text


class Searching(Listings):
    """The search of a store."""

    async def search(
        self, query: str, limit: int | None = 10, pattern: str = "*", *, marks: tuple[str, str] = MARKS
    ) -> list[SearchHit]:
        """Find words in what was said, where ``capabilities.search`` says so.

        Searched are the texts of all checkpoints: one for each message, or other element of a list; one for the other
        strings of a document. All words must be in one text. Case does not count. What stands in double quotes, and a
        piece like ``a_b`` that has no spaces, is a phrase. Nothing else has a meaning, so any text is a query.

        On SQLite and PostgreSQL it must have been switched on once: `enable_search`.

        Args:
            query: The words. Without any, nothing is found.
            limit: How many hits at the most; None for all.
            pattern: Only threads whose ids match it, as `list_threads` reads it.
            marks: What to put before and behind each found word.

        Returns:
            Each text of a thread once, the best first; of equally good ones that of the thread that was written last.

        Raises:
            UnsupportedOperationError: This backend cannot search.
            SearchNotEnabledError: It could, but this database has no index yet.
            UnsupportedFormatError: Something went through a codec that this store was not given, or a newer release
                wrote it. What is damaged is passed over.
        """
        check_limit(limit)
        if not isinstance(pattern, str):
            raise TypeError(f"pattern must be a str, got {type(pattern).__name__}")
        wanted = Query.parse(query)
        self._check_can_search()
        if not wanted.phrases or limit == 0 or not patterns.parse(pattern).possible:
            return []
        most = None if limit is None else max(_FEWEST, _FACTOR * limit)
        while True:
            clues = await self._driver.clues(
                self._options.tenant, wanted, pattern, limit=most, now=self._options.clock()
            )
            hits = await self._follow(clues.found, wanted, limit)
            if limit is None or most is None or clues.complete or len(hits) >= limit:
                return [
                    SearchHit(
                        thread_id=hit.thread_id,
                        checkpoint_id=hit.holder.checkpoint_id,
                        score=hit.match.score,
                        fragment=hit.match.fragment(marks),
                    )
                    for hit in hits
                ]
            most *= _FACTOR

    async def enable_search(self, *, allow_plain_text: bool = False) -> None:
        """Make this database searchable: an index of words, for what is stored already and all that will be.

        It is made once, for all tenants and all processes, and may be called again at any time. It takes the right to
        create tables. Where a search reads everything (in memory, files) there is nothing to do.

        Args:
            allow_plain_text: Make it though the store has a codec that may be there to keep texts secret (any but
                `ZlibCodec`): the index holds their words in readable form.

        Raises:
            PlainTextError: The store has such a codec, and this was not allowed.
            UnsupportedOperationError: This backend cannot search.
        """
        self._check_can_search()
        await self._driver.enable_search(allow_plain_text=allow_plain_text)

    async def disable_search(self) -> None:
        """Remove the index of words with all that is in it; nothing happens if there is none."""
        self._check_can_search()
        await self._driver.disable_search()

    def _check_can_search(self) -> None:
        if not self._driver.capabilities.search:
            raise UnsupportedOperationError(type(self).__name__, "search")

    async def _follow(self, clues: Iterable[Clue], query: Query, limit: int | None) -> list[_Hit]:
        """The best matches in the places that the clues name."""
        places: dict[str, set[bytes] | None] = {}
        for thread_id, one in clues:
            known = places.setdefault(thread_id, set())
            if one is None:
                places[thread_id] = None
            elif known is not None:
                known.add(one)
        best: list[_Hit] = []
        for thread_id, digests in places.items():
            best += await self._in_thread(thread_id, digests, query)
            if limit is not None:
                best = heapq.nsmallest(limit, best, key=_Hit.rank)
        return sorted(best, key=_Hit.rank)

    async def _in_thread(self, thread_id: str, digests: set[bytes] | None, query: Query) -> list[_Hit]:
        """The matches among the texts of a thread: all, or those that have these digests."""
        key = self._key(thread_id)
        contents = await self._driver.contents(key, now=self._options.clock())
        if contents is None:
            return []
        try:
            texts = holders(contents, self._options.codec, ThreadName(*key))
        except UnknownFormatError as e:
            raise UnsupportedFormatError(thread_id, None, str(e)) from e
        return [
            _Hit(match, thread_id, contents.updated_at, holder)
            for text, holder in texts.items()
            if (digests is None or digest(text) in digests) and (match := query.match(text)) is not None
        ]
