"""`manage.py onefold_worker`: run the jobs and tasks of the project."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from onefold.errors import OnefoldError
from onefold.surfaces.django.project import get_onefold

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from onefold.worker.settings import WorkerOptions


class Command(BaseCommand):
    """Runs until a signal."""

    help = "Run the jobs and tasks of this project until SIGTERM or SIGINT."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What no option says is left to the worker."""
        parser.add_argument(
            "--queues", default="default", help="Queues, comma-separated.  [default]"
        )
        parser.add_argument("--concurrency", type=int, help="Handlers at once.  [20]")
        parser.add_argument("--lease", type=float, help="Seconds.  [60]")
        parser.add_argument("--grace", type=float, help="Seconds a stop may take.  [30]")
        parser.add_argument("--name", help="Of the worker, in logs and attempts.  [made up]")
        parser.add_argument(
            "--no-chores", action="store_true", help="Leave rescues, pruning and ticks to others."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Work."""
        del args
        try:
            get_onefold().run_worker(**_worker_options(options))
        except OnefoldError as error:
            raise CommandError(str(error)) from error


def _worker_options(options: dict[str, Any]) -> WorkerOptions:
    said: WorkerOptions = {
        "queues": [name for name in options["queues"].split(",") if name],
        "chores": not options["no_chores"],
    }
    if options["concurrency"] is not None:
        said["concurrency"] = options["concurrency"]
    if options["lease"] is not None:
        said["lease"] = timedelta(seconds=options["lease"])
    if options["grace"] is not None:
        said["grace"] = timedelta(seconds=options["grace"])
    if options["name"] is not None:
        said["name"] = options["name"]
    return said
