"""Listing threads and checkpoints, and finding them by metadata, without reading documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locus_store.core import ids, patterns
from locus_store.core.documents import Documents
from locus_store.core.driver import Info
from locus_store.core.infos import CheckpointInfo, CheckpointRow, to_row
from locus_store.core.metadata import Metadata, encode_metadata, matches, terms
from locus_store.core.options import check_count, check_limit, check_optional_id

MOST_TERMS = 8
"""How many terms of a query the store looks for; they are necessary conditions, and `matches` decides."""


class Listings(Documents):
    """The listings of a store. A missing thread is ``[]``, None or False."""

    # ------------------------------------------------------------------------------------------------------- listing

    async def list_checkpoints(self, thread_id: str, limit: int | None = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first.

        Args:
            thread_id: The thread.
            limit: How many at the most; None for all.
        """
        return [info.checkpoint_id for info in await self._infos(thread_id, None, limit)]

    async def history(
        self, thread_id: str, limit: int | None = 10, *, before: str | int | None = None
    ) -> list[CheckpointInfo]:
        """A thread's checkpoints without their documents, newest first.

        Args:
            thread_id: The thread.
            limit: How many at the most; None for all.
            before: Only those older than this checkpoint, given by id or version; for the next page the last one seen.
                An id that is not there gives ``[]``.
        """
        if isinstance(before, str):
            known = await self._info(thread_id, ids.check_checkpoint_id(before))
            if known is None:
                return []
            before = known.version
        elif before is not None:
            check_count(before, "before", 0)
        return [CheckpointInfo(**to_row(info)) for info in await self._infos(thread_id, before, limit)]

    async def list_threads(self, limit: int | None = 100, offset: int = 0, pattern: str = "*") -> list[str]:
        """The ids of threads, last written first.

        Args:
            limit: How many at the most; None for all.
            offset: How many to pass over.
            pattern: ``*`` or ``%`` is any run of characters, ``?`` any one, everything else literal; a backslash
                before one of them takes it literally.
        """
        check_limit(limit)
        check_count(offset, "offset", 0)
        if not isinstance(pattern, str):
            raise TypeError(f"pattern must be a str, got {type(pattern).__name__}")
        if not patterns.parse(pattern).possible:
            return []
        rows = await self._driver.threads(
            self._options.tenant, pattern, limit=limit, offset=offset, now=self._options.clock()
        )
        return [thread_id for thread_id, _ in rows]

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether a thread, or one checkpoint of it, is there."""
        return await self._info(thread_id, check_optional_id(checkpoint_id)) is not None

    async def _infos(self, thread_id: str, before: int | None, limit: int | None) -> list[Info]:
        check_limit(limit)
        return await self._driver.infos(self._key(thread_id), before=before, limit=limit, now=self._options.clock())

    async def _info(self, thread_id: str, checkpoint_id: str | None) -> Info | None:
        return await self._driver.info(self._key(thread_id), checkpoint_id, now=self._options.clock())

    # ------------------------------------------------------------------------------------------------------ metadata

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> CheckpointRow | None:
        """A checkpoint's metadata with all else that is known without its document.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; None for the newest.
        """
        info = await self._info(thread_id, check_optional_id(checkpoint_id))
        return None if info is None else to_row(info)

    async def list_with_metadata(self, limit: int | None = 100, offset: int = 0) -> list[CheckpointRow]:
        """The newest checkpoint of each thread with its metadata, last written thread first."""
        return await self.query_by_metadata({}, limit=limit, offset=offset)

    async def query_by_metadata(
        self,
        key: str | Metadata,
        value: Any = None,
        limit: int | None = 100,
        *,
        offset: int = 0,
        versions: str = "newest",
        thread_id: str | None = None,
    ) -> list[CheckpointRow]:
        """Checkpoints whose metadata has a value under a key, or all of several.

        Types count: True is not 1 and ``"5"`` is not 5, but 1 is 1.0; None is an explicit null. Dicts and lists match
        by containment. Keys are literal. ``{}`` matches all.

        Args:
            key: One key, or a dict of keys and values which must all match.
            value: What the one key has; not to be given with a dict.
            limit: How many at the most; None for all.
            offset: How many to pass over.
            versions: ``"newest"`` looks at each thread's newest checkpoint, ``"all"`` at every one.
            thread_id: Only this thread.
        """
        check_limit(limit)
        check_count(offset, "offset", 0)
        if versions not in ("newest", "all"):
            raise ValueError(f"versions must be 'newest' or 'all', got {versions!r}")
        if isinstance(key, Mapping):
            if value is not None:
                raise TypeError("give either a dict, or one key and its value")
            query = dict(key)
        elif isinstance(key, str):
            query = {key: value}
        else:
            raise TypeError(f"key must be a str or a dict, got {type(key).__name__}")
        if thread_id is not None:
            ids.check_thread_id(thread_id)
        encode_metadata(query)
        wanted = terms(self._options.tenant, query)[:MOST_TERMS]
        rows: list[CheckpointRow] = []
        start, now = 0, self._options.clock()
        while limit is None or len(rows) < offset + limit:
            page = None if limit is None else offset + limit - len(rows)
            found = await self._driver.find(
                self._options.tenant,
                wanted,
                thread_id=thread_id,
                newest_only=versions == "newest",
                limit=page,
                offset=start,
                now=now,
            )
            rows += [row for info in found if matches(query, (row := to_row(info))["metadata"] or {})]
            start += len(found)
            if page is None or len(found) < page:
                break
        return rows[offset:]
