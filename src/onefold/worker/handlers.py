"""Calling a handler that is a plain function, in a thread or in a process of its own.

What a worker needs to know of a handler, and of whoever knows them by their kinds.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onefold.errors import UsageError
from onefold.model.outcome import Outcome
from onefold.worker import delivery_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import timedelta

    from onefold.effects.run import Run
    from onefold.hooks import Hooks
    from onefold.jobs.job_function import Isolation
    from onefold.model.job import Job, Json
    from onefold.worker.delivery_outcome import DeliveryOutcome


T = TypeVar("T")

running: ContextVar[Job | None] = ContextVar("onefold_running", default=None)
"""The job whose handler this is, for logs. Set, and never reset: a handler has its own context."""


def call(
    declared: BoundHandler,
    job: Job,
    hooks: Hooks,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> DeliveryOutcome:
    """What the handler's end means; what is no Exception, save SystemExit, passes through."""
    value: Any = None
    running.set(job)
    try:
        # What leaves the handler passes through the hooks, outcomes that it returns included.
        with hooks.running(job), meaning(declared):
            value = said(declared.function(*args, **kwargs))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the handler's
        return delivery_outcome.on_error(error)
    return delivery_outcome.on_value(declared, job, value)


def said(value: T) -> T:
    """What a handler returned; an outcome is raised, as if it had been all along."""
    if isinstance(value, Outcome):
        raise value
    if isinstance(value, CoroutineType):
        value.close()
        raise UsageError(
            "The handler returned a coroutine, which nobody awaits: nothing was done. Declare the"
            " async function itself, or let what is put around it be async too."
        )
    return value


@contextmanager
def meaning(declared: BoundHandler) -> Generator[None]:
    """Errors as the job's declaration reads them: forgiven, or an outcome."""
    try:
        yield
    except Outcome:
        raise
    except Exception as error:
        if declared.forgives(error):
            return
        outcome = declared.outcome_of(error)
        if outcome is None:
            raise
        raise outcome from error


class BoundHandler(Protocol):
    """Runs jobs of a kind. A declared job is one."""

    @property
    def function(self) -> Callable[..., Any]:
        """What is called."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether it is awaited."""
        ...

    @property
    def isolation(self) -> Isolation:
        """Where a plain function runs."""
        ...

    @property
    def timeout(self) -> timedelta | None:
        """How long it may take, unless the job says otherwise."""
        ...

    @property
    def on_dead(self) -> Callable[[Job], Any] | None:
        """Called with a job that was buried."""
        ...

    @property
    def stores_result(self) -> bool:
        """Whether what it returns is kept."""
        ...

    @property
    def wants_run(self) -> bool:
        """Whether it takes a `Run`."""
        ...

    def bind(self, job: Job, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What it is called with."""
        ...

    def forgives(self, error: BaseException) -> bool:
        """True where an error means that the work has been done."""
        ...

    def outcome_of(self, error: BaseException) -> Outcome | None:
        """What an error means; None leaves it to the attempts that remain."""
        ...

    def to_json(self, value: Any) -> Json:
        """What it returned, as it is stored."""
        ...


class Handlers(Protocol):
    """Handlers by the kinds of their jobs. A registry of declared jobs is one."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """What there is, for people."""
        ...

    def get(self, kind: str) -> BoundHandler | None:
        """The handler of a kind, if there is one."""
        ...
