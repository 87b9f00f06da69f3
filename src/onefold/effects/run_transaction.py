"""`run.transaction()`: the handler's rows and the job's completion, in one commit."""

from __future__ import annotations

from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from onefold.databases.handler_transaction import abegin, begin
from onefold.errors import DatabaseError, DatabaseUnavailable, LeaseLost, UsageError
from onefold.model.outcome import Defer
from onefold.operations import deliveries
from onefold.runtime import Transact

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from types import TracebackType

    from onefold.app.context import Context
    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.model.delivery import Delivery, Ended
    from onefold.operations.statement import Operation, Sql
    from onefold.runtime import Procedure


SOON: Final = timedelta(seconds=1)


def defer_unused(begun: HandlerTransaction | None, error: Exception) -> None:
    """Use no attempt if our database was lost before the handler's first statement."""
    unused = isinstance(error, DatabaseUnavailable) if begun is None else begun.died_unused(error)
    if unused:
        raise Defer(SOON) from error


class Completing(Protocol):
    """The run that a transaction completes."""

    def begin_completing(self) -> str | None:
        """Called before the last statement; returns the text of the result."""
        ...

    def end_completing(self, *, completed: bool) -> None:
        """Called after the commit, or after its failure."""
        ...

    def lose(self) -> None:
        """Note that the job is lost."""
        ...

    def check(self) -> None:
        """Raise if the run must not continue."""
        ...


class RunTransaction:
    """For `with` and for `async with`, as the handler is. Commits at the end.

    Returns a connection. The job's completion is the last statement before the commit. If another
    delivery has the job by then, it raises `LeaseLost`, and everything is rolled back.
    """

    def __init__(
        self, context: Context, delivery: Delivery, run: Completing, target: object
    ) -> None:
        """Nothing is begun yet."""
        self._context = context
        self._delivery = delivery
        self._run = run
        self._target = target
        self._blocking: AbstractContextManager[Any] | None = None
        self._awaited: AbstractAsyncContextManager[Any] | None = None

    def __enter__(self) -> Any:
        """Begin; returns the connection."""
        self._refuse_used()
        self._blocking = self._transact()
        return self._blocking.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the job and commit, or roll back."""
        assert self._blocking is not None
        self._blocking.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        """Begin; returns the connection."""
        self._refuse_used()
        self._awaited = self._atransact()
        return await self._awaited.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the job and commit, or roll back."""
        assert self._awaited is not None
        await self._awaited.__aexit__(kind, error, trace)

    def _refuse_used(self) -> None:
        self._run.check()
        if self._blocking is not None or self._awaited is not None:
            raise UsageError("This transaction() was used before. Make a new one for each use.")

    @contextmanager
    def _transact(self) -> Generator[Any]:
        context, said, completed = self._context, False, False
        begun: HandlerTransaction | None = None
        try:
            with begin(self._target, context.database) as begun:
                yield begun.connection
                result = self._run.begin_completing()
                begun.execute(lambda sql: self._finish(sql, result))
                said = True
            completed = True
        except Exception as error:
            completed = said and context.runtime.run(self._is_completed())
            if not completed:
                defer_unused(begun, error)
                raise
        finally:
            self._run.end_completing(completed=completed)

    @asynccontextmanager
    async def _atransact(self) -> AsyncGenerator[Any]:
        context, said, completed = self._context, False, False
        begun: HandlerTransaction | None = None
        try:
            async with await abegin(self._target, context.database) as begun:
                yield begun.connection
                result = self._run.begin_completing()
                await begun.aexecute(lambda sql: self._finish(sql, result))
                said = True
            completed = True
        except Exception as error:
            completed = said and await context.runtime.arun(self._is_completed())
            if not completed:
                defer_unused(begun, error)
                raise
        finally:
            self._run.end_completing(completed=completed)

    def _is_completed(self) -> Procedure[bool]:
        """Whether a commit that failed has succeeded: perhaps only its response was lost."""
        try:
            answer: bool = yield Transact(
                lambda sql: deliveries.is_completed(sql, self._delivery), write=False
            )
        except DatabaseError:
            return False
        return answer

    def _finish(self, sql: Sql, result: str | None) -> Operation[None]:
        finish = deliveries.Finish(self._delivery, result)
        ended: list[Ended] = yield from deliveries.finish(sql, [finish])
        if ended[0].status != "accepted":
            # Also if this delivery has finished the job before: then its rows are stored already.
            self._run.lose()
            raise LeaseLost(f"job {self._delivery.id}", fence=self._delivery.fence)
