"""The dashboard in a Django project.

    path("onefold/", include("onefold.server.dashboard.django"))

Django's own login is used: staff may open it, and superusers may also change things. The view is a
plain function, so it runs under WSGI and ASGI. Pages refresh every few seconds, because a stream
would occupy a worker of WSGI.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db.transaction import non_atomic_requests
from django.http import HttpResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

from onefold.django.forms import session_of
from onefold.django.instance import get_onefold
from onefold.django.views import request_of
from onefold.server.dashboard.dashboard import Dashboard
from onefold.server.dashboard.page import Incoming
from onefold.server.dashboard.sessions import DashboardSession

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django.urls import URLPattern

FORBIDDEN: Final = "Only staff may open this page. Ask an administrator of this site."


@lru_cache(maxsize=1)
def _dashboard() -> Dashboard:
    return Dashboard(get_onefold(), settings.SECRET_KEY, live=False)


# The dashboard checks the keys of its own forms. Its calls have connections of their own: a
# transaction of the request could lock them out.
@csrf_exempt
@non_atomic_requests
def dashboard(request: HttpRequest, below: str) -> HttpResponseBase:
    """A page of the dashboard, for staff."""
    user: Any = request.user
    root = request.path.removesuffix(f"/{below}")
    is_file = below.startswith("static/")
    if not is_file and not user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    if not is_file and not (user.is_active and user.is_staff):
        return HttpResponse(FORBIDDEN, status=403, content_type="text/plain")
    incoming = Incoming(
        http=msgspec.structs.replace(request_of(request), path=f"/{quote(below)}"),
        body=request.body,
        root=root,
        secure=request.is_secure(),
    )
    session = None if is_file else _session(request, user)
    answer = _dashboard().respond(incoming, session)
    response = HttpResponse(answer.body, status=answer.status)
    for name, value in answer.headers:
        response[name] = value
    return response


def _session(request: HttpRequest, user: Any) -> DashboardSession:
    return DashboardSession(
        id=session_of(request),
        tenant="",
        role="admin" if user.is_superuser else "read",
        name=user.get_username(),
        own=False,
    )


urlpatterns: Final[list[URLPattern]] = [re_path(r"^(?P<below>.*)$", dashboard)]
