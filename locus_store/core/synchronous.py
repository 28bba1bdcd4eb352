"""The faces of a store that is bound to something synchronous: the same methods, as plain calls.

The coroutines of a store await its driver's primitives and nothing else. A driver that is bound to a synchronous
session or connection never waits, so each of them is run to its end by one step, with or without an event loop around.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from pydantic import BaseModel

from locus_store.core.backend import Backend
from locus_store.core.capabilities import Capabilities
from locus_store.core.checkpointer import Checkpointer
from locus_store.core.driver import IfExists
from locus_store.core.metadata import Metadata
from locus_store.core.state import AgentState
from locus_store.core.store import Store

P = ParamSpec("P")
R = TypeVar("R")
State = TypeVar("State", bound=BaseModel)


def run_to_end(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never waits.

    Raises:
        RuntimeError: It waited for something.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(R, done.value)
    coroutine.close()
    raise RuntimeError("a store that is bound to something synchronous must not wait")


def plain(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[SyncStore, P], R]:
    """A coroutine function of a store as a plain method with the same parameters."""
    name = method.__name__

    @wraps(method)
    def call(self: SyncStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        made: R = run_to_end(getattr(self._store, name)(*args, **kwargs))
        return made

    return call


class SyncStore:
    """What both faces share; each method is the one of `Store` that has its name.

    Args:
        store: A store that is bound to a synchronous session or connection.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return repr(self._store)

    def tenant(self, name: str) -> Self:
        """The same store inside another tenant."""
        return type(self)(self._store.tenant(name))

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return self._store.capabilities

    list_checkpoints = plain(Store.list_checkpoints)
    history = plain(Store.history)
    list_threads = plain(Store.list_threads)
    exists = plain(Store.exists)
    get_metadata = plain(Store.get_metadata)
    list_with_metadata = plain(Store.list_with_metadata)
    query_by_metadata = plain(Store.query_by_metadata)
    delete = plain(Store.delete)
    copy_thread = plain(Store.copy_thread)
    vacuum = plain(Store.vacuum)
    search = plain(Store.search)
    enable_search = plain(Store.enable_search)
    disable_search = plain(Store.disable_search)
    put_records = plain(Store.put_records)
    records = plain(Store.records)
    delete_records = plain(Store.delete_records)
    setup = plain(Store.setup)
    close = plain(Store.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncBackend(SyncStore):
    """A `Backend` that is bound to a `Session` or `Connection`: what it saves is durable when the caller commits."""

    _store: Backend

    save = plain(Backend.save)
    load = plain(Backend.load)

    @overload
    def checkpointer(self) -> SyncCheckpointer[AgentState]: ...

    @overload
    def checkpointer(self, state_type: type[State]) -> SyncCheckpointer[State]: ...

    def checkpointer(self, state_type: type[BaseModel] = AgentState) -> SyncCheckpointer[Any]:
        """The second face: saves and loads states of a pydantic model, in the same transaction."""
        return SyncCheckpointer(self._store.checkpointer(state_type))


class SyncCheckpointer(SyncStore, Generic[State]):
    """A `Checkpointer` that is bound to a `Session` or `Connection`."""

    _store: Checkpointer[State]

    @property
    def backend(self) -> SyncBackend:
        """The first face, in the same transaction."""
        return SyncBackend(self._store.backend)

    @property
    def state_type(self) -> type[State]:
        """The pydantic model that `load` returns."""
        return self._store.state_type

    def save(
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
        """See `Checkpointer.save`."""
        return run_to_end(
            self._store.save(
                state,
                thread_id,
                checkpoint_id,
                metadata,
                expected_version=expected_version,
                if_exists=if_exists,
                parent=parent,
            )
        )

    def load(self, thread_id: str, checkpoint_id: str | None = None) -> State | None:
        """See `Checkpointer.load`."""
        return run_to_end(self._store.load(thread_id, checkpoint_id))
