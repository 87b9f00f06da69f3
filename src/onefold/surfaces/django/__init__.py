"""Onefold as an app of Django's: put `onefold.surfaces.django` into INSTALLED_APPS.

from onefold.surfaces.django import get_onefold

`get_onefold()` is the Onefold of the project, on the database that the setting ONEFOLD names.
"""

from importlib import import_module

from onefold.errors.extra import Needs

with Needs("onefold[django]"):
    import_module("django")

from onefold.surfaces.django.forms import form_keys, session_of
from onefold.surfaces.django.idempotency import Idempotency, once_of
from onefold.surfaces.django.middleware import IdempotencyMiddleware
from onefold.surfaces.django.project import get_onefold
from onefold.surfaces.once import Once

__all__ = [
    "Idempotency",
    "IdempotencyMiddleware",
    "Once",
    "form_keys",
    "get_onefold",
    "once_of",
    "session_of",
]
