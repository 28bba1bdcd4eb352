"""Faults that a test orders: which requests, how often, and what happens to them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

Kind = Literal["error", "drop", "drop_after", "cut", "delay"]


@dataclass
class Fault:
    """One order.

    Attributes:
        kind: ``error`` answers with `status` and `code`; ``drop`` closes the connection before anything is done,
            ``drop_after`` when it is done, without an answer; ``cut`` sends half of the answer's body; ``delay`` waits.
        method: Of which requests, or empty for all.
        contains: What their path and query have in them.
        skip: How many such requests pass before.
        times: How many it happens to; below 0 to all.
    """

    kind: Kind
    method: str = ""
    contains: str = ""
    skip: int = 0
    times: int = 1
    status: int = 500
    code: str = "InternalServerError"
    seconds: float = 0.0
    headers: dict[str, str] | None = None


class Faults:
    def __init__(self) -> None:
        self._orders: list[Fault] = []
        self._lock = threading.Lock()

    def order(self, fault: Fault) -> None:
        with self._lock:
            self._orders.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._orders.clear()

    def next(self, method: str, target: str) -> Fault | None:
        """What is to happen to a request, or None."""
        with self._lock:
            for fault in self._orders:
                if fault.method not in ("", method) or fault.contains not in target or fault.times == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None
