"""`@onefold.cron`: schedules that code declares, and the types of the decorator."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

import msgspec

from onefold.errors import InvalidInput
from onefold.jobs.job_function import DeclaredJob, JobCall, JobFunction
from onefold.model.job import NewJob
from onefold.model.schedule import CatchUp, Schedule, first_tick, new_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeGuard

    from onefold.app.context import Context
    from onefold.effects.run import Run
    from onefold.jobs.job_decorator import Declaring, RunFirst
    from onefold.jobs.job_function import Declaration

P = ParamSpec("P")
R = TypeVar("R")
Job: TypeAlias = DeclaredJob[..., Any] | JobCall[..., Any]
J = TypeVar("J", bound=Job)


class DeclaredOptions(TypedDict, total=False):
    """The options of a schedule, without those of its jobs."""

    tz: str
    """The time zone of its ticks, by its IANA name; by default UTC."""
    catch_up: CatchUp
    """What happens to missed ticks: skip, latest (the default) or all."""
    catch_up_most: int | None
    """With `all`, how many ticks at most: the newest; by default 100."""


class Declared(msgspec.Struct, frozen=True):
    """A schedule that code declares, and the declaration of its job."""

    schedule: Schedule
    job: Any


class DeclaredSchedules:
    """The declared schedules of an Onefold, by name. Its workers store them when they start."""

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The declared schedules, in the order of declaration."""
        return tuple(self._declared)

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules to store, in an order that is the same in all processes."""
        return [self._declared[name].schedule for name in sorted(self._declared)]

    def add(self, schedule: Schedule, job: Declaration) -> None:
        """Add a schedule; a name has one. The same job declared again replaces its schedule."""
        name, known = schedule.name, self._declared.get(schedule.name)
        if known is not None and (known.schedule.kind != schedule.kind or known.job is job):
            raise InvalidInput(
                "name",
                f"{name!r} is a schedule already, of {known.schedule.kind!r} at"
                f" {known.schedule.cron!r}. Give one of them another name=.",
            )
        self._declared[name] = Declared(schedule, job)


class Scheduling:
    """A decorator for jobs, and for functions, which become jobs."""

    def __init__(
        self,
        cron: str,
        *,
        name: str | None,
        options: DeclaredOptions,
        schedules: DeclaredSchedules,
        job: Declaring,
        context: Context,
    ) -> None:
        self._cron = cron
        self._name = name
        self._options = options
        self._schedules = schedules
        self._job = job
        self._context = context
        checked = self._schedule(NewJob("any"))
        first_tick(checked.cron, checked.tz, context.now())

    @overload
    def __call__(self, job: J, /) -> J: ...
    @overload
    def __call__(
        self, function: RunFirst[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, Concatenate[Run, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: RunFirst[P, R], /
    ) -> JobFunction[P, R, Concatenate[Run, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R, P, R]: ...
    def __call__(self, subject: Any, /) -> Any:
        """Declare the schedule; a function becomes a job first, under its own name."""
        job: Job = subject if _is_job(subject) else self._job(subject)
        call = job if isinstance(job, JobCall) else job.call()
        (new_job,) = self._context.defaults.filled([call.new_job()])
        self._schedules.add(self._schedule(new_job), job.declaration)
        return job

    def _schedule(self, new_job: NewJob) -> Schedule:
        name = new_job.kind if self._name is None else self._name
        return new_schedule(new_job, "", name=name, cron=self._cron, declared=True, **self._options)


def _is_job(subject: object) -> TypeGuard[Job]:
    return isinstance(subject, DeclaredJob | JobCall)
