"""Form keys of a Django project, signed with SECRET_KEY and bound to the session."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from onefold.web.forms.form_keys import FormKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

VISITOR: Final = "onefold_visitor"


def form_keys() -> FormKeys:
    """Signs and checks the form keys of the project."""
    return _made(settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=4)
def _made(secret: str, retired: Sequence[str]) -> FormKeys:
    return FormKeys(secret, retired=retired)


def session_of(request: HttpRequest) -> str:
    """The id of a session, which begins if there is none.

    It is kept in the session, and is not the session's key: that one is a secret, changes when
    a visitor signs in, and with every answer where sessions are kept in cookies.
    """
    session: Any = getattr(request, "session", None)
    if session is None:
        raise ImproperlyConfigured(
            "The keys of forms are bound to a session. Put django.contrib.sessions into"
            " INSTALLED_APPS, and its SessionMiddleware into MIDDLEWARE."
        )
    found = session.get(VISITOR)
    if not found:
        found = session[VISITOR] = secrets.token_urlsafe(16)
    return str(found)
