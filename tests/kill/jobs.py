"""Handlers of every sort, each with an effect that is counted afterwards.

`pay` writes a row in the transaction that completes its job: exactly once. `charge` has steps,
whose bodies write lines and whose results are stored: once each. `ping` writes a line: at least
once. `order` has both a step and a transaction. Each is there as a function and as a coroutine.
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import uuid4

from onefold import Fixed, NewJob, Onefold, Retention, Run
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

    async def areach(self, moment: str, run: Run) -> None:
        """A coroutine has come this far."""
        if self.fate.reach(moment, run):
            self.note("waiting", run)
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
    """All handlers."""
    _declare_functions(onefold, scene)
    _declare_coroutines(onefold, scene)


def _declare_functions(onefold: Onefold, scene: Scene) -> None:
    @onefold.job
    def pay(run: Run) -> None:
        with scene.told(run):
            scene.reach("began", run)
            with run.transaction() as tx:
                tx.execute(scene.row(run))
                scene.reach("inside", run)
            scene.reach("effected", run)

    @onefold.job
    def charge(run: Run) -> None:
        with scene.told(run):
            scene.reach("began", run)
            for name in STEPS["charge"]:
                scene.note(f"saw-{name}", run, run.step(name, scene.step(name, run)))
            scene.reach("effected", run)

    @onefold.job
    def order(run: Run) -> None:
        with scene.told(run):
            scene.reach("began", run)
            scene.note("saw-charge", run, run.step("charge", scene.step("charge", run)))
            with run.transaction() as tx:
                tx.execute(scene.row(run))
            scene.reach("effected", run)

    @onefold.job
    def ping(run: Run) -> None:
        with scene.told(run):
            scene.reach("began", run)
            scene.note("ping", run)
            scene.reach("inside", run)
            scene.reach("effected", run)


def _declare_coroutines(onefold: Onefold, scene: Scene) -> None:
    @onefold.job
    async def apay(run: Run) -> None:
        with scene.told(run):
            await scene.areach("began", run)
            async with run.transaction() as tx:
                await tx.execute(scene.row(run))
                await scene.areach("inside", run)
            await scene.areach("effected", run)

    @onefold.job
    async def acharge(run: Run) -> None:
        with scene.told(run):
            await scene.areach("began", run)
            for name in STEPS["acharge"]:
                scene.note(f"saw-{name}", run, await run.astep(name, scene.step(name, run)))
            await scene.areach("effected", run)

    @onefold.job
    async def aorder(run: Run) -> None:
        with scene.told(run):
            await scene.areach("began", run)
            scene.note("saw-charge", run, await run.astep("charge", scene.step("charge", run)))
            async with run.transaction() as tx:
                await tx.execute(scene.row(run))
            await scene.areach("effected", run)

    @onefold.job
    async def aping(run: Run) -> None:
        with scene.told(run):
            await scene.areach("began", run)
            scene.note("ping", run)
            await scene.areach("inside", run)
            await scene.areach("effected", run)
