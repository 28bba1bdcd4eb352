"""What is handed to `StorageBackendAdapter`: checked, and turned into JSON types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from locus_store.backends.keyed_rows import INDEX, LATEST, parameters
from locus_store.core import ids
from locus_store.core.errors import SerializationError
from locus_store.core.store import Store

_METHODS = ("save", "load", "delete", "exists")


def check_backend(backend: Any) -> None:
    """Refuse what cannot be adapted, with a TypeError."""
    kind = type(backend).__name__
    if isinstance(backend, Store) or next(iter(parameters(getattr(backend, "save", None))), "") == "state":
        raise TypeError(
            f"{kind} is a checkpointer already: use it as it is, or adapt the backend under it (checkpointer.backend)"
        )
    missing = [name for name in _METHODS if not callable(getattr(backend, name, None))]
    if missing:
        raise TypeError(f"{kind} is no backend that can be adapted, for it lacks {', '.join(missing)}")


def check_state_type(state_type: Any) -> None:
    """Refuse what is no pydantic model, with a TypeError."""
    if not (isinstance(state_type, type) and issubclass(state_type, BaseModel)):
        raise TypeError(f"a state type must be a pydantic model, got {state_type!r}")


def check_new_id(checkpoint_id: str) -> str:
    """An id that can be part of a key."""
    if ":" in ids.check_checkpoint_id(checkpoint_id) or checkpoint_id in (LATEST, INDEX):
        raise ValueError(
            f"over a foreign backend a checkpoint_id may have no colon and be neither {LATEST!r} nor {INDEX!r}: "
            f"{checkpoint_id!r}"
        )
    return checkpoint_id


def document_of(state: Any) -> dict[str, Any]:
    """A state as a dict of JSON types."""
    dump = getattr(state, "to_checkpoint", None)
    if not callable(dump) and not isinstance(state, BaseModel):
        raise TypeError(f"save(state, thread_id): the state must be a pydantic model, got {type(state).__name__}")
    try:
        document: dict[str, Any] = dump() if callable(dump) else state.model_dump(mode="json")
    except (PydanticSerializationError, UnicodeDecodeError) as e:
        raise SerializationError("$", f"the state has no JSON form: {e}") from e
    return document


def notes_of(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as a dict of JSON types."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict, got {type(metadata).__name__}")
    try:
        notes: dict[str, Any] = to_jsonable_python(dict(metadata))
    except (PydanticSerializationError, UnicodeDecodeError) as e:
        raise SerializationError("$", f"the metadata has no JSON form: {e}") from e
    return notes
