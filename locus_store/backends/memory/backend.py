"""The public faces of the store in memory."""

from __future__ import annotations

from typing import Unpack

from locus_store.backends.memory.driver import MemoryDriver
from locus_store.core.backend import Backend, BackendOptions
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.state import AgentState


class MemoryBackend(Backend):
    """Documents in memory; they live as long as this object.

    Args:
        **options: ``tenant``, ``ttl_seconds``, ``keep_checkpoints``, ``codec``, ``clock``, ``hint_bytes``: see
            `Backend`.
    """

    _driver: MemoryDriver

    def __init__(self, **options: Unpack[BackendOptions]) -> None:
        super().__init__(MemoryDriver(codec=options.get("codec")), **options)

    def clear(self) -> None:
        """Forget all threads of all tenants."""
        self._driver.clear()

    def get_thread_ids(self) -> list[str]:
        """The ids of this tenant's threads, oldest first."""
        return self._driver.thread_ids(self._options.tenant)

    def get_checkpoint_count(self, thread_id: str | None = None) -> int:
        """How many checkpoints a thread has, or all threads of this tenant together."""
        return self._driver.checkpoint_count(self._options.tenant, thread_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(threads={len(self.get_thread_ids())}, checkpoints={self.get_checkpoint_count()})"


class MemoryCheckpointer(Checkpointer[AgentState]):
    """Agent states in memory; they live as long as this object.

    Args:
        **options: See `MemoryBackend`.
    """

    backend: MemoryBackend

    def __init__(self, **options: Unpack[BackendOptions]) -> None:
        super().__init__(MemoryBackend(**options), AgentState)

    def clear(self) -> None:
        """Forget all threads of all tenants."""
        self.backend.clear()

    def get_thread_ids(self) -> list[str]:
        """The ids of this tenant's threads, oldest first."""
        return self.backend.get_thread_ids()

    def get_checkpoint_count(self, thread_id: str | None = None) -> int:
        """How many checkpoints a thread has, or all threads of this tenant together."""
        return self.backend.get_checkpoint_count(thread_id)

    def __repr__(self) -> str:
        return repr(self.backend).replace("MemoryBackend", type(self).__name__)
