"""Idempotency-Key and webhooks for Flask."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from onefold.errors import Needs

with Needs("onefold[flask]"):
    import flask
    from werkzeug.exceptions import HTTPException
    from werkzeug.routing import RequestRedirect


from onefold.errors import InvalidInput, UsageError
from onefold.model.checks import options_of
from onefold.web.http import HttpResponse
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import (
    MARK,
    SAFE,
    F,
    IdempotencyBase,
    Match,
    undecorated,
)
from onefold.web.idempotency.once_parameter import Once, check_target, once_parameters
from onefold.web.idempotency.policy import RouteOptions
from onefold.web.wsgi import BODY, NOTHING, Forwarded, IdempotencyMiddleware, request_of

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from onefold.web.idempotency.keyed_routes import KeyedRoute
    from onefold.web.webhooks.webhook import Webhook


__all__ = ["Idempotency", "Once", "once_of"]


class Idempotency(IdempotencyBase):
    """The keys of a Flask application."""

    _finder: _Finder | None = None

    def init_app(self, app: flask.Flask) -> None:
        """Wrap the application in the middleware, which reads bodies first."""
        self._finder = _Finder(app)
        middleware = IdempotencyMiddleware(app.wsgi_app, self.registry, self._finder)
        app.wsgi_app = middleware  # type: ignore[method-assign] # as Flask's documentation has it

    @options_of(RouteOptions[Callable[[], Any]])
    def __call__(self, *bare: object, **options: Any) -> Callable[[F], F]:
        """Accept idempotency keys on a view: under `@app.post(…)`, on the function.

        `principal` returns the id of the caller, `tenant` the owner of the keys; both may use
        `flask.request` and `flask.g`. A parameter annotated `Once` receives the attempt, and None
        for a GET.
        """
        return self._decorator(bare, options, _wrapped)

    def report(self) -> list[str]:
        """The guarantee of each view, one line per view."""
        if self._finder is not None:
            self._finder.collect()
        return super().report()


def once_of() -> Once:
    """The attempt of the current request."""
    once = flask.g.get("onefold_once")
    if not isinstance(once, Once):
        raise UsageError("This view has no policy: decorate it with @idempotency(…).")
    return once


def _wrapped(view: Callable[..., Any], route: KeyedRoute) -> Callable[..., Any]:
    if inspect.isclass(view):
        raise InvalidInput("view", f"must be a function, or a method of a view, got {view!r}")
    route.check()
    check_target(route.target)
    takes_once = once_parameters(view)

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        request = flask.request
        if request.method in SAFE:
            return _made(view, args, {**kwargs, **dict.fromkeys(takes_once)})
        rule = None if request.url_rule is None else request.url_rule.rule
        exchange = Exchange(
            route,
            request_of(request.environ, rule),
            request.environ.get(BODY, NOTHING),
            **route.caller(),
        )
        answer = exchange.run(exchange.begin())
        if answer is not None:
            return _response(answer)
        flask.g.onefold_once = exchange.once
        return _attempted(
            exchange, view, args, {**kwargs, **dict.fromkeys(takes_once, exchange.once)}
        )

    return wrapper


def _made(view: Callable[..., Any], args: Any, kwargs: Any) -> flask.Response:
    """The response of the view."""
    app: flask.Flask = flask.current_app
    return app.make_response(app.ensure_sync(view)(*args, **kwargs))


def _attempted(exchange: Exchange, view: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        response = _made(view, args, kwargs)
    except Exception as error:  # noqa: BLE001 - the application handles it
        exchange.run(exchange.undo(error))
        response = _handled(exchange, error)
    except BaseException as error:
        exchange.run(exchange.fail(error))
        raise
    return _finished(exchange, response)


def _handled(exchange: Exchange, error: Exception) -> flask.Response:
    """The response of the application's error handlers; raises if there is none."""
    app: flask.Flask = flask.current_app
    try:
        return app.make_response(app.handle_user_exception(error))
    except Exception as left:  # noqa: BLE001 - raised again where it is not answered
        return _failed(exchange, left)


