"""What all requests to a server share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.server.deadlines import Deadlines
from onefold.server.feed import Feed
from onefold.server.queues import QueueCache
from onefold.server.unread import Unread

if TYPE_CHECKING:
    from onefold.app import Onefold, Tenant
    from onefold.calls.procedure import Conductor
    from onefold.push.courier import Courier
    from onefold.server.settings import ServerSettings


class Server:
    """One process's part of the server."""

    def __init__(self, onefold: Onefold, settings: ServerSettings) -> None:
        """Nothing runs yet."""
        self.onefold: Onefold = onefold
        self.settings: ServerSettings = settings
        self.queues: QueueCache = QueueCache(onefold)
        self.deadlines: Deadlines = Deadlines()
        self.unread: Unread = Unread(self.deadlines, settings.request_timeout.total_seconds())
        """What clients of HTTP/2 are still to read."""
        self.feed: Feed = Feed(onefold.hooks)
        """What happens here, for those who listen."""
        self.courier: Courier | None = None
        """Who pushes jobs here; None before the start, or where others do."""
        self.draining: bool = False
        """True once no new work is wanted."""
        self._tenants: dict[str, Tenant] = {"": onefold}

    @property
    def conductor(self) -> Conductor:
        """For procedures of our own."""
        return self.onefold._conductor  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    def drain(self) -> None:
        """No new work; streams end."""
        self.draining = True
        self.feed.close()

    def calls_of(self, tenant: str) -> Tenant:
        """The calls of one tenant; made once."""
        calls = self._tenants.get(tenant)
        if calls is None:
            calls = self._tenants[tenant] = self.onefold.tenant(tenant)
        return calls

    def changed(self, tenant: str, queue: str) -> None:
        """A queue has other settings now: who pushes is told at once."""
        self.queues.forget(tenant, queue)
        if self.courier is not None:
            self.courier.changed()
