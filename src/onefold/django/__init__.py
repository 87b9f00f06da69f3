"""Onefold as a Django app: put `onefold.django` into INSTALLED_APPS.

`get_onefold()` returns the Onefold of the project, on the database that the setting ONEFOLD names.
"""

from importlib import import_module

from onefold.errors import Needs

with Needs("onefold[django]"):
    import_module("django")

from onefold.django.forms import form_keys, session_of
from onefold.django.instance import get_onefold
from onefold.django.middleware import IdempotencyMiddleware
from onefold.django.views import Idempotency, once_of
from onefold.web.idempotency.once_parameter import Once

__all__ = [
    "Idempotency",
    "IdempotencyMiddleware",
    "Once",
    "form_keys",
    "get_onefold",
    "once_of",
    "session_of",
]
