"""HTTP/2 responses that their client does not read.

An HTTP/2 client decides how much of each response it receives, which may be nothing, and granian
keeps the rest in memory. So a large body is sent in pieces, each when there is room. Only a few
such bodies per connection are sent at once. A connection without room for longer than a request
may take is closed. Small bodies are limited by granian's limits of streams and connections.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from onefold.server.deadlines import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message, Scope, Send

    from onefold.server.deadlines import Deadlines

PIECE: Final = 4 * 1024
"""Bytes; granian accepts up to six pieces of a body before `send` waits."""
AT_ONCE: Final = 8
"""Large bodies at once per connection."""
_TASTE: Final = 16
_TASTES: Final = 5
"""Small pieces at the beginning: granian accepts four before the client has room."""


class NotRead(Exception):
    """The client has not read its response, and its connection was closed."""


class Unread:
    """The bodies that are being sent, in one process."""

    def __init__(self, deadlines: Deadlines, limit: float) -> None:
        """`limit` is how many seconds a client may have no room."""
        self._deadlines = deadlines
        self._limit = limit
        self._turns: WeakValueDictionary[Any, asyncio.Semaphore] = WeakValueDictionary()

    def paced(self, scope: Scope, send: Send) -> Send:
        """The `send` of an HTTP/2 request that paces large bodies. It raises `NotRead`."""

        async def paced(message: Message) -> None:
            if len(message.get("body", b"")) <= PIECE:
                await send(message)
            else:
                await self._send(scope, send, message)

        return paced

    async def _send(self, scope: Scope, send: Send, message: Message) -> None:
        whole, more = message["body"], message.get("more_body", False)
        async with self._turn(scope.get("client")):
            deadline = Deadline(self._deadlines, self._limit)
            try:
                with deadline:
                    # One by one: a list of all pieces would be a copy of the body for each request.
                    for piece, is_last in _pieces(whole):
                        await send({**message, "body": piece, "more_body": more or not is_last})
                        deadline.put_off(self._limit)
            except TimeoutError:
                await asyncio.to_thread(_close, scope.get("client"), scope.get("server"))
                raise NotRead from None

    def _turn(self, client: Any) -> asyncio.Semaphore:
        turn = self._turns.get(client)
        if turn is None:
            turn = self._turns[client] = asyncio.Semaphore(AT_ONCE)
        return turn


def _pieces(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each piece, and whether it is the last."""
    at = 0
    while at < len(body):
        end = at + (PIECE if at >= _TASTE * _TASTES else _TASTE)
        yield body[at:end], end >= len(body)
        at = end


def _close(client: Any, server: Any) -> None:
    """Close the connection between two addresses: ASGI has no message for it."""
    if client is None or server is None or server[1] is None:
        return
    with suppress(OSError):  # not every system has this folder
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 - names, not paths
            with suppress(OSError), _socket_of(int(name)) as found:
                if _is_between(found, client, server):
                    found.shutdown(socket.SHUT_RDWR)


def _socket_of(descriptor: int) -> socket.socket:
    """A copy of a socket, which may be closed.

    Files must not be copied: a process that closes any descriptor of a file loses all of its locks
    on that file, and SQLite uses such locks.
    """
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise OSError(errno.ENOTSOCK, "not a socket")
    return socket.socket(fileno=os.dup(descriptor))


def _is_between(found: socket.socket, client: Any, server: Any) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    here, there = found.getsockname(), found.getpeername()
    # granian returns the ports as text.
    if (here[1], there[1]) != (int(server[1]), int(client[1])):
        return False
    return ip_address(there[0].partition("%")[0]) == ip_address(client[0].partition("%")[0])
