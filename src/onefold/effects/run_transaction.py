"""Transactions of a handler that record what was done: its rows and the record are one commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onefold.databases.handler_transaction import abegin, begin
from onefold.errors import DatabaseError, DatabaseUnavailable, LeaseLost, UsageError
from onefold.model.outcome import Defer
from onefold.operations import deliveries
from onefold.runtime import transact

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from types import TracebackType

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.effects.run import Run
    from onefold.model.delivery import Delivery, Ended
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Procedure


SOON: Final = timedelta(seconds=1)


def _defer_unused(begun: HandlerTransaction | None, error: Exception) -> None:
    """Use no attempt if our database was lost before the handler's first statement."""
    unused = isinstance(error, DatabaseUnavailable) if begun is None else begun.died_unused(error)
    if unused:
        raise Defer(SOON) from error


class RecordedTransaction(ABC):
    """A transaction of a handler whose last statement records what was done.

    For `with` and for `async with`, as the handler is. Returns a connection; commits at the end.
    """

    def __init__(self, context: Context, target: object) -> None:
        self._context = context
        self._target = target
        self._blocking: AbstractContextManager[Any] | None = None
        self._awaited: AbstractAsyncContextManager[Any] | None = None

    @abstractmethod
    def _record(self) -> Build[None]:
        """The last statement; called when the block has ended without an error."""

    @abstractmethod
    def _is_recorded(self, sql: Sql) -> Operation[bool]:
        """Whether a commit that failed has succeeded: perhaps only its response was lost."""

    @abstractmethod
    def _ended(self, *, committed: bool) -> None:
        """Called after the commit, or after a failure."""

    def __enter__(self) -> Any:
        self._refuse_used()
        self._blocking = self._transact()
        return self._blocking.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._blocking is not None
        self._blocking.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        self._refuse_used()
        self._awaited = self._atransact()
        return await self._awaited.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._awaited is not None
        await self._awaited.__aexit__(kind, error, trace)

    def _refuse_used(self) -> None:
        if self._blocking is not None or self._awaited is not None:
            raise UsageError("This transaction() was used before. Make a new one for each use.")

    @contextmanager
    def _transact(self) -> Generator[Any]:
        recorded, committed = False, False
        begun: HandlerTransaction | None = None
        try:
            with begin(self._target, self._context.database) as begun:
                yield begun.connection
                begun.execute(self._record())
                recorded = True
            committed = True
        except Exception as error:
            committed = recorded and self._context.runtime.run(self._has_committed())
            if not committed:
                _defer_unused(begun, error)
                raise
        finally:
            self._ended(committed=committed)

    @asynccontextmanager
    async def _atransact(self) -> AsyncGenerator[Any]:
        recorded, committed = False, False
        begun: HandlerTransaction | None = None
        try:
            async with await abegin(self._target, self._context.database) as begun:
                yield begun.connection
                await begun.aexecute(self._record())
                recorded = True
            committed = True
        except Exception as error:
            committed = recorded and await self._context.runtime.arun(self._has_committed())
            if not committed:
                _defer_unused(begun, error)
                raise
        finally:
            self._ended(committed=committed)

    def _has_committed(self) -> Procedure[bool]:
        try:
            found = yield from transact(self._is_recorded, write=False)
        except DatabaseError:
            return False
        return found


class RunTransaction(RecordedTransaction):
    """`run.transaction()`: its last statement completes the job.

    If another delivery has the job by then, it raises `LeaseLost`, and everything is rolled back.
    """

    def __init__(self, context: Context, delivery: Delivery, run: Run, target: object) -> None:
        super().__init__(context, target)
        self._delivery = delivery
        self._run = run

    def _refuse_used(self) -> None:
        self._run.check()
        super()._refuse_used()

    def _record(self) -> Build[None]:
        result = self._run.begin_completing()
        return lambda sql: self._finish(sql, result)

    def _is_recorded(self, sql: Sql) -> Operation[bool]:
        return deliveries.is_completed(sql, self._delivery)

    def _ended(self, *, committed: bool) -> None:
        self._run.end_completing(completed=committed)

    def _finish(self, sql: Sql, result: str | None) -> Operation[None]:
        finish = deliveries.Finish(self._delivery, result)
        ended: list[Ended] = yield from deliveries.finish(sql, [finish])
        if ended[0].status != "accepted":
            # Also if this delivery has finished the job before: then its rows are stored already.
            self._run.lose()
            raise LeaseLost(f"job {self._delivery.id}", fence=self._delivery.fence)
