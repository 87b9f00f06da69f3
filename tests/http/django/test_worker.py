"""`manage.py onefold_worker` runs what apps declare in their modules `jobs` and `tasks`."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onefold import Onefold
from tests.fixtures.colours import Store
from tests.http.django.project import Project
from tests.worker.stage import ended, perform

MakeProject = Callable[..., Project]

APPS = ["onefold.django", "shop"]

JOBS = """
from django.db import connection
from onefold.django import get_onefold

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
        INSTALLED_APPS=APPS,
        TASKS={"default": {"BACKEND": "onefold.django.tasks.OnefoldBackend"}},
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


def logged(folder: Path, *options: str, **settings: Any) -> str:
    """What a worker prints that runs one job which fails and one which does not, and stops."""
    file = folder / "db.sqlite3"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
    project = Project(folder / "project", database, INSTALLED_APPS=APPS, **settings)
    project.write("shop/__init__.py", "")
    project.write("shop/jobs.py", JOBS)
    with Onefold(f"sqlite:///{file}") as onefold:
        fails = onefold.enqueue("count", {"table": "nothing"}, max_attempts=1).id
        works = onefold.enqueue("count", {"table": "onefold_job"}).id
        worker = project.start("onefold_worker", "--name", "bertha", *options)
        perform(lambda: ended(onefold, fails, works), onefold)
        worker.send_signal(signal.SIGTERM)
        said, complained = worker.communicate()
    assert worker.returncode == 0
    return said + complained


@pytest.mark.prove
@pytest.mark.parametrize("is_asked_for_less", [False, True])
def test_a_worker_shows_its_log_where_the_project_says_nothing_of_logging(
    tmp_path: Path, *, is_asked_for_less: bool
) -> None:
    said = logged(tmp_path, *(["--verbosity", "0"] if is_asked_for_less else []))

    assert ("onefold.worker: Worker bertha on " in said) is not is_asked_for_less
    assert "was buried in attempt 1" in said
    assert 'shop/jobs.py", line' in said
    assert ("onefold.worker: The worker bertha has stopped." in said) is not is_asked_for_less


@pytest.mark.prove
@pytest.mark.parametrize(
    ("level", "logger"),
    [("WARNING", ""), ("INFO", ""), ("INFO", "onefold"), ("INFO", "onefold.worker")],
)
def test_a_worker_leaves_the_logging_of_the_project_alone(
    tmp_path: Path, level: str, logger: str
) -> None:
    said = logged(tmp_path, LOGGING=logging_at(level, logger))
    times = 1 if level == "INFO" else 0

    assert said.count("Worker bertha on ") == said.count("ours INFO Worker bertha on ") == times
    assert ('give the logger "onefold" the level INFO' in said) is (times == 0)
    assert "ours ERROR Job" in said or times


def logging_at(level: str, logger: str) -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"ours": {"format": "ours %(levelname)s %(message)s"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "ours"}},
        "loggers": {logger: {"handlers": ["console"], "level": level}},
    }


@pytest.mark.prove
def test_a_worker_without_tables_or_with_wrong_options_says_so(
    make_project: MakeProject, store: Store
) -> None:
    if store.dialect == "sqlite":
        return  # an embedded file migrates itself
    project = make_project()
    assert "migrate" in project.refused("onefold_worker")
    assert "concurrency" in project.refused("onefold_worker", "--concurrency", "0")


@pytest.mark.prove
def test_a_project_needs_no_tasks_framework(make_project: MakeProject) -> None:
    """The module `tasks` of Onefold's own app declares no jobs, and imports the framework."""
    project = make_project()
    project.write("django_tasks/__init__.py", "raise ModuleNotFoundError('not installed')")
    loaded = "import sys; print('framework', 'onefold.django.tasks' in sys.modules)"

    assert "framework False" in project.manage("shell", "-c", loaded)


async def results(onefold: Onefold, *ids: str) -> dict[str, int]:
    await ended(onefold, *ids)
    jobs = [await onefold.aget(job_id) for job_id in ids]
    return {job.id: job.result for job in jobs if job is not None}
