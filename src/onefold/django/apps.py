"""The app: what Django does with Onefold when it starts."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig, apps
from django.db.backends.signals import connection_created
from django.utils.module_loading import module_has_submodule

from onefold.django.database_lifecycle import include_onefold
from onefold.django.instance import read_settings


class OnefoldConfig(AppConfig):
    """`onefold.django` in INSTALLED_APPS."""

    name = "onefold.django"
    label = "onefold"

    def ready(self) -> None:
        """Import what declares jobs, so that web and worker know the same ones."""
        connection_created.connect(include_onefold)
        for name in read_settings().autodiscover:
            for app in apps.get_app_configs():
                # Not our own `tasks`: the tasks framework may not be installed.
                if app is not self and module_has_submodule(app.module, name):
                    import_module(f"{app.name}.{name}")
