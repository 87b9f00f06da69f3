"""The app: what Django does with Onefold when it starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from onefold.surfaces.django.settings import read_settings


class OnefoldConfig(AppConfig):
    """`onefold.surfaces.django` in INSTALLED_APPS."""

    name = "onefold.surfaces.django"
    label = "onefold"

    def ready(self) -> None:
        """Import what declares jobs, so that web and worker know the same ones."""
        autodiscover_modules(*read_settings().autodiscover)
