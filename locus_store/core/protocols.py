"""What an object needs to be used as a checkpointer, whoever wrote it. The names are those of the locus SDK.

The store's own checkpointers are `locus_store.core.checkpointer.Checkpointer`. Code that makes one of its own, or takes
anybody's, uses what is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from locus_store.core.capabilities import Capabilities
from locus_store.core.errors import UnsupportedOperationError

CheckpointerCapabilities = Capabilities


@runtime_checkable
class CheckpointerProtocol(Protocol):
    """The least that a checkpointer has."""

    @property
    def capabilities(self) -> Any:
        """What else it can do, as flags."""

    async def save(
        self,
        state: Any,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Save a state; returns the checkpoint's id."""
        ...

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Any:
        """Load a state, the newest or the one named; None if it is not there."""

    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""
        ...


@runtime_checkable
class BaseCheckpointer(Protocol):
    """What a checkpointer of one's own is derived from; `save`, `load` and `list_checkpoints` are to be written.

    The store's checkpointers have all of these methods, so they are instances of it (`isinstance` looks at the methods)
    and type checkers take them for one. `issubclass` does not work on it.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beyond `save`, `load` and `list_checkpoints`: nothing, unless this is overridden."""
        return Capabilities()

    @property
    def deletes_single_checkpoints(self) -> bool:
        """Whether `delete` takes single checkpoints; the SDK's agent then saves every iteration."""
        return getattr(type(self), "delete", None) is not BaseCheckpointer.delete

    @abstractmethod
    async def save(
        self,
        state: Any,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Save a state as a new checkpoint of a thread.

        Args:
            state: The state.
            thread_id: The thread; it is made if it is not there.
            checkpoint_id: The checkpoint's id; None makes a new one.
            metadata: Notes about the checkpoint.

        Returns:
            The checkpoint's id.
        """

    @abstractmethod
    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Any:
        """Load a state, the newest or the one named; None if it is not there."""

    @abstractmethod
    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether a thread, or one checkpoint of it, is there."""
        if checkpoint_id is None:
            return bool(await self.list_checkpoints(thread_id, limit=1))
        return await self.load(thread_id, checkpoint_id) is not None

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Delete a thread or one of its checkpoints; returns whether there was anything to delete."""
        raise UnsupportedOperationError(type(self).__name__, "delete")

    async def list_threads(self, limit: int = 100, *, pattern: str = "*") -> list[str]:
        """The ids of threads; needs the capability of this name."""
        raise UnsupportedOperationError(type(self).__name__, "list_threads")

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> Mapping[str, Any] | None:
        """What is known about a checkpoint; needs the capability ``metadata_query``."""
        raise UnsupportedOperationError(type(self).__name__, "get_metadata")

    async def query_by_metadata(self, key: str, value: Any, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Checkpoints by their metadata; needs the capability ``metadata_query``."""
        raise UnsupportedOperationError(type(self).__name__, "query_by_metadata")

    async def list_with_metadata(self, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Checkpoints with their metadata; needs the capability of this name."""
        raise UnsupportedOperationError(type(self).__name__, "list_with_metadata")

    async def search(self, query: str, limit: int = 10, pattern: str = "*") -> Sequence[Mapping[str, Any]]:
        """Find words in stored text; needs the capability of this name."""
        raise UnsupportedOperationError(type(self).__name__, "search")

    async def copy_thread(self, source_thread_id: str, dest_thread_id: str) -> bool:
        """Copy a thread; False if the source is not there; needs the capability ``branching``."""
        raise UnsupportedOperationError(type(self).__name__, "copy_thread")

    async def vacuum(self, older_than_days: int = 30) -> int:
        """Remove old checkpoints and return how many; needs the capability of this name."""
        raise UnsupportedOperationError(type(self).__name__, "vacuum")

    async def close(self) -> None:
        """Release what is held; the next call opens it again."""
        return

    def _require_capability(self, name: str) -> None:
        """Raise `UnsupportedOperationError` unless a capability is there."""
        if not getattr(self.capabilities, name):
            raise UnsupportedOperationError(type(self).__name__, name)
