"""Requests: what is sent, what is tried again, and which errors become what."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, NamedTuple

from opensearchpy.exceptions import ConnectionError as NotConnectedError
from opensearchpy.exceptions import OpenSearchException, TransportError

from locus_store.backends.opensearch.clients import Opened
from locus_store.backends.opensearch.names import Source
from locus_store.core.errors import BackendError, BackendUnavailableError, PayloadTooLargeError, StoreBusyError

PAGE = 1000
"""Documents that one request of several reads or asks for."""

_CHUNK = 8 * 1024 * 1024
_KEEP_ALIVE = "2m"
_EXPECTED = (404, 409)
_UNAVAILABLE = (502, 503, 504)


class Found(NamedTuple):
    """A document, and the place in the index's history at which it was read: what a compare-and-set names."""

    id: str
    source: Source
    seq_no: int
    term: int


class Act(NamedTuple):
    """One write: ``create`` only if it is not there, ``index`` or ``delete``, perhaps only if it is as ``seen``."""

    how: Literal["create", "index", "delete"]
    id: str
    source: Source | None = None
    seen: Found | None = None


class Done(NamedTuple):
    """What became of a write: its place in the history, or None if it was not done because of what is there."""

    place: tuple[int, int] | None

    def __bool__(self) -> bool:
        return self.place is not None


