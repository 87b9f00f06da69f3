"""Calling a handler that is a plain function, in a thread or in a process of its own."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from onefold.errors import UsageError
from onefold.model.outcome import Outcome
from onefold.worker import verdict

if TYPE_CHECKING:
    from collections.abc import Generator

    from onefold.calls.hooks import Hooks
    from onefold.model.job import Job
    from onefold.worker.handlers import Handler
    from onefold.worker.verdict import Verdict


T = TypeVar("T")

running: ContextVar[Job | None] = ContextVar("onefold_running", default=None)
"""The job whose handler this is, for logs. Set, and never reset: a handler has its own context."""


def call(
    declared: Handler,
    job: Job,
    hooks: Hooks,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Verdict:
    """What the handler's end means; what is no Exception, save SystemExit, passes through."""
    value: Any = None
    running.set(job)
    try:
        # What leaves the handler passes through the hooks, outcomes that it returns included.
        with hooks.running(job), meaning(declared):
            value = said(declared.function(*args, **kwargs))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the handler's
        return verdict.on_error(error)
    return verdict.on_value(declared, job, value)


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
def meaning(declared: Handler) -> Generator[None]:
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
