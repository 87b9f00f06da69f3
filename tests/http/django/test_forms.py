"""Forms in Django's templates: the tag, the session, and what a double click does."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.sessions.backends.file import SessionStore as FileStore
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template import Context, engines
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.test.utils import override_settings
from django.urls import path

from onefold import Onefold
from onefold.django import Idempotency, form_keys, session_of
from onefold.web.forms import Form
from tests.http.scenario_site import Reply
from tests.http.sync_apps import MIDDLEWARE, DjangoSite, WsgiClient

PAGE = '{% load onefold %}<form method="post">{% onefold_key "order" %}<input name="cake"></form>'
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"


@pytest.fixture
def orders() -> list[str]:
    return []


@pytest.fixture
def visit(project_onefold: Onefold, orders: list[str]) -> Callable[..., Reply]:
    """A visitor with cookies; posts a form, or gets its page."""
    idempotency = Idempotency()

    @idempotency(form=Form(form_keys(), "order"), principal=session_of)
    def order(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            template: Any = engines["django"].from_string(PAGE)
            return TemplateResponse(request, template)
        orders.append(request.POST["cake"])
        return HttpResponseRedirect(f"/thanks/{len(orders)}")

    client = WsgiClient(DjangoSite(path("order", order), middleware=[SESSIONS, *MIDDLEWARE]))
    cookies: dict[str, str] = {}

    def send(cake: str | None = None, key: str = "") -> Reply:
        headers = [("Accept", "text/html"), ("Cookie", "; ".join(map("=".join, cookies.items())))]
        body, method = b"", "GET"
        if cake is not None:
            headers.append(("Content-Type", "application/x-www-form-urlencoded"))
            body, method = f"cake={cake}&onefold_key={key}".encode(), "POST"
        reply = client.call(method, "/order", headers, body)
        for line in reply.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            cookies[name] = value
        return reply

    return send


@pytest.fixture(params=["file", "signed_cookies"], autouse=True)
def sessions(request: Any) -> Any:
    """In files or in cookies, so that no tables are needed."""
    engine = f"django.contrib.sessions.backends.{request.param}"
    with override_settings(SESSION_ENGINE=engine, SESSION_SAVE_EVERY_REQUEST=True):
        yield


def key_in(page: Reply) -> str:
    found = re.search(rb'name="onefold_key" value="([^"]+)"', page.body)
    assert found is not None, page
    return found.group(1).decode()


def test_h220_h229_a_page_has_a_fresh_key_and_is_not_cached(visit: Callable[..., Reply]) -> None:
    one, two = visit(), visit()

    assert key_in(one) != key_in(two)
    assert one.headers["cache-control"] == "no-store"


def test_h221_a_double_click_is_one_order(visit: Callable[..., Reply], orders: list[str]) -> None:
    key = key_in(visit())

    first, second = visit("apple", key), visit("apple", key)

    assert [first.status, second.status] == [302, 302]
    assert first.headers["location"] == second.headers["location"] == "/thanks/1"
    assert orders == ["apple"]


def test_h224_a_key_is_not_good_for_every_visitor_without_a_session(
    visit: Callable[..., Reply], orders: list[str]
) -> None:
    request: Any = RequestFactory().get("/")
    request.session = SessionStore()
    key = form_keys().issue("order", session_of(request))

    assert visit("apple", key).status == 400
    assert orders == []


def test_h224_a_page_is_good_after_somebody_has_signed_in() -> None:
    request: Any = RequestFactory().get("/")
    request.session = FileStore()
    before = session_of(request)

    request.session.cycle_key()

    assert session_of(request) == before


def test_without_sessions_it_says_what_to_install() -> None:
    with pytest.raises(ImproperlyConfigured, match="SessionMiddleware into MIDDLEWARE"):
        session_of(RequestFactory().get("/"))


def test_without_the_request_it_says_what_is_missing() -> None:
    template: Any = engines["django"].from_string(PAGE)

    with pytest.raises(ImproperlyConfigured, match="needs the request"):
        template.template.render(Context())
