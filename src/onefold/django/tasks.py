"""A backend for the tasks of Django 6.0, or of the backport `django_tasks`.

A task is a job whose kind is its dotted path; `manage.py onefold_worker` runs it. A task that is
enqueued in an atomic block on Onefold's database is committed with the block.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
    from onefold.model.attempt import Attempt
    from onefold.model.job import Job


PACKAGES: Final = (("django.tasks", "django.utils.json"), ("django_tasks", "django_tasks.utils"))
"""Django's package and the backport, each with the module that normalizes JSON."""


def framework() -> tuple[str, str]:
    """The names of the installed package and of its JSON module."""
    for package, json in PACKAGES:
        try:
            import_module(package)
        except ModuleNotFoundError:
            continue
        return package, json
    raise ImproperlyConfigured(
        "The backend for tasks needs Django 6.0, which has django.tasks, or the package"
        " django-tasks for older versions: pip install django-tasks"
    )


_package, _json_module = framework()
_base: Any = import_module(f"{_package}.base")
_exceptions: Any = import_module(f"{_package}.exceptions")
_json: Any = import_module(_json_module)
_signals: Any = import_module(f"{_package}.signals")
_Status: Any = _base.TaskResultStatus
if not TYPE_CHECKING:
    BaseTaskBackend = import_module(f"{_package}.backends.base").BaseTaskBackend

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
    """Stores tasks as jobs."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.alias: str = alias
        self.options: dict[str, Any] = params.get("OPTIONS", {})
        if unknown := set(self.options) - OPTIONS:
            raise ImproperlyConfigured(
                f"OPTIONS of the tasks {alias!r} have no {', '.join(sorted(unknown))}. They may"
                f" have {', '.join(sorted(OPTIONS))}."
            )

    def validate_task(self, task: Any) -> None:
        """Declare a job for the task. Django calls this for every task."""
        super().validate_task(task)
        self._declared(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job; in the open atomic block, if there is one on this database."""
        self.validate_task(task)
        # The highest number is the most urgent in Django, the lowest in Onefold.
        job = self._declared(task).using(queue=task.queue_name, priority=-task.priority)
        if task.run_after is not None:
            job = job.using(run_at=task.run_after)
        calls = _calls()
        if (connection := _open_block()) is not None:
            job = job.within(connection)
        answer = job.enqueue(**_json.normalize_json({"args": args, "kwargs": kwargs}))
        stored = calls.get(answer.id)
        assert stored is not None, "a job that was just enqueued"
        result = self._result(task, stored, ())
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The job of that id, as long as it is stored: by default for a day after its end."""
        try:
            job = _calls().get(result_id)
        except InvalidInput:
            job = None
        declared = None if job is None else get_onefold().jobs.get(job.kind)
        task = None if declared is None else getattr(declared.function, "task", None)
        if job is None or task is None:
            raise _exceptions.TaskResultDoesNotExist(result_id)
        return self._result(task, job, Deliveries(_calls().context).attempts(job.id))

    def _declared(self, task: Any) -> DeclaredJob[..., Any]:
        """The job of a task; declared at its first use."""
        onefold = get_onefold()
        known = onefold.jobs.get(task.module_path)
        if known is not None and getattr(known.function, "task", None) is not None:
            return known
        is_async = inspect.iscoroutinefunction(task.func)
        handler: Any = self._ahandler(task) if is_async else self._handler(task)
        # A result finds its task through the job.
        handler.task = task
        try:
            job: Any = onefold.job(
                kind=task.module_path, queue=task.queue_name, store_result=True, **self.options
            )
            declared: DeclaredJob[..., Any] = job(handler)
        except InvalidInput as error:
            # The backport has the other name.
            kind = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
            raise kind(str(error)) from error
        return declared

    def _handler(self, task: Any) -> Callable[..., Any]:
        """The handler of a plain task: a worker calls it in a thread."""

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
        """The handler of an async task. Receivers of signals may block, so they run in threads."""

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
        """Send the signal of a start; returns the arguments before those of the task."""
        result = self._running(task, job)
        _signals.task_started.send(type(self), task_result=result)
        return (_base.TaskContext(task_result=result),) if task.takes_context else ()

    def _finished(self, task: Any, job: Job, value: Any) -> Any:
        """Send the signal of a success; the job is completed afterwards."""
        value = _json.normalize_json(value)
        result = self._running(task, job)
        _write(result, status=_Status.SUCCESSFUL, _return_value=value)
        _signals.task_finished.send(type(self), task_result=result)
        return value

    def _failed(self, task: Any, job: Job, error: Exception) -> None:
        """Send the signal of the last failure; after other failures the task is retried."""
        if job.attempt < job.max_attempts:
            return
        result = self._running(task, job)
        result.errors.append(_error(described(error)))
        _write(result, status=_Status.FAILED)
        _signals.task_finished.send(type(self), task_result=result)

    def _running(self, task: Any, job: Job) -> Any:
        """The result of a job that runs here, without the names of its earlier workers."""
        result = self._result(task, job, ())
        workers = [""] * (job.attempt - 1) + [job.worker or ""]
        _write(result, started_at=job.taken_at, last_attempted_at=job.taken_at, worker_ids=workers)
        return result

    def _result(self, task: Any, job: Job, attempts: Sequence[Attempt]) -> Any:
        begun = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
        result = _base.TaskResult(
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


def _is_failure(error: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """False also for the response to a push that was deferred or cancelled."""
    return error is not None and error["type"] is not None


def _error(error: Mapping[str, Any]) -> Any:
    kind: str = error["type"]
    return _base.TaskError(
        exception_class_path=kind if "." in kind else f"builtins.{kind}",
        traceback=error.get("traceback") or error["message"],
    )


def _write(result: Any, **fields: Any) -> None:
    """Set fields of a frozen result, as the backends of Django do."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
