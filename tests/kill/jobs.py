"""Handlers of every sort, each with an effect that is counted afterwards.

`pay` writes a row in the transaction that completes its job: exactly once. `charge` has steps,
whose bodies write lines and whose results are stored: once each. `ping` writes a line: at least
once. `order` has both a step and a transaction. Each is there as a function and as a coroutine.
"""

import os
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from onefold import Fixed, NewJob, Onefold, Retention, Run
from tests.effects.deliveries import ColouredRun, execute, in_colour
from tests.fixtures.colours import Colour
from tests.fixtures.place import Place
from tests.kill.ledger import Ledger

KINDS = ["pay", "apay", "charge", "acharge", "order", "aorder", "ping", "aping"]
EXACT = {"pay", "apay", "order", "aorder"}
"""Those whose row is written in the transaction that completes the job."""
STEPS = {
    "charge": ["charge", "mail"], "acharge": ["charge", "mail"], "order": ["charge"],
    "aorder": ["charge"],
}  # fmt: skip
"""The steps of each kind that has any."""
AT_LEAST_ONCE = {"ping", "aping"}
AT_ONCE = Fixed(timedelta(0))
KEPT = Retention(completed=timedelta(days=2))


def die() -> None:
    """Now, and without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def enqueue(onefold: Onefold, count: int, *, queue: str = "default") -> list[str]:
    """So many jobs, of all kinds in turn."""
    return [answer.id for answer in onefold.enqueue_many([_new(n, queue) for n in range(count)])]


def _new(number: int, queue: str) -> NewJob:
    kind = KINDS[number % len(KINDS)]
    return NewJob(
        kind,
        {},
        queue=queue,
        max_attempts=100,
        # Some go by the defaults, and are waited for.
        backoff=None if kind in AT_LEAST_ONCE else AT_ONCE,
        # Those that are kept for a time of their own are finished in several round trips.
        retention=KEPT if kind in STEPS else None,
    )


class Fate(Protocol):
    """What may meet a handler on its way."""

    def reach(self, moment: str, run: Run) -> bool:
        """It has come this far, and may have to die; True where it is to wait here."""
        ...

    def wait(self) -> None: ...

    async def await_(self) -> None: ...


class Scene(NamedTuple):
    """Where handlers write, and what they meet."""

    place: Place
    ledger: Ledger
    fate: Fate

    def reach(self, moment: str, run: Run) -> None:
        """A function has come this far."""
        if self.fate.reach(moment, run):
            self.note("waiting", run)
            self.fate.wait()

    async def areach(self, moment: str, run: ColouredRun) -> None:
        """A function or a coroutine has come this far."""
        if run.colour == "sync":
            self.reach(moment, run.target)
        elif self.fate.reach(moment, run.target):
            self.note("waiting", run.target)
            await self.fate.await_()

    @contextmanager
    def told(self, run: Run) -> Generator[None]:
        """Note what is raised to a handler."""
        try:
            yield
        except Exception as error:
            self.note("raised", run, type(error).__name__)
            raise

    def note(self, word: str, run: Run, value: object = "-") -> None:
        self.ledger.note(word, run.id, run.fence, value)

    def row(self, run: Run) -> str:
        """The statement of an effect: who did it, in which delivery."""
        table = self.place.effects
        return f"insert into {table} (job_id, fence) values ('{run.id}', {run.fence})"

    def step(self, name: str, run: Run) -> Callable[[], str]:
        """The body of a step: it is seen outside at once, and gives something new every time."""

        def body() -> str:
            value = uuid4().hex
            self.note(name, run, value)
            self.reach("inside", run)
            return value

        return body


def declare(onefold: Onefold, scene: Scene) -> None:
    """All handlers: each is written once, and is there as a function and as a coroutine."""
    colours: list[Colour] = ["sync", "async"]
    for colour in colours:
        _declare(onefold, scene, colour)


def _declare(onefold: Onefold, scene: Scene, colour: Colour) -> None:
    def job(handler: Callable[[ColouredRun], Coroutine[Any, Any, None]]) -> None:
        async def work(run: Run) -> None:
            coloured = ColouredRun(run, colour)
            with scene.told(run):
                await scene.areach("began", coloured)
                await handler(coloured)
                await scene.areach("effected", coloured)

        name = handler.__name__
        onefold.job(kind=name if colour == "sync" else f"a{name}")(in_colour(work, colour))

    @job
    async def pay(run: ColouredRun) -> None:
        async with run.transaction() as tx:
            await execute(tx, scene.row(run.target))
            await scene.areach("inside", run)

    @job
    async def charge(run: ColouredRun) -> None:
        for name in STEPS["charge"]:
            value = await run.step(name, scene.step(name, run.target))
            scene.note(f"saw-{name}", run.target, value)

    @job
    async def order(run: ColouredRun) -> None:
        value = await run.step("charge", scene.step("charge", run.target))
        scene.note("saw-charge", run.target, value)
        async with run.transaction() as tx:
            await execute(tx, scene.row(run.target))

    @job
    async def ping(run: ColouredRun) -> None:
        scene.note("ping", run.target)
        await scene.areach("inside", run)
