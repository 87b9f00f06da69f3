"""The call that listens, in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.client.events import AsyncRemoteEvents, RemoteEvents
from onefold.client.flows.events import ear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.client.async_driver import AsyncDriver
    from onefold.client.connection import Connection
    from onefold.client.sync_driver import SyncDriver


class EventCalls:
    """What happens on a server, as it happens."""

    _connection: Connection
    _driver: SyncDriver

    def events(
        self, *, queue: str | None = None, event: Sequence[str] = (), after: str | None = None
    ) -> RemoteEvents:
        """What the server tells of your jobs and keys from now on: for `with`, and for `for`.

        A connection that ends is made again, and goes on where it was; where the server cannot tell
        what was missed, the event `gap` says so. `after` is the `id` of an event, or `last_id`.
        """
        wanted = ear(queue=queue, event=event, after=after)
        return RemoteEvents(self._driver, self._connection, wanted)


class AsyncEventCalls:
    """`EventCalls`, awaited."""

    _connection: Connection
    _driver: AsyncDriver

    def events(
        self, *, queue: str | None = None, event: Sequence[str] = (), after: str | None = None
    ) -> AsyncRemoteEvents:
        """What the server tells of your jobs and keys from now on: `async with`, `async for`.

        A connection that ends is made again, and goes on where it was; where the server cannot tell
        what was missed, the event `gap` says so. `after` is the `id` of an event, or `last_id`.
        """
        wanted = ear(queue=queue, event=event, after=after)
        return AsyncRemoteEvents(self._driver, self._connection, wanted)
