"""What the stand-in was asked to run in this process, and what the checks have against it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from oracle.checks import complaints


class Journal:
    """The distinct statements, each checked when it is first seen.

    Attributes:
        seen: The types of the binds, by statement.
        wrong: What was said against a statement, also if the error that told it was lost on its way.
        lobs: How many LOB objects were handed out.
        calls: How many calls went to a server, each at least one round trip of Oracle's protocol.
    """

    def __init__(self) -> None:
        self.seen: dict[str, set[tuple[str, ...]]] = {}
        self.wrong: list[str] = []
        self.lobs = 0
        self.calls = 0

    async def note(self, sql: str, values: Sequence[Any]) -> None:
        """Keep a statement.

        Raises:
            AssertionError: The statement is none of Oracle's.
        """
        types = tuple(type(value).__name__ for value in values)
        if sql in self.seen:
            self.seen[sql].add(types)
            return
        self.seen[sql] = {types}
        # In a thread, as it takes long enough for a loop in its debugging mode to say so.
        found = await asyncio.to_thread(complaints, sql)
        self.wrong += found
        if found:
            raise AssertionError("\n".join(found))

    def forget(self, sql: str) -> None:
        """Take back a statement that was wrong on purpose."""
        del self.seen[sql]
        said = complaints(sql)
        self.wrong = [line for line in self.wrong if line not in said]


JOURNAL = Journal()
"""The one of this process."""
