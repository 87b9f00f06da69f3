"""`manage.py onefold_routes`: show the guarantee of each keyed view."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from onefold.django.middleware import report_views


class Command(BaseCommand):
    """Prints the report that is also logged with the first request."""

    help = "Show the guarantee of each keyed view."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print."""
        del args, options
        for line in report_views():
            self.stdout.write(line)
