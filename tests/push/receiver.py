"""An endpoint that answers as it is told to: well, badly, slowly, or with what is no answer."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

import msgspec


class Received(NamedTuple):
    """A request that came in."""

    path: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes
    connection: int
    """Which of the connections it came by, in the order in which they were made."""

    @property
    def envelope(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])


Manner = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]
Script = Callable[[Received], Manner]


def says(status: int, *headers: tuple[str, str], body: bytes = b"") -> Manner:
    async def manner(_: Received, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {text}" for name, text in headers]
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + body)
        await writer.drain()

    return manner


def sends(raw: bytes, *, then: str = "close") -> Manner:
    """Whatever it is."""

    async def manner(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        if then == "close":
            writer.close()
        else:
            await asyncio.Event().wait()

    return manner


def goes_on(piece: bytes, *, after: bytes = b"HTTP/1.1 200 OK\r\n") -> Manner:
    """Without an end."""

    async def manner(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(after)
        while True:
            writer.write(piece)
            await writer.drain()

    return manner


async def resets(_: Received, writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hangs(_: Received, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


class Receiver:
    """A server on loopback."""

    def __init__(
        self, *manners: Manner, by: Script | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """One manner after the other, the last for ever; or whatever `by` says of a request."""
        self._tls = tls
        self.received: list[Received] = []
        self.connections = 0
        self._manners = list(manners or [says(200)])
        self._script: Script = self._next if by is None else by
        self._server: asyncio.Server
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/hook"

    def _next(self, _: Received) -> Manner:
        return self._manners.pop(0) if len(self._manners) > 1 else self._manners[0]

    def told(self, name: str) -> list[object]:
        """A member of every envelope that came in."""
        return [one.envelope[name] for one in self.received]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                received = await _request(reader, number)
                self.received.append(received)
                await self._script(received)(received, writer)
        writer.transport.abort()
        self._tasks.discard(task)


async def _request(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): text for name, text in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(head[0].split(" ")[1], headers, body, connection)
