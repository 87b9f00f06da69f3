"""The app: what Django does with Onefold when it starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.utils.module_loading import autodiscover_modules

from onefold.django.database_lifecycle import include_onefold
from onefold.django.instance import read_settings


class OnefoldConfig(AppConfig):
    """`onefold.django` in INSTALLED_APPS."""

    name = "onefold.django"
    label = "onefold"

    def ready(self) -> None:
        """Import what declares jobs, so that web and worker know the same ones."""
        connection_created.connect(include_onefold)
        autodiscover_modules(*read_settings().autodiscover)
