"""`Context`: the state that the parts of one Onefold share."""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING

from onefold.app.duplicate_log import DuplicateLog
from onefold.hooks import Hooks
from onefold.jobs.defaults import Defaults
from onefold.runtime import Runtime
from onefold.worker.shards import Shards

if TYPE_CHECKING:
    from typing import Self

    from onefold.app.onefold import Within
    from onefold.databases import Clock, Database, Store
    from onefold.databases.borrowed import Borrowed


class Context:
    """The runtime, the listeners and the defaults of an Onefold, for one tenant.

    A tenant, and a borrowed connection, have a context of their own; hooks, defaults and the log
    of duplicates are the same objects in all of them.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        """Without a tenant, on our own database."""
        self.store: Store = store
        self.runtime: Runtime = Runtime(store)
        self.clock: Clock = clock
        self.tenant: str = ""
        self.borrowed: Borrowed | None = None
        """The caller's connection; None on our own database."""
        self.shards: Shards = Shards(store)
        self.hooks: Hooks = Hooks()
        self.defaults: Defaults = Defaults()
        self.duplicate_log: DuplicateLog = DuplicateLog(store, self.now)

    @property
    def database(self) -> Database:
        """Our own database, also if the connection is the caller's."""
        return self.store.database

    def now(self) -> int:
        """The time of this process in microseconds, for values that only this machine compares."""
        return time.time_ns() // 1000 if self.clock is None else self.clock()

    def for_tenant(self, tenant: str) -> Self:
        """The same context for one tenant."""
        other = copy(self)
        other.tenant = tenant
        return other

    def on(self, borrowed: Borrowed | None) -> Self:
        """The same context on a caller's connection, inside of the caller's transaction."""
        other = copy(self)
        other.borrowed = borrowed
        other.store = self.database if borrowed is None else borrowed
        other.runtime = Runtime(other.store)
        return other

    def own(self) -> Self:
        """The same context on our own connections."""
        return self if self.borrowed is None else self.on(None)

    def within(self, borrowed: Borrowed) -> Within:
        """The calls that join an open transaction of this connection."""
        from onefold.app.onefold import Within

        return Within(self.on(borrowed))
