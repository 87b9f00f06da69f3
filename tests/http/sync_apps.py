"""The shop in plain WSGI, Flask and Django, with the same routes as in `apps.py`."""

import asyncio
import logging
from types import ModuleType
from typing import Any

import flask
import httpx
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path as django_path
from django.views.decorators.http import require_http_methods

from onefold import django
from onefold.web import flask as flask_surface
from onefold.web import wsgi
from onefold.web.http import HttpResponse as Answer
from onefold.web.http import status_line
from onefold.web.idempotency.once_parameter import Once
from tests.http.apps import KEYED, UNKEYED
from tests.http.scenario_site import Headers, Reply, Shop


class WsgiClient:
    """Calls an application in a thread of its own."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def request(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        return await asyncio.to_thread(self.call, method, path, headers, body)

    def call(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        transport = httpx.WSGITransport(served(self.app))
        with httpx.Client(transport=transport, base_url="http://shop") as client:
            found = client.request(method, path, headers=list(headers), content=body)
        # Django puts a space before a cookie, which no server would send.
        sent = [(name, value.strip()) for name, value in found.headers.multi_items()]
        return Reply(found.status_code, httpx.Headers(sent), found.content)


def served(app: Any) -> Any:
    """An application, as servers call it: what it raises is a 500."""

    def serve(environ: Any, start_response: Any) -> Any:
        try:
            return app(environ, start_response)
        except Exception:
            logging.getLogger("tests").exception("The application has raised.")
            start_response("500 Internal Server Error", [])
            return [b""]

    return serve


# --- plain WSGI -----------------------------------------------------------------------------------


def wsgi_app(shop: Shop) -> Any:
    """A table of routes around an application that knows no framework."""
    idempotency = wsgi.Idempotency(shop.onefold)
    for method, path in KEYED:
        idempotency.add(
            method,
            path,
            principal=lambda environ: shop.who(environ.get("HTTP_AUTHORIZATION")),
            tenant=lambda environ: environ.get("HTTP_X_TENANT"),
            **shop.options,
        )

    def app(environ: Any, start_response: Any) -> Any:
        once: Once | None = environ.get(wsgi.ONCE)
        if once is not None:
            answer = shop.pay(once, environ["wsgi.input"].read())
            start_response(status_line(answer.status), list(answer.headers))
            return [answer.body]
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) in UNKEYED:
            shop.reads += 1
            start_response("200 OK", [])
            return [b"read"]
        start_response("404 Not Found", [])
        return [b"nothing here"]

    return idempotency.wrap(app)


# --- Flask ----------------------------------------------------------------------------------------


def flask_app(shop: Shop) -> flask.Flask:
    """Views that are functions."""
    app = flask.Flask("shop")
    idempotency = flask_surface.Idempotency(shop.onefold)
    idempotency.init_app(app)

    def who() -> str:
        authorization = flask.request.headers.get("Authorization")
        found = shop.who(authorization)
        if found is None:
            flask.abort(403 if authorization else 401)
        return found

    def tenant() -> str | None:
        return flask.request.headers.get("X-Tenant")

    @idempotency(principal=who, tenant=tenant, **shop.options)
    def pay(once: Once, number: str = "") -> flask.Response:
        answer = shop.pay(once, flask.request.get_data())
        response = flask.Response(answer.body, answer.status)
        response.headers.clear()
        response.headers.extend(list(answer.headers))
        return response

    def read() -> str:
        shop.reads += 1
        return "read"

    for method, path in KEYED:
        rule = path.replace("{", "<").replace("}", ">")
        app.add_url_rule(rule, f"pay {rule}", pay, methods=[method])
    for method, path in UNKEYED:
        app.add_url_rule(path, f"read {method} {path}", read, methods=[method])
    return app


# --- Django ---------------------------------------------------------------------------------------

MIDDLEWARE = ["onefold.django.IdempotencyMiddleware"]


class DjangoSite(WSGIHandler):
    """A project with URLs of its own."""

    def __init__(self, *patterns: Any, middleware: Any = MIDDLEWARE) -> None:
        self.urls = ModuleType("urls")
        self.urls.urlpatterns = list(patterns)  # type: ignore[attr-defined]
        with override_settings(MIDDLEWARE=middleware):
            super().__init__()

    def get_response(self, request: HttpRequest) -> Any:
        """As the urlconf of a request can be its own."""
        request.urlconf = self.urls  # type: ignore[assignment]
        return super().get_response(request)


def django_response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    for name, value in answer.headers:
        if name == "Set-Cookie":
            response.cookies.load(value)
        else:
            response[name] = value
    return response


def django_app(shop: Shop) -> DjangoSite:
    """Views that are functions."""
    idempotency = django.Idempotency(shop.onefold)

    def who(request: HttpRequest) -> str | None:
        return shop.who(request.headers.get("Authorization"))

    def tenant(request: HttpRequest) -> str | None:
        return request.headers.get("X-Tenant")

    @idempotency(principal=who, tenant=tenant, **shop.options)
    def pay(request: HttpRequest, once: Once, number: str = "") -> HttpResponse:
        answer = shop.pay(once, request.body)
        return django_response(answer)

    @require_http_methods(["POST", "PUT", "DELETE"])
    def plain(request: HttpRequest) -> HttpResponse:
        return read(request)

    def read(_request: HttpRequest) -> HttpResponse:
        shop.reads += 1
        return HttpResponse("read")

    def pay_or_read(request: HttpRequest, **more: Any) -> HttpResponse:
        return read(request) if request.method == "GET" else pay(request, **more)

    # What marks a view travels with it, as any decorator's `wraps` has it.
    pay_or_read.__dict__.update(pay.__dict__)
    return DjangoSite(
        django_path("pay", pay_or_read),
        django_path("orders/<number>", pay),
        django_path("other", pay),
        django_path("plain", plain),
    )


WSGI = (wsgi_app, flask_app, django_app)
