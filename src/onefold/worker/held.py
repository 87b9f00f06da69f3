"""A delivery that this worker holds: waiting for its turn, running, or not yet reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from onefold.model.delivery import Delivery

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable

    from onefold.effects.run import Run
    from onefold.model.job import Job
    from onefold.worker.handlers import Handler
    from onefold.worker.verdict import Verdict

Cause: TypeAlias = Literal["timeout", "lost", "shutdown"]
"""Why a handler is stopped by us."""


class Held:
    """One delivery and what has become of it here."""

    __slots__ = (
        "alarm", "cause", "completed", "declared", "delivery", "ended", "is_over", "job", "run",
        "started", "stop", "verdict",
    )  # fmt: skip

    def __init__(self, job: Job, declared: Handler) -> None:
        """Taken just now."""
        self.job: Job = job
        self.declared: Handler = declared
        self.delivery: Delivery = Delivery(job.id, job.fence)
        self.run: Run | None = None
        """What the handler is given, once it runs."""
        self.started: float | None = None
        """By the monotonic clock; None while it waits for its turn."""
        self.ended: float = 0.0
        self.stop: Callable[[], object] | None = None
        """Interrupts the handler, as far as it can be."""
        self.cause: Cause | None = None
        self.alarm: TimerHandle | None = None
        """Rings when the handler has taken too long."""
        self.verdict: Verdict | None = None
        self.completed: bool = False
        """True where a transaction of the handler's, in a process of its own, has completed it."""
        self.is_over: bool = False
        """True once nothing more is to be said about it, whatever the handler still does."""

    @property
    def duration(self) -> float:
        """Seconds that the handler took."""
        return 0.0 if self.started is None else max(0.0, self.ended - self.started)

    def interrupt(self, cause: Cause) -> None:
        """Ask the handler to stop, and remember why. The first reason counts."""
        if self.cause is None:
            self.cause = cause
            if self.stop is not None:
                self.stop()
