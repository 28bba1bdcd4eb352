"""What a store can be bound to, as a type checker sees it; the core knows no database."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol


class AsyncTarget(Protocol):
    """SQLAlchemy's `AsyncSession` or `AsyncConnection`."""

    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        ...

    def commit(self) -> Coroutine[Any, Any, None]:
        """Ends it."""
        ...

    def run_sync(self, fn: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Runs a plain function of what is beneath it."""
        ...


class SyncTarget(Protocol):
    """SQLAlchemy's `Session` or `Connection`."""

    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        ...

    def commit(self) -> None:
        """Ends it."""
        ...
