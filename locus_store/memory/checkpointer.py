"""The SDK's import path of `BaseCheckpointer`, which is in `locus_store.core.protocols`."""

from locus_store.core.protocols import BaseCheckpointer, CheckpointerCapabilities

__all__ = ["BaseCheckpointer", "CheckpointerCapabilities"]
