"""Idempotency-Key for Django views.

A view without `takeover=` is joined: its claim, its rows and its response are committed together,
also with ATOMIC_REQUESTS. Inside an atomic block that is open already, all of it is part of that
block.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException

from onefold.databases.borrowed import borrow
from onefold.databases.handler_transaction import OpenBlock
from onefold.django.instance import get_onefold, read_settings
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.model.checks import options_of
from onefold.runtime import Call, Runtime, kept_task
from onefold.web.http import HttpRequest as Request
from onefold.web.http import HttpResponse as Answer
from onefold.web.http import wsgi_headers
from onefold.web.idempotency.body import digested, spool
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import SAFE, F, IdempotencyBase
from onefold.web.idempotency.once_parameter import Once, check_target, once_parameters
from onefold.web.idempotency.policy import RouteOptions, RoutePolicy
from onefold.web.problems import Refused, too_large
from onefold.web.wsgi import FORMS, NOTHING, Forwarded

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from django.http.response import HttpResponseBase

    from onefold.app.onefold import Onefold
    from onefold.runtime import Procedure
    from onefold.web.http import Header
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.keyed_routes import KeyedRoute


COOKIE: Final = "Set-Cookie"
BODY: Final = "_onefold_body"
FILE: Final = "_onefold_file"


def request_of(request: HttpRequest) -> Request:
    """The request; without what the project is mounted under."""
    found = request.resolver_match
    return Request(
        method=request.method or "",
        path=quote(request.path_info),
        query=request.META.get("QUERY_STRING", ""),
        route=None if found is None else f"/{found.route}",
        headers=tuple(wsgi_headers(request.META)),
    )


def is_keyed(http_request: Request, policy: RoutePolicy) -> bool:
    """True if a request has a key in a header, or may have one in a hidden field."""
    has_key = any(http_request.values(name) for name in policy.key.headers)
    is_form = (http_request.value("content-type") or "").startswith(FORMS)
    return has_key or (policy.form is not None and is_form)


def body_of(request: HttpRequest) -> Digested:
    """The body, which the middleware may have read."""
    found: Digested | None = getattr(request, BODY, None)
    if found is not None:
        return found
    try:
        return digested(request.body)
    except RawPostDataException as error:
        raise UsageError(
            "The body of this request was read before its key. Put"
            " onefold.django.IdempotencyMiddleware into MIDDLEWARE, before CsrfViewMiddleware and"
            " others that read bodies."
        ) from error


def keep_body(request: HttpRequest, http_request: Request, policy: RoutePolicy) -> None:
    """Read the whole body, and let Django read it again; a large one is in a file."""
    if hasattr(request, "_body"):
        if len(request.body) > policy.max_request:
            raise Refused(too_large(policy.max_request))
        setattr(request, BODY, digested(request.body))
        return
    length = http_request.content_length
    file, body = spool(request.read, http_request, policy, length=length)
    # As `HttpRequest.body` does, without its limit for memory.
    stream: Any = request
    stream._stream = file  # noqa: SLF001
    stream._read_started = False  # noqa: SLF001
    setattr(request, FILE, file)
    setattr(request, BODY, body)


def close_with(response: HttpResponseBase, request: HttpRequest) -> None:
    """Close the file of a body after the response."""
    file: Any = getattr(request, FILE, None)
    if file is not None:
        closing: Any = response
        closing._resource_closers.append(file.close)  # noqa: SLF001


def answer_of(response: HttpResponse, body: bytes) -> Answer:
    """A response of Django, with its cookies."""
    cookies = tuple((COOKIE, morsel.OutputString()) for morsel in response.cookies.values())
    return Answer(response.status_code, (*response.items(), *cookies), body)


def add_headers(response: HttpResponseBase, headers: tuple[Header, ...]) -> None:
    """Add headers to the response of a view."""
    for name, value in headers:
        response[name.lower()] = value


def response_of(answer: Answer) -> HttpResponse:
    """The same response for Django. ASGI requires names in lower case."""
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in ((name.lower(), value) for name, value in answer.headers):
        if name == COOKIE.lower():
            response.cookies.load(value)
        elif name in response:
            # Django has each header once; several values are joined.
            response[name] = f"{response[name]}, {value}"
        else:
            response[name] = value
    return response


class Alias(msgspec.Struct, frozen=True):
    """The alias of a Django database, for `transaction=`."""

    name: str

    def __call__(self) -> Any:
        """This thread's connection to it."""
        return connections[self.name]


