"""The first face of a store: documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, Self, TypedDict, TypeVar, overload

from pydantic import BaseModel

from locus_store.core.checkpointer import Checkpointer
from locus_store.core.clock import Clock, IncreasingClock, process_clock
from locus_store.core.driver import Driver, IfExists
from locus_store.core.errors import SerializationError
from locus_store.core.frames import Codec
from locus_store.core.ids import DEFAULT_TENANT
from locus_store.core.ledger import Ledger
from locus_store.core.marks import why_not
from locus_store.core.metadata import Metadata
from locus_store.core.options import Options
from locus_store.core.state import AgentState
from locus_store.core.store import Store
from locus_store.core.targets import AsyncTarget, SyncTarget

if TYPE_CHECKING:
    from locus_store.core.synchronous import SyncBackend

State = TypeVar("State", bound=BaseModel)

HINT_BYTES = 64 * 1024 * 1024
"""How many bytes a backend may keep in memory to recognise what it has saved or loaded before."""


class BackendOptions(TypedDict, total=False):
    """The options that every backend takes; `Backend` says what they mean."""

    tenant: str
    ttl_seconds: float | None
    keep_checkpoints: int | None
    codec: Codec | None
    clock: Clock | None
    hint_bytes: int


class Backend(Store):
    """Stores documents: dicts that load equal and with the same types.

    Every save adds a numbered, immutable checkpoint to a thread, and stores only what is new in it.

    Args:
        driver: How it is stored.
        tenant: The owner of all threads that this object sees.
        ttl_seconds: How long a thread lives after its last save, or None for ever. Reading does not extend it.
        keep_checkpoints: How many of the newest checkpoints of a thread stay after a save, or None for all.
        codec: What stored bytes go through (compression, encryption), or None.
        clock: Gives microseconds since 1970 in UTC; for tests.
        hint_bytes: How many bytes may be kept in memory to recognise what was saved or loaded before.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        tenant: str = DEFAULT_TENANT,
        ttl_seconds: float | None = None,
        keep_checkpoints: int | None = None,
        codec: Codec | None = None,
        clock: Clock | None = None,
        hint_bytes: int = HINT_BYTES,
        **unknown: Never,
    ) -> None:
        for name in unknown:  # named here, since Python would name this class and not the one that was called
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
        options = Options(
            process_clock if clock is None else IncreasingClock(clock), tenant, ttl_seconds, keep_checkpoints, codec
        )
        super().__init__(driver, options, Ledger(hint_bytes))

    async def save(
        self,
        thread_id: str,
        document: dict[Any, Any],
        checkpoint_id: str | None = None,
        metadata: Metadata | None = None,
        *,
        expected_version: int | None = None,
        if_exists: IfExists = "newest",
        parent: str | None = None,
    ) -> str:
        """Save a document as a new checkpoint of a thread.

        Args:
            thread_id: The thread; it is made if it is not there.
            document: What to save. It is not kept, so it may be changed afterwards.
            checkpoint_id: The checkpoint's id; None makes a new one.
            metadata: A dict by which the checkpoint can be found; it may hold what a document may, but no NaN or
                infinity.
            expected_version: Save only if this is the version of the newest checkpoint; 0 for "no such thread".
            if_exists: What to do when the thread has a checkpoint with this id: ``"newest"`` replaces it and makes it
                the newest, ``"in_place"`` replaces it and leaves its place in the order, ``"error"`` refuses.
            parent: The id of the checkpoint this one was made from; None for the newest at the moment of the save.

        Returns:
            The checkpoint's id. When this returns, the checkpoint is durable.

        Raises:
            SerializationError: The document or the metadata holds what cannot be stored; the error names where.
            ConflictError: The newest checkpoint has another version than expected.
            CheckpointExistsError: The id is in use and ``if_exists`` is ``"error"``.
            CheckpointNotFoundError: The parent is not in the thread.
            PayloadTooLargeError: The backend cannot store that much in one piece.
            RetryableError: The document was changed while it was being saved, and the save had to be planned anew; save
                it again.
        """
        if not isinstance(thread_id, str):
            raise TypeError(
                f"save(thread_id, document): the thread_id must be a str, got {type(thread_id).__name__}. "
                "This is a backend; states are saved by its checkpointer: backend.checkpointer().save(state, thread_id)"
            )
        if not isinstance(document, dict):
            raise TypeError(
                f"save(thread_id, document): the document must be a dict, got {type(document).__name__}. "
                "States are saved by backend.checkpointer(StateType)"
            )
        if type(document) is not dict:
            raise SerializationError("$", why_not(document))
        return await self._save_document(
            thread_id, document, checkpoint_id, metadata, expected_version, if_exists, parent
        )

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> dict[Any, Any] | None:
        """Load a document.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; None for the newest.

        Returns:
            A document of the caller's own, or None if it is not there.

        Raises:
            CorruptCheckpointError: What is stored is damaged.
            UnsupportedFormatError: A newer release wrote it.
        """
        found = await self._load_document(thread_id, checkpoint_id)
        return None if found is None else found[1]

    @overload
    def checkpointer(self) -> Checkpointer[AgentState]: ...

    @overload
    def checkpointer(self, state_type: type[State]) -> Checkpointer[State]: ...

    def checkpointer(self, state_type: type[BaseModel] = AgentState) -> Checkpointer[Any]:
        """The second face: saves and loads states of a pydantic model, over the same storage."""
        return Checkpointer(self, state_type)

    @overload
    def bind(self, target: AsyncTarget) -> Self: ...

    @overload
    def bind(self, target: SyncTarget) -> SyncBackend: ...

    def bind(self, target: AsyncTarget | SyncTarget) -> Self | SyncBackend:
        """The same store inside a transaction of the caller's, where ``capabilities.transactions`` says so.

        All that it reads and writes goes through the caller's connection and is part of the caller's transaction: it
        is seen there at once, and by others when the caller commits. It begins what SQLAlchemy begins by itself, and
        never commits, rolls back, sets a savepoint, flushes or tries again. Where DDL does not end a
        transaction, `setup` makes the tables in it. It needs no `close`.

        Args:
            target: SQLAlchemy's `AsyncSession` or `AsyncConnection`, or its `Session` or `Connection`.

        Returns:
            A store with the same methods: coroutines for the first two, plain calls (`SyncBackend`) for the others.

        Raises:
            UnsupportedOperationError: This backend has no database of SQLAlchemy's.
            TypeError: ``target`` is something else.
        """
        driver = self._bound_driver(target)
        if not driver.synchronous:
            return self._over(driver)
        from locus_store.core.synchronous import SyncBackend

        return SyncBackend(self._over(driver))
