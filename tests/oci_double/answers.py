"""What the double answers: a status, headers and a body, or one of the service's errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Refused(Exception):  # noqa: N818  it is an answer
    """An error of the service: its status, code and message."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers

    def answer(self) -> Answer:
        # A 304 has no body.
        body = b"" if self.status == 304 else json.dumps({"code": self.code, "message": self.message}).encode()
        return Answer(self.status, {"content-type": "application/json", **self.headers}, body)


def as_json(value: Any, **headers: str) -> Answer:
    return Answer(200, {"content-type": "application/json", **headers}, json.dumps(value).encode())


NOT_AUTHENTICATED = "The required information to complete authentication was not provided or was incorrect."
