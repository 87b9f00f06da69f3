"""Django's tasks in Onefold's queue: those of Django 6, or before it of the backport."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test.utils import override_settings

from onefold import Onefold
from onefold.django import tasks as task_framework
from tests.http.django.conftest import BACKEND
from tests.worker.stage import ended, perform, working

if TYPE_CHECKING or find_spec("django.tasks") is None:
    from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
else:
    from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started


@task
def add(one: int, other: int = 1) -> int:
    return one + other


@task(takes_context=True)
async def aadd(context: Any, one: int, other: int) -> list[Any]:
    await asyncio.sleep(0)
    return [context.attempt, context.task_result.id, one + other]


@task
def fail() -> None:
    raise ValueError("on purpose")


def run_through(onefold: Onefold, result: Any) -> None:
    """Let a worker run the task; what became of it is in the result."""

    async def play() -> None:
        async with working(onefold):
            await ended(onefold, result.id)
        await result.arefresh()

    perform(play, onefold)


def test_a_task_is_enqueued_run_and_found_again(project_onefold: Onefold, heard: list[str]) -> None:
    result: Any = add.enqueue(1, other=2)

    assert result.status == TaskResultStatus.READY
    assert result.enqueued_at is not None
    run_through(project_onefold, result)
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == 3
    assert (result.args, result.kwargs) == ([1], {"other": 2})
    assert result.attempts == 1
    assert result.started_at is not None
    assert result.finished_at is not None
    assert result.finished_at >= result.started_at
    assert heard == ["READY", "RUNNING", "SUCCESSFUL"]


def test_a_coroutine_function_is_awaited_and_has_its_context(project_onefold: Onefold) -> None:
    result: Any = asyncio.run(aadd.aenqueue(1, 2))

    run_through(project_onefold, result)

    assert result.return_value == [1, result.id, 3]


def test_the_kind_priority_time_and_queue_of_a_task_are_those_of_its_job(
    project_onefold: Onefold,
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    tasks = [add.using(priority=100), add.using(priority=-100, run_after=later, queue_name="slow")]

    urgent, patient = (project_onefold.get(one.enqueue(1).id) for one in tasks)

    assert urgent is not None
    assert patient is not None
    assert urgent.kind == add.module_path
    assert urgent.priority < patient.priority
    assert (patient.run_at, patient.queue) == (later, "slow")


def test_a_task_is_enqueued_by_the_commit_of_the_block(project_onefold: Onefold) -> None:
    with transaction.atomic():
        result: Any = add.enqueue(1)
        assert project_onefold.get(result.id) is None
        result.refresh()

    assert project_onefold.get(result.id) is not None
    with transaction.atomic():
        undone: Any = add.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(undone.id)


def test_a_failure_is_told_of(project_onefold: Onefold, heard: list[str]) -> None:
    tasks = {"default": {"BACKEND": BACKEND, "OPTIONS": {"max_attempts": 1}}}
    with override_settings(TASKS=tasks):
        result: Any = fail.enqueue()
        run_through(project_onefold, result)

    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [ValueError]
    assert "on purpose" in result.errors[0].traceback or "fail" in result.errors[0].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    assert heard == ["READY", "RUNNING", "FAILED"]


def test_a_push_that_was_put_off_is_no_failure(project_onefold: Onefold) -> None:
    result: Any = add.enqueue(1)
    minute = timedelta(minutes=1)
    (job,) = project_onefold.deliveries.take(worker="courier", lease=minute)
    project_onefold.deliveries.park(job, ack_timeout=minute, exchange='{"status":202}')
    project_onefold.deliveries.defer_job(job.id, after=minute)

    result.refresh()

    assert (len(result.worker_ids), result.errors) == (1, [])


SIGNALS: tuple[Any, ...] = (task_enqueued, task_started, task_finished)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    said: list[str] = []

    def hear(task_result: Any, **_: Any) -> None:
        said.append(str(task_result.status))

    for signal in SIGNALS:
        signal.connect(hear)
    yield said
    for signal in SIGNALS:
        signal.disconnect(hear)


def test_results_are_found_in_other_threads(project_onefold: Onefold) -> None:
    """Django has a backend for each thread."""
    job_id = add.enqueue(1).id
    found: list[Any] = []

    def look() -> None:
        backend: Any = default_task_backend
        found.append(backend.get_result(job_id))
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert found[0].task == add


@pytest.mark.parametrize("wrong", ["nonsense", "019e5a30-0000-7000-8000-000000000000"])
def test_a_result_that_is_not_there_does_not_exist(project_onefold: Onefold, wrong: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(wrong)
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(project_onefold.enqueue("email").id)


def test_unknown_options_are_refused(project_onefold: Onefold) -> None:
    tasks = {"default": {"BACKEND": BACKEND, "OPTIONS": {"retries": 1}}}
    with (
        override_settings(TASKS=tasks),
        pytest.raises(ImproperlyConfigured, match=r"have no retries\. They may have backoff"),
    ):
        _ = task_backends["default"]


def test_without_any_framework_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_framework, "PACKAGES", [("no.such.package", "json")])

    with pytest.raises(ImproperlyConfigured, match="pip install django-tasks"):
        task_framework.framework()
