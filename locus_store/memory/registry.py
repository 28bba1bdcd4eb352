"""The SDK's import path of the checkpointers by name, which are in `locus_store.registry`."""

from locus_store.registry import _CHECKPOINTERS, get_checkpointer, list_checkpointers, register_checkpointer

__all__ = ["_CHECKPOINTERS", "get_checkpointer", "list_checkpointers", "register_checkpointer"]
