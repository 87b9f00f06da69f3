"""What the migrations of the app do: bring Onefold's tables up to date, whoever made them.

Onefold's own migrations are SQL. Each of them has a migration of the same name here, so that
`manage.py migrate` knows that there is something to do; whichever comes first applies them all, and
where `onefold migrate` was there before, none is left.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from django.db import router, transaction
from django.db.migrations.operations.base import Operation

from onefold.databases.sqlite_statements import apply_pending
from onefold.operations.statement import Sql
from onefold.surfaces.django.alias import is_in_memory
from onefold.surfaces.django.project import get_onefold
from onefold.surfaces.django.settings import read_settings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState


class MigrateOnefold(Operation):
    """Bring Onefold's tables up to date. There is no way back: promises would be forgotten."""

    reduces_to_sql = False
    reversible = False
    # Onefold has a transaction of its own for it, under a lock that all who migrate share.
    atomic = False

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """There are no models."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """On the database that ONEFOLD names, and on no other."""
        del from_state, to_state
        connection = schema_editor.connection
        settings = read_settings()
        alias: str = connection.alias
        if alias != (settings.alias or "default") or not router.allow_migrate(alias, app_label):
            return
        if settings.alias is not None and is_in_memory(alias):
            _migrate_here(connection, settings.options.get("shards"))
        else:
            get_onefold().migrate()

    def describe(self) -> str:
        """For `manage.py migrate --plan`."""
        return "Bring Onefold's tables up to date"


def _migrate_here(connection: BaseDatabaseWrapper, shards: int | None) -> None:
    """Through Django's connection, which alone has a database in memory."""
    with transaction.atomic(using=connection.alias):
        beneath: Any = connection.connection
        assert isinstance(beneath, sqlite3.Connection)
        apply_pending(beneath, Sql("sqlite"), shards=shards, where=connection.alias)