def _failed(exchange: Exchange, error: Exception) -> flask.Response:
    """The response that is stored for a failure; raises if Flask responds itself."""
    proxy: Any = flask.current_app
    app: flask.Flask = proxy._get_current_object()  # noqa: SLF001 - as Flask's documentation has it
    final, is_lost = exchange.run(exchange.fail(error)), exchange.is_lost_by(error)
    configured: bool | None = proxy.config["PROPAGATE_EXCEPTIONS"]
    propagates = (app.testing or app.debug) if configured is None else configured
    if final is None or (propagates and not is_lost):
        raise error
    if not is_lost:
        # As Flask does when it responds with 500.
        flask.got_request_exception.send(app, _async_wrapper=app.ensure_sync, exception=error)
        app.log_exception(sys.exc_info())
    return _response(final)


def _finished(exchange: Exchange, response: flask.Response) -> flask.Response:
    if not exchange.is_open:
        return response
    for name, value in exchange.added:
        response.headers.add(name, value)
    head = HttpResponse(response.status_code, tuple(response.headers.items()))
    stream = exchange.route.policy.stream
    if stream == "forward" and response.is_streamed:
        response.response = Forwarded(exchange, head, response.iter_encoded())
        return response
    try:
        response.direct_passthrough = False
        body = b"" if stream == "tombstone" else response.get_data()
    except Exception as error:  # noqa: BLE001 - raised again where it is not answered
        return _failed(exchange, error)
    except BaseException as error:
        exchange.run(exchange.fail(error))
        raise
    # Read again: `get_data` has set Content-Length.
    answer = HttpResponse(response.status_code, tuple(response.headers.items()), body)
    final = exchange.run(exchange.finish(answer))
    return response if final is answer else _response(final)


def _response(answer: HttpResponse) -> flask.Response:
    """A response for Flask, with no other headers."""
    response: flask.Response = flask.current_app.response_class(answer.body, answer.status)
    response.headers.clear()
    for name, value in answer.headers:
        response.headers.add(name, value)
    return response


class _Finder:
    """Finds routes in the URL map of the application."""

    def __init__(self, app: flask.Flask) -> None:
        self._app = app

    def find(self, environ: WSGIEnvironment) -> Match | None:
        """The view that the application will call, and its policy."""
        app = self._app
        try:
            adapter = app.create_url_adapter(app.request_class(environ))
            assert adapter is not None
            rule, _ = adapter.match(return_rule=True)
        except (HTTPException, RequestRedirect):
            return None
        method: str = environ["REQUEST_METHOD"]
        view = _of_method(app.view_functions[rule.endpoint], method)
        return Match(getattr(view, MARK, None), rule.rule)

    def collect(self) -> None:
        """Name the routes by their methods and paths."""
        views = self._app.view_functions
        kept = {getattr(view, MARK, None) for view in views.values()}
        for rule in self._app.url_map.iter_rules():
            swapped = undecorated(views.get(rule.endpoint))
            if swapped is not None and swapped not in kept:
                swapped.refuse_swapped(rule.rule)
            view = self._app.view_functions.get(rule.endpoint)
            methods = sorted((rule.methods or set()) - SAFE)
            for method in methods or ["GET"]:
                route: KeyedRoute | None = getattr(_of_method(view, method), MARK, None)
                if route is None:
                    continue
                if not methods:
                    raise InvalidInput("idempotency", f"is not for GET: {rule.rule} has no effect")
                shared = hasattr(view, MARK)
                route.name = f"{'|'.join(methods) if shared else method} {rule.rule}"


def _of_method(view: Any, method: str) -> Any:
    """The function for a method: an attribute if the view is a class."""
    found = getattr(view, "view_class", None)
    if found is None or hasattr(view, MARK):
        return view
    return getattr(found, method.lower(), None)


def receives(webhook: Webhook) -> Callable[[Callable[..., Any]], Callable[..., flask.Response]]:
    """Make a view from a handler, which receives the event and the variables of the route.

    @app.post("/hooks/stripe")
    @receives(payments)
    def paid(event: Received) -> None: ...

    Nothing may read the body before, for example a `before_request` that uses `request.form`.
    """

    def decorate(handler: Callable[..., Any]) -> Callable[..., flask.Response]:
        @wraps(handler)
        def view(**variables: Any) -> flask.Response:
            call = partial(handler, **variables)
            answer = webhook.respond_wsgi(flask.request.environ, call)
            return flask.Response(answer.body, answer.status, list(answer.headers))

        return view

    return decorate
