"""The tables of Onefold."""

from collections.abc import Sequence
from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from onefold.django.schema import MigrateOnefold


class Migration(migrations.Migration):
    """Applies all pending migrations of Onefold."""

    atomic = False
    dependencies: ClassVar[Sequence[tuple[str, str]]] = []
    operations: ClassVar[Sequence[Operation]] = [MigrateOnefold()]
