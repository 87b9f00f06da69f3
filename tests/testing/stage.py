"""An application with an Onefold on each database, and calls in both colours."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from onefold import Onefold
from onefold.testing import Clock, JobRunner
from tests.fixtures.colours import Colour
from tests.fixtures.place import Place


class Stage:
    """An Onefold with a clock that stands still, and a runner of one colour."""

    def __init__(self, onefold: Onefold, clock: Clock, colour: Colour) -> None:
        self.onefold = onefold
        self.clock = clock
        self.colour: Colour = colour
        self.runner = JobRunner(onefold, clock)

    def drain(self, **options: Any) -> Any:
        return self.call(self.runner.drain, self.runner.adrain, **options)

    def run_one(self, **options: Any) -> Any:
        return self.call(self.runner.run_one, self.runner.arun_one, **options)

    def run_until_idle(self, **options: Any) -> Any:
        return self.call(self.runner.run_until_idle, self.runner.arun_until_idle, **options)

    def call(
        self, sync: Callable[..., Any], twin: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Call a function, or await its twin in an event loop of its own."""
        if self.colour == "sync":
            return sync(*args, **options)
        return asyncio.run(twin(*args, **options))


@contextmanager
def staged(place: Place, colour: Colour) -> Generator[Stage]:
    clock = Clock()
    with place.open(clock=clock) as onefold:
        yield Stage(onefold, clock, colour)
