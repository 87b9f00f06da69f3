"""Jobs that are taken, run, and come back: as a worker would, without one."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

import pytest

from onefold import Enqueued, Onefold, Run
from tests.fixtures.colours import Clock, Colour, Coloured, Entered, Store

LEASE = timedelta(seconds=60)


class ColouredRun(Coloured):
    """A run whose calls are awaited in both colours."""

    target: Run

    def using(self, **options: Any) -> Coloured:
        return Coloured(self.target.using(**options), self.colour)

    def transaction(self, target: object = None) -> Any:
        return Entered(self.target.transaction(target), self.colour)

    def key(self, *parts: str) -> str:
        return self.target.key(*parts)


class Deliveries:
    """The deliveries of one job."""

    def __init__(self, onefold: Onefold, clock: Clock, colour: Colour) -> None:
        self.onefold = onefold
        self.clock = clock
        self.colour: Colour = colour

    def enqueue(self, **options: Any) -> Enqueued:
        return self.onefold.enqueue("work", {}, **options)

    def take(self, onefold: Onefold | None = None) -> ColouredRun:
        """The next delivery."""
        where = self.onefold if onefold is None else onefold
        (job,) = where.deliveries.take(worker="worker", lease=LEASE)
        run = Run(where.context, job, lease=LEASE, worker="worker")
        return ColouredRun(run, self.colour)

    def first(self, **options: Any) -> ColouredRun:
        self.enqueue(**options)
        return self.take()

    def again(self, run: ColouredRun) -> ColouredRun:
        """The run fails, and the job comes back."""
        self.onefold.deliveries.retry([run.target.job], after=timedelta(0))
        return self.take()

    def vanish(self) -> ColouredRun:
        """Whoever has the job is not heard of any more, and it is given to somebody else."""
        self.clock.advance(LEASE * 2)
        self.onefold.deliveries.rescue()
        self.clock.advance(timedelta(days=1))
        return self.take()


class Interrupted(BaseException):
    """As a cancelled task, or ctrl-C: nobody can say how far it came."""


async def interrupt(step: Any, effect: "Effect") -> None:
    """Do a step whose process dies before it can say so."""

    def dies(value: int) -> None:
        effect(value)
        raise Interrupted

    with pytest.raises(Interrupted):
        await step("charge", dies, 7)


async def execute(connection: Any, text: Any) -> None:
    """Run a statement on a connection of either colour."""
    answer = connection.execute(text)
    if hasattr(answer, "__await__"):
        await answer


def in_colour(function: Callable[..., Any], colour: Colour) -> Callable[..., Any]:
    """A coroutine function, or a plain one of it: there it has nothing to wait for."""
    if colour == "async":
        return function

    @wraps(function)
    def plain(*args: Any, **options: Any) -> Any:
        coroutine = function(*args, **options)
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("it waits")

    return plain


class Effect:
    """Something outside that is done, and counted."""

    def __init__(self, *, fails: int = 0, error: Callable[[], Exception] | None = None) -> None:
        self.calls: list[Any] = []
        self._fails = fails
        self._error = error or (lambda: ValueError("no luck"))

    def __call__(self, value: Any = None) -> Any:
        self.calls.append(value)
        if len(self.calls) <= self._fails:
            raise self._error()
        return {"done": value}

    @property
    def count(self) -> int:
        return len(self.calls)


@pytest.fixture
def deliveries(store: Store, clock: Clock, colour: Colour) -> Deliveries:
    return Deliveries(store.open(clock=clock), clock, colour)
