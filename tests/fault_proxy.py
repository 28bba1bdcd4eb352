"""A TCP proxy that fails on purpose, between a client and a real server. Without TLS, for any protocol.

async with FaultProxy("127.0.0.1", server.port) as proxy:
    ...                                  # connect to 127.0.0.1:{proxy.port}
    await proxy.set("blackhole")         # refuse: no listener; blackhole: silence; reset: RST, to open ones too
    proxy.cut(b"COMMIT", "after")        # the server does it, the client loses its connection without an answer
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from typing import Literal, Self

Mode = Literal["pass", "refuse", "blackhole", "reset"]
When = Literal["before", "after"]


@dataclass
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    sent: bytes = b""  # the end of what the client sent, in which a pattern may have begun
    cutting: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class FaultProxy:
    def __init__(self, host: str, port: int) -> None:
        self.upstream = (host, port)
        self.port = 0  # the proxy's own, on 127.0.0.1, the same from start to end
        self.mode: Mode = "pass"
        self.delay = 0.0  # seconds that each chunk waits, in both directions
        self.connections = 0  # how many were made
        self.cuts = 0  # how many `cut` has cut
        self._cut: tuple[bytes, When, int] | None = None
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.set("refuse")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def set(self, mode: Mode) -> None:
        """Changes what happens to connections, new ones and open ones; `refuse` and `reset` end the open ones."""
        self.mode = mode
        if mode in ("refuse", "reset"):
            for writer in self._writers:
                _reset(writer)
        if mode == "refuse" and self._listener is not None:
            self._listener.close()
            self._listener = None
        elif mode != "refuse" and self._listener is None:
            await self._listen()

    def cut(self, pattern: bytes, when: When, *, skip: int = 0) -> None:
        """Resets, once, the connection on which a client sends `pattern`, after letting `skip` of them through.

        `before`: the server never sees it. `after`: the server has answered, and the client never sees the answer.
        """
        self._cut = (pattern, when, skip)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(client)
        self.connections += 1
        ends = [client]
        try:
            if self.mode == "reset":
                _reset(client)
                return
            server_reader, server = await asyncio.open_connection(*self.upstream)
            self._writers.add(server)
            ends.append(server)
            connection = _Connection(client, server)
            pumps = [
                asyncio.ensure_future(self._requests(reader, connection)),
                asyncio.ensure_future(self._answers(server_reader, connection)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            _reset(client)  # the server is not there
        finally:
            for end in ends:
                self._writers.discard(end)
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.delay)
            if self.mode == "blackhole":
                continue
            when = self._hit(connection, data)
            if when != "before":
                connection.cutting = when is not None
                connection.server.write(data)
                await connection.server.drain()
            if when is not None:
                if when == "after":
                    await connection.answered.wait()
                    await asyncio.sleep(0.02)  # an answer may come in pieces
                _reset(connection.client)
                return

    def _hit(self, connection: _Connection, data: bytes) -> When | None:
        if self._cut is None:
            return None
        pattern, when, skip = self._cut
        seen = connection.sent + data
        found = seen.count(pattern)
        connection.sent = seen[max(0, len(seen) - len(pattern) + 1) :]
        if found <= skip:
            self._cut = (pattern, when, skip - found)
            return None
        self._cut = None
        self.cuts += 1
        return when

    async def _answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.delay)
            if connection.cutting:
                connection.answered.set()
            elif self.mode != "blackhole":
                connection.client.write(data)
                await connection.client.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST, without what is still to be sent."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
