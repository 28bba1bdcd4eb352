"""The second face of a store: states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

from pydantic import BaseModel, ValidationError

from locus_store.core.driver import Driver, IfExists
from locus_store.core.dumping import Dumper
from locus_store.core.errors import CheckpointError, UnsupportedOperationError
from locus_store.core.metadata import Metadata
from locus_store.core.store import Store
from locus_store.core.targets import AsyncTarget, SyncTarget

if TYPE_CHECKING:
    from locus_store.core.synchronous import SyncCheckpointer

State = TypeVar("State", bound=BaseModel)


class Checkpointer(Store, Generic[State]):
    """Saves and loads states: objects of a pydantic model, such as `AgentState`.

    It has the interface of the locus SDK's checkpointers and can be handed to its ``Agent``.

    What a model does not validate when it is assigned is not validated by a save either: a text in a field of numbers
    (``state.count = "5"``) is stored as it is, and comes back as what the model's validation makes of it.

    Args:
        store: The backend, over whose storage this is a second face.
        state_type: The pydantic model that `load` returns.
    """

    def __init__(self, store: Store, state_type: type[State]) -> None:
        if not isinstance(store, Store):
            raise TypeError(f"a checkpointer is made over a backend, got {type(store).__name__}")
        super().__init__(store._driver, store._options, store._ledger)
        self.backend = store
        self._dumper = Dumper(state_type)

    def tenant(self, name: str) -> Self:
        """The same checkpointer inside another tenant; it shares connections and needs no `close` of its own."""
        other = super().tenant(name)
        other.backend = self.backend.tenant(name)
        return other

    @overload
    def bind(self, target: AsyncTarget) -> Self: ...

    @overload
    def bind(self, target: SyncTarget) -> SyncCheckpointer[State]: ...

    def bind(self, target: AsyncTarget | SyncTarget) -> Self | SyncCheckpointer[State]:
        """The same checkpointer inside a transaction of the caller's; see `Backend.bind`."""
        driver = self._bound_driver(target)
        if not driver.synchronous:
            return self._over(driver)
        from locus_store.core.synchronous import SyncCheckpointer

        return SyncCheckpointer(self._over(driver))

    def _over(self, driver: Driver) -> Self:
        other = super()._over(driver)
        other.backend = self.backend._over(driver)
        return other

    @property
    def state_type(self) -> type[State]:
        """The pydantic model that `load` returns."""
        return self._dumper.state_type

    @property
    def deletes_single_checkpoints(self) -> bool:
        """True: the SDK's agent may save every iteration and delete those checkpoints at the end of a turn."""
        return True

    async def save(
        self,
        state: State,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: Metadata | None = None,
        *,
        expected_version: int | None = None,
        if_exists: IfExists = "newest",
        parent: str | None = None,
    ) -> str:
        """Save a state as a new checkpoint of a thread; the arguments are those of `Backend.save`.

        Args:
            state: A pydantic model; any one, though `load` returns ``state_type``.
            thread_id: The thread; it is made if it is not there.
            checkpoint_id: The checkpoint's id; None makes a new one.
            metadata: A dict by which the checkpoint can be found.
            expected_version: Save only if this is the version of the newest checkpoint; 0 for "no such thread".
            if_exists: ``"newest"``, ``"in_place"`` or ``"error"``.
            parent: The id of the checkpoint this one was made from; None for the newest at the moment of the save.

        Returns:
            The checkpoint's id. When this returns, the checkpoint is durable.

        Raises:
            SerializationError: The state holds what would not come back equal; the error names where.
            RetryableError: The state was changed while it was being saved, and the save had to be planned anew; save
                it again. The errors of `Backend.save` are raised too.
        """
        if not isinstance(state, BaseModel):
            raise TypeError(
                f"save(state, thread_id): the state must be a pydantic model, got {type(state).__name__}. "
                "This is a checkpointer; documents are saved by its backend: checkpointer.backend.save(thread_id, dict)"
            )
        document = self._dumper.document(state)
        return await self._save_document(
            thread_id, document, checkpoint_id, metadata, expected_version, if_exists, parent
        )

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> State | None:
        """Load a state.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint; None for the newest.

        Returns:
            The state, or None if it is not there.

        Raises:
            CheckpointError: The stored document does not fit ``state_type``; `Backend.load` gives it as plain data.
            CorruptCheckpointError: What is stored is damaged.
        """
        found = await self._load_document(thread_id, checkpoint_id)
        if found is None:
            return None
        try:
            return self._dumper.state(found[1])
        except ValidationError as e:
            raise CheckpointError(
                thread_id,
                found[0],
                f"the stored document does not fit {self.state_type.__name__}; "
                "load it with the backend to get it as plain data",
            ) from e

    def _require_capability(self, name: str) -> None:
        """Raise `UnsupportedOperationError` unless a capability is there (part of the SDK's interface)."""
        if not getattr(self.capabilities, name):
            raise UnsupportedOperationError(type(self).__name__, name)
