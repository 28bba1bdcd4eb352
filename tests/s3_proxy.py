"""An HTTP proxy before an S3 server that counts requests and fails on purpose; one request a connection.

async with S3Proxy(server.endpoint) as proxy:
    ...                                          # the store's endpoint is proxy.endpoint
    proxy.rule = lambda request: Fault(503, "SlowDown") if request.method == "PUT" else None
    proxy.rule = lambda request: Fault(None, when="after")   # the server does it, the client gets a reset
    assert proxy.count("GET") == 2
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass
class Request:
    """One request as the client sent it; a rule may change it before it goes on."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes = field(repr=False)
    answered: int = 0  # the status that the client got, 0 for none

    @property
    def key(self) -> str:
        """What follows the bucket's name; empty for listings and multi-deletes."""
        return unquote(urlsplit(self.target).path).lstrip("/").partition("/")[2]

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def kind(self) -> str:
        """LIST and MULTIDELETE, or the method."""
        if self.method == "GET" and not self.key:
            return "LIST"
        return "MULTIDELETE" if self.method == "POST" and "delete" in self.query else self.method


@dataclass
class Fault:
    """What happens in place of the answer.

    Attributes:
        status: The status to answer with; None resets the connection; 0 answers as the server does, after `delay`.
        code: The error's code, as S3 names it.
        when: Whether the server has done what it was asked for by then.
        delay: Seconds to wait before it happens.
        body: The answer's body, if it is not an error's.
        change: Makes another body of the server's own; with a status of 0.
        cut: How many bytes of the server's body arrive before the connection ends, whatever its length was said to be;
            with a status of 0.
    """

    status: int | None
    code: str = "InternalError"
    when: Literal["before", "after"] = "before"
    delay: float = 0.0
    body: bytes | None = None
    change: Callable[[bytes], bytes] | None = None
    cut: int | None = None


Rule = Callable[[Request], Fault | None]


class S3Proxy:
    """The proxy; `requests` are all that came in, in their order. With `tls`, it speaks TLS to clients."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(endpoint)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._tls = tls
        self.endpoint = ""
        self.rule: Rule = lambda _: None
        self.requests: list[Request] = []
        self.faults = 0  # how many answers were not the server's own
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        scheme = "https" if self._tls else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    def count(self, *kinds: str) -> int:
        """How many requests of these kinds came in; of all without one."""
        return sum(not kinds or request.kind in kinds for request in self.requests)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            request = await _read(reader)
            if request is not None:
                self.requests.append(request)
                await self._serve(request, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            _reset(writer)  # the client or the server has gone, or the test is over
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> None:
        fault = self.rule(request)
        if fault is None:
            answer = await self._forward(request)
        else:
            self.faults += 1
            answer = await self._forward(request) if fault.status == 0 or fault.when == "after" else b""
            await asyncio.sleep(fault.delay)
            if fault.status is None:
                _reset(writer)
                return
            if fault.change is not None:
                answer = _with_body(answer, fault.change)
            if fault.cut is not None:
                answer = answer[: answer.index(b"\r\n\r\n") + 4 + fault.cut]
            if fault.status:
                text = fault.body
                if text is None:
                    text = f"<Error><Code>{fault.code}</Code><Message>on purpose</Message></Error>".encode()
                head = f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: application/xml\r\nConnection: close\r\n"
                answer = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
        request.answered = int(answer.split(b" ", 2)[1])
        writer.write(answer)
        await writer.drain()

    async def _forward(self, request: Request) -> bytes:
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            # The host's name is signed, so it stays the proxy's.
            headers = {**request.headers, "connection": "close"}
            lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + request.body)
            await writer.drain()
            answer = await reader.read()
            if not answer:
                raise ConnectionResetError("the server gave no answer")
            return answer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def _with_body(answer: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """An answer with another body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith((b"content-length:", b"transfer-encoding:"))]
    if len(kept) < len(lines) and b"transfer-encoding: chunked" in head.lower():
        body = _joined(body)
    changed = change(body)
    return b"\r\n".join([*kept, b"Content-Length: %d" % len(changed), b"", changed])


def _joined(chunks: bytes) -> bytes:
    """A body that came in chunks."""
    found = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        found, chunks = found + rest[:length], rest[length + 2 :] if length else b""
    return found


class LateListings:
    """A rule for a service whose listings show an object only after so many other listings.

    Args:
        by: After how many.
    """

    def __init__(self, by: int) -> None:
        self._by = by
        self._listings = 0
        self._young: dict[str, int] = {}
        self.hidden = 0  # how many objects were not shown

    def __call__(self, request: Request) -> Fault | None:
        if request.method == "PUT" and request.key:
            self._young.setdefault(request.key, self._listings)
        if request.kind != "LIST":
            return None
        self._listings += 1
        return Fault(0, change=self._without_the_young)

    def _without_the_young(self, body: bytes) -> bytes:
        def shown(match: re.Match[bytes]) -> bytes:
            key = unquote(html.unescape(match[1].decode()))
            if self._listings - self._young.get(key, -self._by) < self._by:
                self.hidden += 1
                return b""
            return match[0]

        return re.sub(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", shown, body, flags=re.DOTALL)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST, without what is still to be sent."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
