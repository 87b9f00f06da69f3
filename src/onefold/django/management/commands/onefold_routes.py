"""`manage.py onefold_routes`: show the guarantee of each keyed view."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from onefold.django.middleware import collect


class Command(BaseCommand):
    """Prints the report that is also logged with the first request."""

    help = "Show the guarantee of each keyed view."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the guarantees."""
        del args, options
        for route in collect():
            self.stdout.write(route.summary())
