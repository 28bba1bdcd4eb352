"""Threads in Redis or Valkey: one server, one behind sentinels, or a cluster."""

from __future__ import annotations

from locus_store.backends.redis.backend import RedisBackend, RedisCheckpointer
from locus_store.backends.redis.driver import RedisDriver

__all__ = ["RedisBackend", "RedisCheckpointer", "RedisDriver"]
