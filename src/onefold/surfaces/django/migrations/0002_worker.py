"""Onefold's migration of the same name."""

from typing import ClassVar

from django.db import migrations

from onefold.surfaces.django.migrating import MigrateOnefold


class Migration(migrations.Migration):
    """Applies everything that is pending."""

    atomic = False
    dependencies: ClassVar = [("onefold", "0001_jobs_and_claims")]
    operations: ClassVar = [MigrateOnefold()]
