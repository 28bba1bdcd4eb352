"""The store over the stand-in: an `OracleBackend` that connects to it."""

from __future__ import annotations

from typing import Any

from oracle.oracle_standin.connection import creator

from locus_store.backends.oracle import OracleBackend


class StandInBackend(OracleBackend):
    """An `OracleBackend` in a database of PostgreSQL's.

    Args:
        url: The database, made fit by `install`.
        **options: See `OracleBackend`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        connect_args = {"async_creator_fn": creator(url)} | options.pop("connect_args", {})
        super().__init__("standin", user="locus", password="none", connect_args=connect_args, **options)


async def create_schema(url: str) -> None:
    """Make the store's tables in a database, as its first use would."""
    async with StandInBackend(url) as store:
        await store.setup()
