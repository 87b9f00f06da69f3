"""`Context`: the state that the parts of one Onefold share."""

from __future__ import annotations

import time
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING

from onefold.app.duplicate_log import DuplicateLog
from onefold.errors import UsageError
from onefold.hooks import Hooks
from onefold.jobs.defaults import Defaults
from onefold.runtime import Calls, Runtime
from onefold.worker.shards import Shards
from onefold.worker.statistics import Counts

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from onefold.app.onefold import Within
    from onefold.databases import Clock, Database, Store
    from onefold.databases.borrowed import Borrowed


_changing = Lock()


class Context:
    """The runtime, the listeners and the defaults of an Onefold, for one tenant.

    A tenant, and a borrowed connection, have a context of their own; hooks, defaults, counts and
    the log of duplicates are the same objects in all of them.
    """

    def __init__(self, store: Store, opened: Callable[..., Database]) -> None:
        """Without a tenant, on our own database. `opened` opens the database of a URL."""
        self._opened = opened
        self._stores: list[Store] = [store]
        self.runtime: Runtime = Runtime(store)
        self.tenant: str = ""
        self.borrowed: Borrowed | None = None
        """The caller's connection; None on our own database."""
        self.shards: Shards = Shards(self.runtime)
        self.hooks: Hooks = Hooks()
        self.defaults: Defaults = Defaults()
        self.duplicate_log: DuplicateLog = DuplicateLog(self.runtime, self.now)
        self.counts: Counts = Counts(self.shards, self.now)

    @property
    def store(self) -> Store:
        """That of the runtime, which all tenants share: `Onefold.override` replaces it there."""
        return self.runtime.store

    @property
    def database(self) -> Database:
        """Our own database, also if the connection is the caller's."""
        return self.store.database

    def now(self) -> int:
        """The time of this process in microseconds, for values that only this machine compares."""
        clock = self.database.clock
        return time.time_ns() // 1000 if clock is None else clock()

    def for_tenant(self, tenant: str) -> Self:
        """The same context for one tenant."""
        other = copy(self)
        other.tenant = tenant
        return other

    def on(self, borrowed: Borrowed | None) -> Self:
        """The same context on a caller's connection, inside of the caller's transaction."""
        other = copy(self)
        other.borrowed = borrowed
        other.runtime = Runtime(self.database if borrowed is None else borrowed)
        return other

    def own(self) -> Self:
        """The same context on our own connections."""
        return self if self.borrowed is None else self.on(None)

    def within(self, borrowed: Borrowed) -> Within:
        """The calls that join an open transaction of this connection."""
        from onefold.app.onefold import Within

        return Within(self.on(borrowed))

    def close(self) -> None:
        """Close the database, after the notes and counts that wait are written."""
        self.duplicate_log.flush()
        self.runtime.run(self.counts.write())
        self.database.close()

    async def aclose(self) -> None:
        """`close`, awaited."""
        await self.duplicate_log.aflush()
        await self.runtime.arun(self.counts.write())
        await self.database.aclose()

    def override(self, url: str, clock: Clock) -> Override:
        """A block in which another database is used, by all tenants."""
        return Override(self, self._stores, self._opened(url, clock=clock))


class Noun(Calls):
    """Calls about one thing, such as queues, for one tenant."""

    def __init__(self, context: Context) -> None:
        """With the runtime of `context`."""
        self._context = context
        self._runtime = context.runtime


class Override:
    """A block in which an Onefold uses another database."""

    def __init__(self, context: Context, stores: list[Store], database: Database) -> None:
        """`stores` has the first store, and the databases of the blocks that are open."""
        self._context = context
        self._stores = stores
        self._database = database
        self._was_entered = False

    def __enter__(self) -> None:
        """Use the other database."""
        if self._was_entered:
            raise UsageError("This block was entered already. Call override again for another one.")
        self._was_entered = True
        with _changing:
            self._stores.append(self._database)
            self._context.runtime.store = self._database

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the other database, and use the one before again."""
        try:
            self._context.duplicate_log.flush()
            self._database.close()
        finally:
            self._end()

    async def __aenter__(self) -> None:
        """Use the other database."""
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the other database, and use the one before again."""
        try:
            await self._context.duplicate_log.aflush()
            await self._database.aclose()
        finally:
            self._end()

    def _end(self) -> None:
        # Blocks of threads and tasks end in any order: the first store is for none of them.
        with _changing:
            self._stores.remove(self._database)
            self._context.runtime.store = self._stores[-1]
