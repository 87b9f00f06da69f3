"""A caller's aiosqlite connection: a sqlite3 connection that lives in a thread of its own.

The whole operation goes to that thread at once. Statement by statement, another task that shares
the connection would come between them and be undone with them, and a cancelled call would leave a
part of itself to a caller who commits all the same.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from onefold.databases.borrowed import RunsAlone, refusals
from onefold.databases.borrowed.sqlite import BorrowedSqlite

if TYPE_CHECKING:
    from onefold.databases import Build, Clock, Database

T = TypeVar("T")


class BorrowedAiosqlite(RunsAlone):
    """A caller's aiosqlite connection."""

    def __init__(
        self, connection: Any, database: Database, clock: Clock, *, lent: object = None
    ) -> None:
        """`lent` is what the caller gave, where that is not the connection itself."""
        self._connection = connection
        self._lent = connection if lent is None else lent
        self.database = database
        self._clock = clock

    @property
    def connection(self) -> object:
        """What was lent."""
        return self._lent

    def check(self) -> None:
        """As for sqlite3, whose attributes can be read from any thread."""
        self._beneath().check()

    def failed(self) -> bool:
        """Closed, or as for sqlite3."""
        connection: Any = self._connection
        return connection._connection is None or self._beneath().failed()  # noqa: SLF001

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """An async connection can only be awaited."""
        del build, write
        raise refusals.awaited(self._lent)

    async def atransact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in one hop to the connection's thread."""
        beneath, context = self._beneath(), copy_context()
        # aiosqlite has public ways to send a statement there, and none to send a function.
        result: T = await self._connection._execute(  # noqa: SLF001
            lambda: context.run(lambda: beneath.transact(build, write=write))
        )
        return result

    def _beneath(self) -> BorrowedSqlite:
        try:
            beneath = self._connection._conn  # noqa: SLF001
        except ValueError as error:  # not yet awaited, or closed
            raise refusals.closed(self._lent) from error
        return BorrowedSqlite(beneath, self.database, self._clock, lent=self._lent)
