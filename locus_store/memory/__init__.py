"""The import path of the locus SDK: code written for it runs when its root `locus` is renamed to `locus_store`.

What is here lives elsewhere: the backends in `locus_store.backends`, the registry in `locus_store.registry`.
"""

from __future__ import annotations

from locus_store.core.protocols import BaseCheckpointer, CheckpointerCapabilities
from locus_store.registry import get_checkpointer, list_checkpointers, register_checkpointer

__all__ = [
    "BaseCheckpointer",
    "CheckpointerCapabilities",
    "get_checkpointer",
    "list_checkpointers",
    "register_checkpointer",
]