def transaction_of(route: KeyedRoute, own: str | None) -> tuple[Runtime | None, object]:
    """The runtime and the target of a request, if they are not those of its route.

    `own` is the alias of Onefold's database. In an atomic block that is open already, all
    statements run inside of that block.
    """
    target = route.target
    if not isinstance(target, Alias):
        if own is not None and connections[own].in_atomic_block:
            raise UsageError(
                "A leased view commits its claim before its work, and an atomic block is open"
                " around it, which would commit the work afterwards. Take the block away; in tests,"
                " use TransactionTestCase."
            )
        return None, None
    connection = connections[target.name]
    if not connection.in_atomic_block:
        return None, None
    return Runtime(borrow(connection, route.registry.context.database)), OpenBlock(connection)


PENDING: Final = "_onefold_pending"
IS_WATCHED: Final = "_onefold_is_watched"
_ONCE: Final = "_onefold_once"

log: logging.Logger = logging.getLogger("onefold.web")


class ProjectOptions(RoutePolicy, frozen=True):
    """What `Idempotency` takes."""

    onefold: Onefold | None = None


class Idempotency(IdempotencyBase):
    """Idempotency keys for the views of a project."""

    @options_of(ProjectOptions)
    def __init__(self, onefold: Onefold | None = None, **defaults: Any) -> None:
        """`defaults` are the options of every view; a view can replace them.

        Without `onefold`, it is the project's. `transaction` may be an alias of DATABASES.
        """
        settings = read_settings()
        self._alias = settings.alias if onefold is None else None
        if self._alias is not None and "takeover" not in defaults:
            defaults.setdefault("transaction", self._alias)
        super().__init__(
            get_onefold() if onefold is None else onefold,
            unconfigured=settings.unconfigured,
            **_with_alias(defaults),
        )

    @options_of(RouteOptions[Callable[[HttpRequest], Any]])
    def __call__(self, *bare: object, **options: Any) -> Callable[[F], F]:
        """Accept idempotency keys on a view; on a class of views with `method_decorator`.

        `principal` returns the id of the caller, `tenant` the owner of the keys. A parameter
        annotated `Once` receives the attempt, and None for a GET.
        """

        def wrapped(view: Callable[..., Any], route: KeyedRoute) -> Callable[..., Any]:
            made = _KeyedView(view, route, self._alias)
            return made.async_view() if made.is_async else made.sync_view()

        return self._decorator(bare, _with_alias(options), wrapped)


def once_of(request: HttpRequest) -> Once:
    """The attempt of the current request."""
    once = getattr(request, _ONCE, None)
    if not isinstance(once, Once):
        raise UsageError("This view has no policy: decorate it with @idempotency(…).")
    return once


