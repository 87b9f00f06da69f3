"""The app: what Django does with Onefold when it starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.utils.module_loading import autodiscover_modules

from onefold.surfaces.django.settings import read_settings
from onefold.surfaces.django.teardown import include_onefold


class OnefoldConfig(AppConfig):
    """`onefold.surfaces.django` in INSTALLED_APPS."""

    name = "onefold.surfaces.django"
    label = "onefold"

    def ready(self) -> None:
        """Import what declares jobs, so that web and worker know the same ones."""
        connection_created.connect(include_onefold)
        autodiscover_modules(*read_settings().autodiscover)
