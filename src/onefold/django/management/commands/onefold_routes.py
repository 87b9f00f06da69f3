"""`manage.py onefold_routes`: what is guaranteed, view by view."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from onefold.django.middleware import report_views


class Command(BaseCommand):
    """Prints the report that is also logged with the first request."""

    help = "Say of each view with a policy what is guaranteed of its effect."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print."""
        del args, options
        for line in report_views():
            self.stdout.write(line)
