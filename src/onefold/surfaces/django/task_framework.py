"""The tasks framework that is installed: Django's own from 6.0 on, or its backport."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

from django.core.exceptions import ImproperlyConfigured

# In Django and in the backport: the package, and where it makes JSON of anything.
PACKAGES: Final = (("django.tasks", "django.utils.json"), ("django_tasks", "django_tasks.utils"))


class Framework(NamedTuple):
    """What a backend needs of it. The two are the same in all but a few names."""

    base: Any
    backends: Any
    signals: Any
    exceptions: Any
    json: Any

    @property
    def backend_class(self) -> Any:
        """What every backend comes from."""
        return self.backends.BaseTaskBackend

    @property
    def invalid_task(self) -> Any:
        """The error of a task that cannot be enqueued."""
        names = ("InvalidTask", "InvalidTaskError")
        return next(
            getattr(self.exceptions, name) for name in names if name in dir(self.exceptions)
        )


def framework() -> Framework:
    """Whichever is there; Django's own first."""
    for package, json in PACKAGES:
        try:
            import_module(package)
        except ModuleNotFoundError:
            continue
        return Framework(
            base=import_module(f"{package}.base"),
            backends=import_module(f"{package}.backends.base"),
            signals=import_module(f"{package}.signals"),
            exceptions=import_module(f"{package}.exceptions"),
            json=import_module(json),
        )
    raise ImproperlyConfigured(
        "The backend for tasks needs Django 6.0, whose django.tasks it is for, or the package"
        " django-tasks, which brings the same to older ones: pip install django-tasks"
    )
