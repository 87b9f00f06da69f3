"""The operation of the app's migrations: it brings Onefold's tables up to date.

Each SQL migration of Onefold has a Django migration with the same name, so that `manage.py migrate`
knows when something is pending. The first one that runs applies all pending SQL migrations. If
`onefold migrate` has applied them before, it changes nothing.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from django.db import router, transaction
from django.db.migrations.operations.base import Operation

from onefold.databases.sqlite.execute import apply_pending
from onefold.django.instance import get_onefold, is_in_memory, read_settings
from onefold.operations.statement import Sql

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState


class MigrateOnefold(Operation):
    """Brings Onefold's tables up to date. It cannot be reversed: the stored keys would be lost."""

    reduces_to_sql = False
    reversible = False
    # Onefold migrates in a transaction of its own, under a lock that all migrators share.
    atomic = False

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: there are no models."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Migrate the database that the setting ONEFOLD names, and no other."""
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
        """The text for `manage.py migrate --plan`."""
        return "Bring Onefold's tables up to date"


def _migrate_here(connection: BaseDatabaseWrapper, shards: int | None) -> None:
    """Migrate through Django's connection: no other connection reaches a database in memory."""
    with transaction.atomic(using=connection.alias):
        beneath: Any = connection.connection
        assert isinstance(beneath, sqlite3.Connection)
        apply_pending(beneath, Sql("sqlite"), shards=shards, where=connection.alias)
