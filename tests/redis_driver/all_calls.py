"""What may be asked of a store, and how a test sees to it that it is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from locus_store import BackendError, RedisBackend


def calls(store: RedisBackend) -> dict[str, Callable[[], Any]]:
    """Calls by their names, about a thread ``t``."""
    return {
        "save": lambda: store.save("t", {"a": "x" * 2000}),
        "load": lambda: store.load("t"),
        "exists": lambda: store.exists("t"),
        "list_checkpoints": lambda: store.list_checkpoints("t"),
        "list_threads": store.list_threads,
        "query_by_metadata": lambda: store.query_by_metadata("a", 1),
        "delete": lambda: store.delete("t"),
        "copy_thread": lambda: store.copy_thread("t", "u"),
        "vacuum": store.vacuum,
        "setup": store.setup,
    }


async def refused(call: Callable[[], Any]) -> BackendError:
    """The error of a call; it has a cause, and shows no secret."""
    with pytest.raises(BackendError) as caught:
        await call()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is not None
    return caught.value
