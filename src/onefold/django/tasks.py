"""A backend for the tasks of Django 6.0, or of the backport `django_tasks`.

A task is a job whose kind is its dotted path; `manage.py onefold_worker` runs it. A task that is
enqueued in an atomic block on Onefold's database is committed with the block.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from onefold.app.deliveries import Deliveries
from onefold.django.instance import get_onefold, read_settings
from onefold.effects.run import Run  # noqa: TC001 - a declared job reads its annotations
from onefold.errors import InvalidInput
from onefold.model.failure import described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeGuard

    from django.tasks.backends.base import BaseTaskBackend

    from onefold.app.onefold import Onefold, Within
    from onefold.jobs.job_function import DeclaredJob
    from onefold.model.job import Attempt, Job


# In Django and in the backport: the package, and where it makes JSON of anything.
PACKAGES: Final = (("django.tasks", "django.utils.json"), ("django_tasks", "django_tasks.utils"))


class Framework(NamedTuple):
    """The names that a backend needs, from either package."""

    base: Any
    backends: Any
    signals: Any
    exceptions: Any
    json: Any

    @property
    def backend_class(self) -> Any:
        """The base class of backends."""
        return self.backends.BaseTaskBackend

    @property
    def invalid_task(self) -> Any:
        """The error of a task that cannot be enqueued."""
        names = ("InvalidTask", "InvalidTaskError")
        return next(
            getattr(self.exceptions, name) for name in names if name in dir(self.exceptions)
        )


def framework() -> Framework:
    """The installed package, `django.tasks` first."""
    for package, json in PACKAGES:
        try:
            import_module(package)
        except ModuleNotFoundError:
            continue
        return Framework(
            base=import_module(f"{package}.base"),
            backends=import_module(f"{package}.backends.base"),
            signals=import_module(f"{package}.signals"),
            exceptions=import_module(f"{package}.exceptions"),
            json=import_module(json),
        )
    raise ImproperlyConfigured(
        "The backend for tasks needs Django 6.0, whose django.tasks it is for, or the package"
        " django-tasks, which brings the same to older ones: pip install django-tasks"
    )


_tasks: Final = framework()
if not TYPE_CHECKING:
    # Of whichever package is installed; they are the same.
    BaseTaskBackend = _tasks.backend_class
_Status: Any = _tasks.base.TaskResultStatus

OPTIONS: Final = frozenset({"backoff", "max_attempts", "retention", "tags", "timeout"})
"""Options of all tasks that OPTIONS may have; see `@onefold.job`."""

STATUSES: Final = {
    "scheduled": _Status.READY,
    "ready": _Status.READY,
    "retrying": _Status.READY,
    "running": _Status.RUNNING,
    "awaiting": _Status.RUNNING,
    "completed": _Status.SUCCESSFUL,
    "dead": _Status.FAILED,
    "cancelled": _Status.FAILED,
}


class OnefoldBackend(BaseTaskBackend):
    """Keeps tasks in Onefold's queue."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Made by Django, from the setting TASKS, for each thread."""
        super().__init__(alias, params)
        self.alias: str = alias
        self.options: dict[str, Any] = params.get("OPTIONS", {})
        if unknown := set(self.options) - OPTIONS:
            raise ImproperlyConfigured(
                f"OPTIONS of the tasks {alias!r} have no {', '.join(sorted(unknown))}. They may"
                f" have {', '.join(sorted(OPTIONS))}."
            )

    def validate_task(self, task: Any) -> None:
        """Django calls this for every task, so every task becomes a job here."""
        super().validate_task(task)
        self._declared(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job; in the atomic block that is open, if there is one on this database."""
        self.validate_task(task)
        # Django's most urgent is the highest number, Onefold's the lowest.
        job = self._declared(task).using(queue=task.queue_name, priority=-task.priority)
        if task.run_after is not None:
            job = job.using(run_at=task.run_after)
        calls = _calls()
        if (connection := _open_block()) is not None:
            job = job.within(connection)
        answer = job.enqueue(**_tasks.json.normalize_json({"args": args, "kwargs": kwargs}))
        stored = calls.get(answer.id)
        assert stored is not None, "a job that was just enqueued"
        result = self._result(task, stored, ())
        _tasks.signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The job of that id, as long as it is kept: a day after it is done by default."""
        try:
            job = _calls().get(result_id)
        except InvalidInput:
            job = None
        declared = None if job is None else get_onefold().jobs.get(job.kind)
        task = None if declared is None else getattr(declared.function, "task", None)
        if job is None or task is None:
            raise _tasks.exceptions.TaskResultDoesNotExist(result_id)
        return self._result(task, job, Deliveries(_calls().context).attempts(job.id))

    def _declared(self, task: Any) -> DeclaredJob[..., Any]:
        """The job of a task; declared at its first use."""
        onefold = get_onefold()
        known = onefold.jobs.get(task.module_path)
        if known is not None and getattr(known.function, "task", None) is not None:
            return known
        handler: Any = self._ahandler(task) if _is_async(task) else self._handler(task)
        # So that a result, which knows the job only, finds it.
        handler.task = task
        try:
            job: Any = onefold.job(
                kind=task.module_path, queue=task.queue_name, store_result=True, **self.options
            )
            declared: DeclaredJob[..., Any] = job(handler)
        except InvalidInput as error:
            raise _tasks.invalid_task(str(error)) from error
        return declared

    def _handler(self, task: Any) -> Callable[..., Any]:
        """What a worker calls in a thread."""

        def run_task(run: Run, args: list[Any], kwargs: dict[str, Any]) -> Any:
            context = self._started(task, run.job)
            try:
                value = task.func(*context, *args, **kwargs)
            except Exception as error:
                self._failed(task, run.job, error)
                raise
            return self._finished(task, run.job, value)

        return run_task

    def _ahandler(self, task: Any) -> Callable[..., Any]:
        """What a worker calls in its event loop. Receivers of signals may block: not there."""

        async def run_task(run: Run, args: list[Any], kwargs: dict[str, Any]) -> Any:
            context = await sync_to_async(self._started)(task, run.job)
            try:
                value = await task.func(*context, *args, **kwargs)
            except Exception as error:
                await sync_to_async(self._failed)(task, run.job, error)
                raise
            return await sync_to_async(self._finished)(task, run.job, value)

        return run_task

    def _started(self, task: Any, job: Job) -> tuple[Any, ...]:
        """Send the signal that it has begun; returns the arguments before those of the task."""
        result = self._running(task, job)
        _tasks.signals.task_started.send(type(self), task_result=result)
        return (_tasks.base.TaskContext(task_result=result),) if task.takes_context else ()

    def _finished(self, task: Any, job: Job, value: Any) -> Any:
        """Send the signal that it is done; the completion of the job follows."""
        value = _tasks.json.normalize_json(value)
        result = self._running(task, job)
        _write(result, status=_Status.SUCCESSFUL, _return_value=value)
        _tasks.signals.task_finished.send(type(self), task_result=result)
        return value

    def _failed(self, task: Any, job: Job, error: Exception) -> None:
        """Send the signal of the last failure; after others the task is tried again."""
        if job.attempt < job.max_attempts:
            return
        result = self._running(task, job)
        result.errors.append(_error(described(error)))
        _write(result, status=_Status.FAILED)
        _tasks.signals.task_finished.send(type(self), task_result=result)

    def _running(self, task: Any, job: Job) -> Any:
        """The result of a job that runs here; who had it before is not looked up."""
        result = self._result(task, job, ())
        workers = [""] * (job.attempt - 1) + [job.worker or ""]
        _write(result, started_at=job.taken_at, last_attempted_at=job.taken_at, worker_ids=workers)
        return result

    def _result(self, task: Any, job: Job, attempts: Sequence[Attempt]) -> Any:
        begun = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
        result = _tasks.base.TaskResult(
            task=task,
            id=job.id,
            status=STATUSES[job.state],
            enqueued_at=job.created_at,
            started_at=min(begun, default=None),
            finished_at=job.ended_at,
            last_attempted_at=max(begun, default=None),
            args=job.payload["args"],
            kwargs=job.payload["kwargs"],
            backend=self.alias,
            errors=[_error(error) for attempt in attempts if _is_failure(error := attempt.error)],
            worker_ids=[attempt.worker or "" for attempt in attempts],
        )
        if job.state == "completed":
            _write(result, _return_value=job.result)
        return result


def _open_block() -> Any:
    """The connection of this thread to Onefold's database, if an atomic block is open."""
    alias = read_settings().alias
    if alias is None or not connections[alias].in_atomic_block:
        return None
    return connections[alias]


def _calls() -> Onefold | Within:
    """Onefold inside the open atomic block, if there is one: it sees the jobs of that block."""
    connection = _open_block()
    onefold = get_onefold()
    return onefold if connection is None else onefold.within(connection)


def _is_async(task: Any) -> bool:
    return inspect.iscoroutinefunction(task.func)


def _is_failure(error: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """And not only what was answered to a push that was put off or called off then."""
    return error is not None and error["type"] is not None


def _error(error: Mapping[str, Any]) -> Any:
    return _tasks.base.TaskError(
        exception_class_path=error["type"],
        traceback=error.get("traceback") or error["message"],
    )


def _write(result: Any, **fields: Any) -> None:
    """Write into a frozen result, as the backends of Django do."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