class Wire:
    """Talks to one index.

    Args:
        opened: The client.
        index: The index's name.
        limit: Bytes that one request may have.
        patience: Seconds for which a request that the server turns down as one too many is tried again.
    """

    def __init__(self, opened: Opened, index: str, *, limit: int, patience: float) -> None:
        self.opened = opened
        self.index = index
        self._limit = limit
        self._patience = patience

    # ------------------------------------------------------------------------------------------------ one request

    async def call(
        self, method: str, path: str, body: Any = None, *, ignore: tuple[int, ...] = (), **params: str | int
    ) -> Any:
        """Send a request and return what came back, errors included that are to be ignored."""
        deadline = time.monotonic() + self._patience
        wait = 0.02
        while True:
            try:
                # A list: what is not one is taken for a single status.
                asked: dict[str, Any] = {**params, "ignore": list(ignore)}
                return await self.opened.client.transport.perform_request(method, path, params=asked, body=body)
            except TransportError as e:
                if e.status_code != 429 or _blocked(e.info):
                    raise self._error(e) from e
                if time.monotonic() > deadline:
                    raise StoreBusyError(f"{self._who} has been too busy for {self._patience:g} seconds") from e
            except OpenSearchException as e:
                raise BackendError(f"what {self._who} answered cannot be read") from e
            except RuntimeError as e:
                # What aiohttp says of a session that was closed in the meantime.
                raise BackendUnavailableError(f"the connection to {self._who} was closed") from e
            await asyncio.sleep(wait * (0.5 + random.random()))  # noqa: S311  spreads who comes again
            wait = min(2 * wait, 1.0)

    @property
    def _who(self) -> str:
        return f"the server of index {self.index!r}"

    def _error(self, e: TransportError) -> BackendError:
        if isinstance(e, NotConnectedError):
            return BackendUnavailableError(f"{self._who} cannot be reached, or the connection was lost: {_kind(e)}")
        status = int(e.status_code)
        if status in _UNAVAILABLE:
            return BackendUnavailableError(f"{self._who} is not available ({status}): {_said(e.info)}")
        return self._refused(status, e.info)

    def _refused(self, status: int, info: Any) -> BackendError:
        said = _said(info)
        if status == 401:
            return BackendError(f"{self._who} refuses the user or the password (401)")
        if _blocked(info):
            return BackendError(
                f"index {self.index!r} takes no writes: {said}; on a full disk make room, then lift the block"
            )
        if status == 403:
            return BackendError(f"{self._who} forbids this user what was asked (403): {said}")
        if "index_not_found_exception" in said:
            return BackendError(
                f"index {self.index!r} is not there (any more); restore it, or make it anew with setup()"
            )
        if "index_closed_exception" in said:
            return BackendError(f"index {self.index!r} is closed; open it")
        if status == 413:
            return BackendError(f"{self._who} takes no request of this size (413): see max_content_length")
        return BackendError(f"{self._who} refused ({status}): {said}")

    # -------------------------------------------------------------------------------------------------- documents

    async def get(self, name: str) -> Found | None:
        """A document as it is at this moment, refreshed or not."""
        return self._found(await self.call("GET", f"/{self.index}/_doc/{name}", ignore=_EXPECTED))

    async def get_several(self, wanted: Sequence[tuple[str, Any]]) -> list[Found | None]:
        """Several, each with what of it is read (True for all)."""
        found: list[Found | None] = []
        for at in range(0, len(wanted), PAGE):
            docs = [{"_id": name, "_source": fields} for name, fields in wanted[at : at + PAGE]]
            answer = await self.call("POST", f"/{self.index}/_mget", {"docs": docs}, ignore=_EXPECTED)
            if "docs" not in answer:
                raise self._refused(404, answer)
            found += [self._found(doc) for doc in answer["docs"]]
        return found

    def _found(self, doc: Any) -> Found | None:
        if doc.get("found"):
            return Found(doc["_id"], doc["_source"], doc["_seq_no"], doc["_primary_term"])
        if "error" in doc or "found" not in doc:
            raise self._refused(404, doc)
        return None

    async def put(self, act: Act) -> Done:
        """Do one write."""
        return (await self.put_several([act]))[0]

    async def put_several(self, acts: Sequence[Act]) -> list[Done]:
        """Do several writes, each by itself; what is turned down as too much is tried again.

        Raises:
            PayloadTooLargeError: One of them is larger than a request may be.
        """
        lines = [_lines(act) for act in acts]
        done: list[Done | None] = [None] * len(acts)
        deadline = time.monotonic() + self._patience
        wait = 0.02
        while left := [i for i, one in enumerate(done) if one is None]:
            for chunk in self._chunks(left, lines):
                body = b"".join(lines[i] for i in chunk)
                answer = await self.call("POST", f"/{self.index}/_bulk", body)
                for i, item in zip(chunk, answer["items"], strict=True):
                    done[i] = self._done(next(iter(item.values())))
            if None in done:
                if time.monotonic() > deadline:
                    raise StoreBusyError(f"{self._who} has been too busy for {self._patience:g} seconds")
                await asyncio.sleep(wait * (0.5 + random.random()))  # noqa: S311
                wait = min(2 * wait, 1.0)
        return [one for one in done if one is not None]

    def _chunks(self, numbers: list[int], lines: list[bytes]) -> list[list[int]]:
        chunks: list[list[int]] = []
        size = 0
        for i in numbers:
            length = len(lines[i])
            if length > self._limit:
                raise PayloadTooLargeError(length, self._limit)
            if not chunks or size + length > min(_CHUNK, self._limit):
                chunks.append([])
                size = 0
            chunks[-1].append(i)
            size += length
        return chunks

    def _done(self, item: Any) -> Done | None:
        status = item["status"]
        if status < 300:
            return Done((item["_seq_no"], item["_primary_term"]))
        if status == 409 or (status == 404 and "error" not in item):
            return Done(None)
        if status == 429 and not _blocked(item):
            return None
        if status in _UNAVAILABLE:
            raise BackendUnavailableError(f"{self._who} is not available ({status}): {_said(item)}")
        raise self._refused(status, item)

    # -------------------------------------------------------------------------------------------------- searching

    async def refresh(self) -> None:
        """Have searches see all that is there now; shared by all who ask at the same time."""
        await self.opened.refresh(lambda: self.call("POST", f"/{self.index}/_refresh"))

    async def search(self, query: Source, sort: list[Source], fields: Any, size: int, start: int = 0) -> list[Source]:
        """What one search finds; together no more than 10,000."""
        body = {"query": query, "sort": sort, "_source": fields, "size": size, "from": start}
        answer = await self.call("POST", f"/{self.index}/_search", {**body, "track_total_hits": False})
        return self._hits(answer)

    async def scan(self, query: Source, sort: list[Source], fields: Any) -> AsyncGenerator[list[Source], None]:
        """All that a search finds, page by page, as it is at the first one."""
        elastic = self.opened.elastic
        path = "/_pit" if elastic else "/_search/point_in_time"
        answer = await self.call("POST", f"/{self.index}{path}", keep_alive=_KEEP_ALIVE)
        pit = answer["id" if elastic else "pit_id"]
        try:
            body: Source = {"query": query, "sort": sort, "_source": fields, "size": PAGE, "track_total_hits": False}
            while True:
                body["pit"] = {"id": pit, "keep_alive": _KEEP_ALIVE}
                answer = await self.call("POST", "/_search", body)
                hits = self._hits(answer)
                if hits:
                    yield hits
                if len(hits) < PAGE:
                    return
                pit = answer.get("pit_id", pit)
                body["search_after"] = hits[-1]["sort"]
        finally:
            gone: Source = {"id": pit} if elastic else {"pit_id": [pit]}
            await self.call("DELETE", path, gone, ignore=_EXPECTED)

    def _hits(self, answer: Any) -> list[Source]:
        if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
            raise BackendUnavailableError(f"{self._who} could not search all of its shards")
        hits: list[Source] = answer["hits"]["hits"]
        return hits

    async def delete_found(self, query: Source) -> bool:
        """Remove what a query finds after a refresh; returns whether all of it went."""
        await self.refresh()
        answer = await self.call("POST", f"/{self.index}/_delete_by_query", {"query": query}, conflicts="proceed")
        return not answer["failures"] and answer["deleted"] == answer["total"]


def _lines(act: Act) -> bytes:
    line: Source = {"_id": act.id}
    if act.seen is not None:
        line |= {"if_seq_no": act.seen.seq_no, "if_primary_term": act.seen.term}
    lines = [json.dumps({act.how: line}, separators=(",", ":"))]
    if act.source is not None:
        lines.append(json.dumps(act.source, separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


def _said(info: Any) -> str:
    """The type and the reason of an error; of what was sent nothing is in them."""
    error = info.get("error", info) if isinstance(info, dict) else info
    if isinstance(error, dict):
        return f"{error.get('type')}: {error.get('reason')}"[:500]
    return str(error)[:200]


def _blocked(info: Any) -> bool:
    return "cluster_block_exception" in _said(info)


def _kind(e: TransportError) -> str:
    return type(e.info if isinstance(e.info, Exception) else e).__name__
