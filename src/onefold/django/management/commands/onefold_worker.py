"""`manage.py onefold_worker`: run the jobs and tasks of the project."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand, CommandError

from onefold.django.instance import get_onefold
from onefold.errors import OnefoldError
from onefold.worker.job_log import TextFormatter
from onefold.worker.settings import read_queues

if TYPE_CHECKING:
    from argparse import ArgumentParser

OPTIONS: Final = ("queues", "concurrency", "lease", "grace", "name")
LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG)
"""The level of the log for each `--verbosity`."""


class Command(BaseCommand):
    """Runs until a signal."""

    help = "Run the jobs and tasks of this project until SIGTERM or SIGINT."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options; those not given have the defaults of the worker."""
        parser.add_argument(
            "--queues",
            metavar="NAME[:N],…",
            help="Queues, and how many jobs of each at once.  [all declared]",
        )
        parser.add_argument("--concurrency", type=int, help="Handlers at once.  [20]")
        parser.add_argument("--lease", type=_seconds, help="Seconds.  [30]")
        parser.add_argument("--grace", type=_seconds, help="Seconds a stop may take.  [30]")
        parser.add_argument("--name", help="Of the worker, in logs and attempts.  [made up]")
        parser.add_argument(
            "--no-chores", action="store_true", help="Leave rescues, pruning and ticks to others."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Work."""
        del args
        if not self._shows_logs(options["verbosity"]) and options["verbosity"] > 0:
            self.stdout.write(
                "The worker starts. LOGGING shows only its warnings: for a line of each job, give"
                ' the logger "onefold" the level INFO there.'
            )
        try:
            get_onefold().run_worker(**_worker_options(options))
        except OnefoldError as error:
            raise CommandError(str(error)) from error

    def _shows_logs(self, verbosity: int) -> bool:
        """Log to stderr if LOGGING has no handler for our logger.

        False if LOGGING has one that shows only warnings.
        """
        ours, log = logging.getLogger("onefold"), logging.getLogger("onefold.worker")
        if not log.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(TextFormatter())
            ours.addHandler(handler)
            if ours.level == logging.NOTSET:
                ours.setLevel(LEVELS[verbosity])
        return log.isEnabledFor(logging.INFO)


def _worker_options(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: options[name] for name in OPTIONS if options[name] is not None}
    if "queues" in given:
        given["queues"] = read_queues(given["queues"])
    return {**given, "chores": not options["no_chores"]}


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))
