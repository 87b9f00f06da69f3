"""Onefold's migration of the same name."""

from collections.abc import Sequence
from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from onefold.surfaces.django.migrating import MigrateOnefold


class Migration(migrations.Migration):
    """Applies everything that is pending."""

    atomic = False
    dependencies: ClassVar[Sequence[tuple[str, str]]] = [("onefold", "0004_enqueue_function")]
    operations: ClassVar[Sequence[Operation]] = [MigrateOnefold()]
