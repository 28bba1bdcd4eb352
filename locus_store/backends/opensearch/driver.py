"""The driver: primitives of `locus_store.core.driver` over documents of one index.

What is where, `names` says. There are no transactions over documents, so:

- One save is one document, created once under the next number of its thread, which holds the checkpoint and its block.
  The thread's own document says which of them are there; it is changed by compare-and-set, and what it does not tell of
  does not exist. A thread is gone, whole, with it.
- A removal is such a step, too. What it leaves to be done to older documents is written down with it, and done by
  whoever comes next if its writer dies.
- Whatever concerns one thread is read and written by id, which needs no refresh. Listings and queries search, after a
  refresh that all share who search at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from locus_store.backends.opensearch.address import Address
from locus_store.backends.opensearch.clients import Clients
from locus_store.core.capabilities import EVERYTHING_SHARED
from locus_store.core.driver import Clues, Contents, Driver, Dropped, Info, Key, Plan, PutResult, Stored, Trimmed
from locus_store.core.errors import MissingDependencyError
from locus_store.core.frames import Codec
from locus_store.core.texts import hides
from locus_store.core.words import Query

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

    from locus_store.backends.opensearch.parts import Parts

T = TypeVar("T")

MAX_CONTENT_LENGTH = 100 * 1024 * 1024
"""What a server takes in one request unless it is told otherwise."""


class OpenSearchDriver(Driver):
    """Threads as documents of one index, which several processes may use.

    Args:
        address: Where the servers are, and the index's name.
        client: The caller's own client in place of one of ours.
        create_schema: Make the index if it is missing.
        timeout: Seconds that an answer is waited for.
        busy_timeout: Seconds for which a busy server is asked again.
        max_connections: How many connections there are at most to each server, for each event loop.
        max_content_length: Bytes that one request may have.
        codec: What frames go through; it is needed where a removal rewrites a block.
        client_options: More arguments of opensearch-py's client.
    """

    capabilities = replace(EVERYTHING_SHARED, search=True)

    def __init__(
        self,
        address: Address,
        *,
        client: AsyncOpenSearch | None = None,
        create_schema: bool = True,
        timeout: float = 30.0,
        busy_timeout: float = 10.0,
        max_connections: int = 10,
        max_content_length: int = MAX_CONTENT_LENGTH,
        codec: Codec | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import aiohttp  # noqa: F401
            import opensearchpy  # noqa: F401
        except ImportError as e:
            raise MissingDependencyError("OpenSearchBackend", "opensearch-py", "opensearch") from e
        from locus_store.backends.opensearch.parts import make_client
        from locus_store.backends.opensearch.reading import Recent

        self.address = address
        self.codec = codec
        self.indexes_texts = not hides(codec)
        self._create = create_schema
        self._patience = busy_timeout
        self._limit = max_content_length
        self._recent = Recent()
        self._shown = f"a client of the caller's, {address.index}" if client is not None else str(address)
        self._clients = Clients(
            lambda: make_client(address, timeout, max_connections, dict(client_options or {})), client
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown})"

    async def _parts(self) -> Parts:
        from locus_store.backends.opensearch.parts import Parts

        return Parts(
            await self._clients.opened(),
            self.address.index,
            limit=self._limit,
            patience=self._patience,
            codec=self.codec,
            recent=self._recent,
        )

    async def _ready(self) -> Parts:
        parts = await self._parts()
        if not parts.opened.prepared:
            await parts.opened.to_the_end(parts.prepare(create=self._create))
        return parts

    async def _change(self, key: Key, action: Callable[[Parts], Awaitable[T]]) -> T:
        """Change a thread: one task after the other, and to the end even if the caller is cancelled."""
        parts = await self._ready()

        async def change() -> T:
            async with parts.opened.turn(key):
                return await action(parts)

        return await parts.opened.to_the_end(change())

    # --------------------------------------------------------------------------------------------------- the interface

    async def put(self, key: Key, plan: Plan) -> PutResult:
        """See `Driver.put`."""
        return await self._change(key, lambda parts: parts.saver.put(key, plan))

    async def get(self, key: Key, checkpoint_id: str | None, *, now: int) -> Stored | None:
        """See `Driver.get`.

        Raises:
            DamagedError: Documents are missing that the thread refers to.
        """
        return await (await self._ready()).reader.get(key, checkpoint_id, now)

    async def info(self, key: Key, checkpoint_id: str | None, *, now: int) -> Info | None:
        """See `Driver.info`."""
        return await (await self._ready()).reader.info(key, checkpoint_id, now)

    async def infos(self, key: Key, *, before: int | None, limit: int | None, now: int) -> list[Info]:
        """See `Driver.infos`."""
        return await (await self._ready()).reader.infos(key, before, limit, now)

    async def threads(
        self, tenant: str, pattern: str, *, limit: int | None, offset: int, now: int
    ) -> list[tuple[str, int]]:
        """See `Driver.threads`."""
        return await (await self._ready()).lister.threads(tenant, pattern, limit, offset, now)

    async def find(
        self,
        tenant: str,
        terms: Sequence[bytes],
        *,
        thread_id: str | None,
        newest_only: bool,
        limit: int | None,
        offset: int,
        now: int,
    ) -> list[Info]:
        """See `Driver.find`."""
        lister = (await self._ready()).lister
        return await lister.find(tenant, terms, thread_id, newest_only, limit, offset, now)

    async def drop(self, key: Key, checkpoint_ids: Sequence[str] | None, *, now: int) -> Dropped:
        """See `Driver.drop`."""
        ids = None if checkpoint_ids is None else list(checkpoint_ids)
        return await self._change(key, lambda parts: parts.saver.drop(key, ids, now))

    async def clone(
        self, source: Key, dest: Key, *, upto: int | None, overwrite: bool, now: int
    ) -> Literal["copied", "missing", "exists"]:
        """See `Driver.clone`."""
        return await self._change(dest, lambda parts: parts.copier.clone(source, dest, upto, overwrite, now))

    async def trim(self, tenant: str, *, older_than: int, keep_last: int, now: int) -> Trimmed:
        """See `Driver.trim`; it also sweeps away what writers that died have left."""
        parts = await self._ready()
        return await parts.opened.to_the_end(parts.trimmer.trim(tenant, older_than, keep_last, now))

    async def reclaim(self) -> int:
        """Nothing to do: the servers merge their segments by themselves."""
        return 0

    async def put_records(
        self, key: Key, scope: str, items: Sequence[tuple[str, bytes]], *, keep: bool, now: int, expires_at: int | None
    ) -> None:
        """See `Driver.put_records`."""
        await self._change(key, lambda parts: parts.records.put(key, scope, items, keep, now, expires_at))

    async def records(self, key: Key, scope: str | None, *, now: int) -> list[tuple[str, str, bytes]]:
        """See `Driver.records`."""
        return await (await self._ready()).records.read(key, scope, now)

    async def drop_records(self, key: Key, scope: str | None, *, now: int) -> int:
        """See `Driver.drop_records`."""
        return await self._change(key, lambda parts: parts.records.drop(key, scope, now))

    async def contents(self, key: Key, *, now: int) -> Contents | None:
        """See `Driver.contents`."""
        return await (await self._ready()).searcher.contents(key, now)

    async def clues(self, tenant: str, query: Query, pattern: str, *, limit: int | None, now: int) -> Clues:
        """See `Driver.clues`; of texts behind a codec that may hide them, all threads that hold such texts."""
        return await (await self._ready()).searcher.clues(tenant, query, pattern, limit)

    async def prepare(self) -> None:
        """Make the index and its template if they are missing, and check it."""
        parts = await self._parts()
        await parts.opened.to_the_end(parts.prepare(create=self._create, again=True))

    async def aclose(self) -> None:
        """Wait for what still runs in this event loop, and close its connections."""
        await self._clients.aclose()
