"""The entry log: every checkpoint of any history loads equal, and what is stored grows with what is new."""

from __future__ import annotations

from hypothesis import settings
from log_histories import JoiningDriver, Log

from locus_store.core.backend import Backend


class JoinedLog(Log):
    driver_class = JoiningDriver


def machine(base: type[Log], examples: int, steps: int) -> type:
    case = base.TestCase
    made = type(f"Test{base.__name__}", (case,), {})
    made.settings = settings(max_examples=examples, stateful_step_count=steps)
    return made


TestHistories = machine(Log, 60, 40)
TestJoinedHistories = machine(JoinedLog, 25, 40)
