"""Onefold as an app of Django's: put `onefold.surfaces.django` into INSTALLED_APPS.

from onefold.surfaces.django import get_onefold

`get_onefold()` is the Onefold of the project, on the database that the setting ONEFOLD names.
"""

from onefold.surfaces.django.project import get_onefold

__all__ = ["get_onefold"]
