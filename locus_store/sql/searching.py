"""Searching a relational database: how a driver makes, fills and asks the index of words."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from locus_store.core.driver import Clues, Contents, Driver, Key
from locus_store.core.errors import (
    BackendError,
    LocusStoreError,
    PlainTextError,
    RetryableError,
    SearchNotEnabledError,
    UnsupportedOperationError,
)
from locus_store.core.frames import Codec, DamagedError, ThreadName, UnknownFormatError
from locus_store.core.texts import digest, hides, texts_of_block, texts_of_rest
from locus_store.core.words import Query
from locus_store.sql.contents import contents
from locus_store.sql.dialects.base import Dialect
from locus_store.sql.search.index import FIRST, Last, WordIndex
from locus_store.sql.search.tables import Filled, Record, Waiting

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class SearchingDriver(Driver):
    """What `locus_store.sql.driver.SQLDriver` does for searches; the attributes are explained there."""

    dialect: Dialect
    codec: Codec | None = None
    _schema: str | None = None

    @abstractmethod
    async def _read(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that only reads, in one transaction."""

    @abstractmethod
    async def _write(self, function: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in one transaction, commit it, and return what it returned.

        The function may be run again from the start after the database undid the transaction.
        """

    async def contents(self, key: Key, *, now: int) -> Contents | None:
        """See `Driver.contents`."""
        return await self._read(contents, self.dialect, key, now)

    async def clues(self, tenant: str, query: Query, pattern: str, *, limit: int | None, now: int) -> Clues:
        """See `Driver.clues`; what could not be taken into the index is read as it is."""
        index = self._index()
        record = await self._read(index.look)
        if record is None:
            raise self._not_enabled()
        try:
            await self._fill_index_if_possible(index, record)
            return await self._read(index.clues, self.dialect, tenant, query, pattern, limit, now)
        except LocusStoreError as error:
            # In a transaction of the caller's nothing more can be asked after an error.
            if not self.capabilities.own_connections or await self._read(index.look) is not None:
                raise
            raise self._not_enabled() from error

    async def enable_search(self, *, allow_plain_text: bool) -> None:
        """See `Driver.enable_search`."""
        index = self._index()
        if hides(self.codec) and not allow_plain_text:
            name = self.codec.name if self.codec is not None else ""
            raise PlainTextError(
                f"an index would hold the words of texts in readable form, and the codec {name!r} may be there to hide "
                "them; if that does not matter: enable_search(allow_plain_text=True)"
            )
        await self.prepare()
        record = Record(hides(self.codec))
        made = await self._read(index.has, record)
        while not made:
            await self._write(index.make, self._schema)
            after: Last | None = FIRST
            while after is not None:
                after = await self._write(index.enqueue, after)
            # False if somebody has removed it meanwhile.
            made = await self._write(index.record, record)
        if self.capabilities.own_connections:
            await self._fill_index(index)

    async def disable_search(self) -> None:
        """See `Driver.disable_search`."""
        await self._write(self._index().remove, self._schema)

    def _index(self) -> WordIndex:
        if self.dialect.index is None:
            raise UnsupportedOperationError(type(self).__name__, "search")
        return self.dialect.index

    def _not_enabled(self) -> SearchNotEnabledError:
        return SearchNotEnabledError(
            "this database",
            "search yet",
            "it has no index of words; make it once: await backend.enable_search()",
        )

    async def _fill_index_if_there(self) -> None:
        """Take what waits into the index, if this database has one."""
        index = self.dialect.index
        if index is not None and self.capabilities.own_connections:
            record = await self._read(index.look)
            if record is not None:
                await self._fill_index_if_possible(index, record)

    async def _fill_index_if_possible(self, index: WordIndex, record: Record) -> None:
        """Take what waits into the index, unless something is against it: nothing is wrong then.

        In a transaction of the caller's threads would be held until that ends. What a codec may be there to hide is
        taken in only where somebody allowed it.
        """
        if not self.capabilities.own_connections or (hides(self.codec) and not record.plain_text):
            return
        try:
            await self._fill_index(index)
        except RetryableError:
            _log.info("the index of words was not filled, searches read what waits for that", exc_info=True)
        except BackendError as error:
            if not self.dialect.may_not_write(error.__cause__):
                raise

    async def _fill_index(self, index: WordIndex) -> None:
        """Take into the index what is in the queue now."""
        after, upto = 0, await self._read(index.last)
        while upto is not None:
            waiting = await self._read(index.waiting, after, upto)
            filled = [found for one in waiting if (found := self._texts(index, one)) is not None]
            if filled:
                await self._write(index.store, filled)
            if len(waiting) < index.page:
                break
            after = waiting[-1].id

    def _texts(self, index: WordIndex, one: Waiting) -> Filled | None:
        """What there is to index of a source; None if this process cannot read it, so that a search says so."""
        texts: list[str] = []
        if one.payload is not None and one.tenant is not None and one.thread_id is not None:
            read = texts_of_block if one.source > 0 else texts_of_rest
            try:
                texts = read(one.payload, self.codec, ThreadName(one.tenant, one.thread_id))
            except UnknownFormatError:
                return None
            except DamagedError:
                _log.warning("thread %r: something that is stored is damaged and cannot be found", one.thread_id)
        return Filled(one.id, one.thread, one.source, {digest(text): index.words_of(text) for text in texts})
