"""A relay in front of a server: it counts requests, and answers some of them itself.

The doubles know no passwords, are never busy and never fail half-way; a real server is and does. So what those answers
look like is told to the relay, in the form in which OpenSearch gives them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit


class Request(NamedTuple):
    method: str
    path: str
    body: bytes
    user: str


class Answer(NamedTuple):
    """What the relay answers; without a status it hangs up."""

    status: int | None
    body: Any = None
    kind: str = "application/json"


Rule = Callable[[Request], Answer | None]


def error(status: int, kind: str, reason: str = "because") -> Answer:
    """An error as OpenSearch gives it."""
    cause = {"type": kind, "reason": reason}
    return Answer(status, {"error": {"root_cause": [cause], **cause}, "status": status})


class Relay:
    """Attributes:
    requests: All that came, in order.
    rule: Gives the answer to a request, or None to pass it on.
    after: The same, but the request is passed on all the same, and its answer is thrown away.
    """

    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 9200)
        self._tls = tls
        self.requests: list[Request] = []
        self.rule: Rule = lambda request: None
        self.after: Rule = lambda request: None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def count(self, part: str) -> int:
        """How many requests have this in their path."""
        return sum(part in request.path for request in self.requests)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = [writer]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            ends.append(up_writer)
            while True:
                head, body = await _message(reader)
                method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
                request = Request(method, path, body, _user(head))
                self.requests.append(request)
                answer = self.rule(request)
                if answer is None:
                    up_writer.write(head + body)
                    theirs = b"".join(await _message(up_reader))
                    answer = self.after(request)
                    if answer is None:
                        writer.write(theirs)
                        await writer.drain()
                        continue
                if answer.status is None:
                    break
                data = json.dumps(answer.body).encode() if answer.kind == "application/json" else answer.body
                line = (
                    f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.kind}\r\nContent-Length: {len(data)}\r\n\r\n"
                )
                writer.write(line.encode() + data)
                await writer.drain()
        for end in ends:
            end.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await end.wait_closed()


def _user(head: bytes) -> str:
    _, _, rest = head.lower().partition(b"authorization: basic ")
    at = len(head) - len(rest)
    return b64decode(head[at : at + rest.find(b"\r\n")]).decode() if rest else ""


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    fields = {line.split(b":")[0].lower(): line.split(b":", 1)[1].strip() for line in head.split(b"\r\n")[1:] if line}
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = b""
        while True:
            line = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(line, 16) + 2)
            body += line + chunk
            if int(line, 16) == 0:
                return head, body
    return head, await reader.readexactly(int(fields.get(b"content-length", b"0")))
