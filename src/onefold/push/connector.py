"""Connections for pushes: a request is written only to a connection that is still open."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from onefold.errors.extra import Needs

with Needs("onefold[server]"):
    import aiohttp


if TYPE_CHECKING:
    from aiohttp.connector import Connection

_used: Final[WeakSet[object]] = WeakSet()
"""Connections that have carried a request."""


class Connector(aiohttp.TCPConnector):
    """The same, without connections that their server has closed while they were idle.

    A request that was written may have been read, so it is never sent again. A connection is
    therefore checked before the first byte is written to it. aiohttp discards those whose end the
    event loop has seen; this also asks the kernel, which may know of an end that the loop has not
    seen yet.
    """

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> Connection:
        """A connection from the pool that is still open, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol not in _used:
                _used.add(connection.protocol)
                return connection
            if not _has_ended(connection):
                return connection
            connection.close()


def _has_ended(connection: Connection) -> bool:
    """Whether anything came in while it was idle: its end, or bytes that answer no request."""
    transport = connection.transport
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN | select.POLLPRI)
    return bool(poll.poll(0))
