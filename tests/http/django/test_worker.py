"""`manage.py onefold_worker` runs what apps declare in their modules `jobs` and `tasks`."""

import signal
from collections.abc import Callable

from onefold import Onefold
from tests.fixtures.colours import Store
from tests.http.django.project import Project
from tests.worker.stage import ended, perform

MakeProject = Callable[..., Project]

JOBS = """
from django.db import connection
from onefold.surfaces.django import get_onefold

@get_onefold().job(store_result=True)
def count(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"select count(*) from {table}")
        return cursor.fetchone()[0]
"""

TASKS = """
from django_tasks import task

@task
def double(number):
    return 2 * number
"""


def test_a_worker_runs_jobs_and_tasks_until_a_signal(
    make_project: MakeProject, store: Store
) -> None:
    project = make_project(
        INSTALLED_APPS=["onefold.surfaces.django", "shop"],
        TASKS={"default": {"BACKEND": "onefold.surfaces.django.task_backend.OnefoldBackend"}},
    )
    project.write("shop/__init__.py", "")
    project.write("shop/jobs.py", JOBS)
    project.write("shop/tasks.py", TASKS)
    project.manage("migrate")
    with Onefold(store.url) as onefold:
        counted = onefold.enqueue("count", {"table": "django_migrations"}).id
        doubled = onefold.enqueue("shop.tasks.double", {"args": [21], "kwargs": {}}).id

        worker = project.start("onefold_worker", "--queues", "default", "--grace", "5")
        found = perform(lambda: results(onefold, counted, doubled), onefold)
        worker.send_signal(signal.SIGTERM)
        worker.communicate()

    assert worker.returncode == 0
    assert found[counted] > 0
    assert found[doubled] == 42


def test_a_worker_without_tables_says_what_to_do(make_project: MakeProject, store: Store) -> None:
    if store.dialect == "sqlite":
        return  # an embedded file migrates itself
    assert "migrate" in make_project().refused("onefold_worker")


def test_a_worker_says_what_is_wrong_with_its_options(make_project: MakeProject) -> None:
    said = make_project().refused("onefold_worker", "--concurrency", "0")

    assert "concurrency" in said


async def results(onefold: Onefold, *ids: str) -> dict[str, int]:
    await ended(onefold, *ids)
    jobs = [await onefold.aget(job_id) for job_id in ids]
    return {job.id: job.result for job in jobs if job is not None}
