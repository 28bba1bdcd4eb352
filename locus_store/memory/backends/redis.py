"""The SDK's import path of what is in `locus_store.backends.redis`."""

from locus_store.backends.redis import RedisBackend, RedisCheckpointer

__all__ = ["RedisBackend", "RedisCheckpointer"]
