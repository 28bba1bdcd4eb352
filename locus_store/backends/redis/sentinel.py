"""Sentinels, as far as what they say comes into errors."""

from __future__ import annotations

from typing import Any

from redis import exceptions
from redis.asyncio import Redis


class SentinelError(exceptions.ConnectionError):
    """A sentinel that could not be asked, in words; redis-py shows errors of sentinels by their `repr`."""

    def __repr__(self) -> str:
        return str(self)


class SentinelClient(Redis):
    """One sentinel.

    When none of them names a primary, redis-py's error has the clients of all, and what they raised, by their `repr`:
    in some releases with all options, passwords among them, and in others without what went wrong.
    """

    def __repr__(self) -> str:
        place = self.connection_pool.connection_kwargs
        return f"{place['host']}:{place['port']}"

    async def sentinel_masters(self, *arguments: Any, **options: Any) -> Any:
        """See redis-py; all errors say what happened."""
        try:
            return await super().sentinel_masters(*arguments, **options)
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise SentinelError(f"{type(error).__name__}: {error}") from error
