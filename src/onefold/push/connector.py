"""Tells whether a request went by a connection that had served others before.

aiohttp's traces would tell it, too, and cost as much as the rest of a push.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import aiohttp

if TYPE_CHECKING:
    from aiohttp.connector import Connection

was_used: ContextVar[bool] = ContextVar("onefold_connection_was_used", default=False)
"""Of the last request of this task; whoever sends one says False first."""

_used: Final[WeakSet[object]] = WeakSet()


class Connector(aiohttp.TCPConnector):
    """The same, with a memory."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> Connection:
        """A connection from the pool, or a new one."""
        connection = await super().connect(req, traces, timeout)
        protocol = connection.protocol
        was_used.set(protocol in _used)
        _used.add(protocol)
        return connection