def _with_alias(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with an `Alias` for the alias of a database or a Django connection."""
    target = options.get("transaction")
    name = target if isinstance(target, str) else getattr(target, "alias", None)
    return {**options, "transaction": Alias(name)} if isinstance(name, str) else options


class _Every(set[str]):
    """Every alias, those that are added later included."""

    def __contains__(self, alias: object) -> bool:
        return True


class _KeyedView:
    """A view with a policy."""

    def __init__(self, view: Callable[..., Any], route: KeyedRoute, alias: str | None) -> None:
        """`alias` is the one of Onefold's database."""
        route.check()
        check_target(route.target)
        if inspect.isclass(view):
            raise InvalidInput("view", f"must be a function, got {view!r}")
        self._view = view
        self._route = route
        self._alias = alias
        self._takes_once = once_parameters(view)
        self._exempt: frozenset[str] = frozenset(getattr(view, "_non_atomic_requests", ()))
        self.is_async: bool = inspect.iscoroutinefunction(view)

    def sync_view(self) -> Callable[..., Any]:
        """A view that Django puts no atomic block around: it has its own."""

        @wraps(self._view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.method in SAFE:
                return self._bound(None, request, args, kwargs)()
            route = self._route
            runtime, target = transaction_of(route, self._alias)
            exchange = Exchange(
                route,
                *self._request(request),
                **route.caller(request),
                runtime=runtime,
                target=target,
            )
            response = exchange.run(exchange.begin())
            if response is not None:
                return response_of(response)
            return _run(exchange, self._attempt(exchange, request, args, kwargs))

        wrapper._non_atomic_requests = _Every()  # type: ignore[attr-defined] # noqa: SLF001
        return wrapper

    def async_view(self) -> Callable[..., Any]:
        """A coroutine function; Django has no transactions for those."""
        route = self._route
        if isinstance(route.target, Alias):
            raise ConflictingOptions(
                "transaction",
                "is a Django database, and Django has no transactions in async views. Give"
                " takeover=, or an async pool or engine as transaction=, or make the view a plain"
                " function",
            )
        if route.policy.stream == "forward":
            raise ConflictingOptions("stream", "forward is for plain views")

        @wraps(self._view)
        async def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.method in SAFE:
                return await self._bound(None, request, args, kwargs)()
            caller = await route.acaller(request)
            exchange = Exchange(route, *self._request(request), **caller)
            response = await exchange.abegin()
            if response is not None:
                return response_of(response)
            return await _to_end(
                _arun(exchange, self._attempt(exchange, request, args, kwargs)), request
            )

        return wrapper

    def _request(self, request: HttpRequest) -> tuple[Request, Digested]:
        """The request and its body, which is not read if the request has no key."""
        http_request = request_of(request)
        has_key = is_keyed(http_request, self._route.policy)
        return http_request, body_of(request) if has_key else NOTHING

    def _bound(self, once: Once | None, request: HttpRequest, args: Any, kwargs: Any) -> Any:
        """The view with its arguments."""
        more = dict.fromkeys(self._takes_once, once)
        call = partial(self._view, request, *args, **{**kwargs, **more})
        return call if self.is_async else partial(self._call_in_blocks, call, once)

    def _call_in_blocks(self, call: Callable[[], Any], once: Once | None) -> Any:
        """Call the view in atomic blocks, as ATOMIC_REQUESTS does; ours is open already."""
        target = self._route.target
        joined = target.name if once is not None and isinstance(target, Alias) else None
        with ExitStack() as stack:
            for alias, settings in connections.settings.items():
                if settings["ATOMIC_REQUESTS"] and alias not in {*self._exempt, joined}:
                    stack.enter_context(transaction.atomic(using=alias))
            return call()

    def _attempt(
        self, exchange: Exchange, request: HttpRequest, args: Any, kwargs: Any
    ) -> Procedure[Any]:
        """Call the view and store its response."""
        setattr(request, _ONCE, exchange.once)
        if isinstance(self._route.target, Alias):
            # All models of that database use the transaction.
            exchange.once.was_used = True
        try:
            response = yield Call(self._bound(exchange.once, request, args, kwargs))
            if callable(render := getattr(response, "render", None)):
                # A template response is rendered now, because it is stored.
                render()
            return (yield from self._finish(exchange, response))
        except Exception as error:
            instead = None
            if exchange.is_open:
                instead = yield from self._fail(exchange, request, error)
            if instead is None:
                raise
            return response_of(instead)

    def _finish(self, exchange: Exchange, response: Any) -> Procedure[Any]:
        if not exchange.is_open:
            return response
        add_headers(response, exchange.added)
        target, stream = self._route.target, self._route.policy.stream
        if isinstance(target, Alias) and connections[target.name].needs_rollback:
            # Django REST framework sets it in its exception handler.
            yield from exchange.undo(_RolledBack())
        if response.streaming and stream == "forward":
            head, pieces = answer_of(response, b""), iter(response.streaming_content)
            response.streaming_content = Forwarded(exchange, head, pieces, _nothing)
            return response
        if response.streaming and stream == "buffer":
            body = yield Call(_ajoined if self.is_async else b"".join, (response,))
            return response_of((yield from exchange.finish(answer_of(response, body))))
        answer = answer_of(response, b"" if response.streaming else response.content)
        final = yield from exchange.finish(answer)
        return response if final is answer else response_of(final)

    def _fail(
        self, exchange: Exchange, request: HttpRequest, error: Exception
    ) -> Procedure[Answer | None]:
        """Leave the exception to the middleware, which sees the response of the project."""
        yield from exchange.undo(error)
        if getattr(request, IS_WATCHED, False):
            run = async_to_sync(exchange.arun) if self.is_async else exchange.run
            setattr(request, PENDING, (exchange, error, run))
            return None
        final = yield from exchange.fail(error)
        if final is not None and not exchange.is_lost_by(error):
            # Django does not log it, because the view responds.
            log.error("A keyed request failed.", exc_info=error)
        return final


class _RolledBack(Exception):
    """A view has set `needs_rollback`, and has responded."""


async def _ajoined(response: Any) -> bytes:
    return b"".join([piece async for piece in response])


def _run(exchange: Exchange, attempt: Procedure[Any]) -> Any:
    try:
        return exchange.run(attempt)
    except Exception:
        raise
    except BaseException as error:
        exchange.run(exchange.fail(error))
        raise


async def _arun(exchange: Exchange, attempt: Procedure[Any]) -> Any:
    try:
        return await exchange.runtime.arun(attempt)
    except Exception:
        raise
    except BaseException as error:
        await exchange.arun(exchange.fail(error))
        raise


async def _to_end(work: Coroutine[Any, Any, Any], request: HttpRequest) -> Any:
    """Run to the end: Django cancels a view whose client has disconnected."""
    task = kept_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The middleware does not see an exception any more.
        setattr(request, IS_WATCHED, False)
        task.add_done_callback(_log_failure)
        raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("A request failed after its client had gone.", exc_info=error)


def _nothing() -> None:
    """Django closes its response by itself."""
