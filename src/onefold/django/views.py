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
from functools import wraps
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
from onefold.runtime import Runtime
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


def is_form(http_request: Request) -> bool:
    """Whether a key may be in a hidden field."""
    return (http_request.value("content-type") or "").startswith(FORMS)


def body_of(request: HttpRequest) -> Digested:
    """The body; what the middleware has read, if it is there."""
    found: Digested | None = getattr(request, BODY, None)
    if found is not None:
        return found
    try:
        return digested(request.body)
    except RawPostDataException as error:
        raise UsageError(
            "The body of this request was read before its key was. Put"
            " onefold.django.IdempotencyMiddleware into MIDDLEWARE, before whatever reads"
            " it (CsrfViewMiddleware does)."
        ) from error


def keep_body(request: HttpRequest, http_request: Request, policy: RoutePolicy) -> None:
    """Read the whole body, and give it back to Django; a large one is in a file."""
    if hasattr(request, "_body"):
        if len(request.body) > policy.max_request:
            raise Refused(too_large(policy.max_request))
        setattr(request, BODY, digested(request.body))
        return
    length = http_request.content_length
    if length is not None and length > policy.max_request:
        raise Refused(too_large(policy.max_request))
    file, body = spool(request.read, http_request, policy, length=None)
    # As `HttpRequest.body` does, without its limit for memory.
    stream: Any = request
    stream._stream = file  # noqa: SLF001
    stream._read_started = False  # noqa: SLF001
    setattr(request, FILE, file)
    setattr(request, BODY, body)


def close_with(response: HttpResponseBase, request: HttpRequest) -> None:
    """Let go of a body that was kept, when the answer is over."""
    file: Any = getattr(request, FILE, None)
    if file is not None:
        closing: Any = response
        closing._resource_closers.append(file.close)  # noqa: SLF001


def answer_of(response: HttpResponse, body: bytes) -> Answer:
    """A response with its cookies, which Django keeps apart."""
    cookies = tuple((COOKIE, morsel.OutputString()) for morsel in response.cookies.values())
    return Answer(response.status_code, (*response.items(), *cookies), body)


def add_headers(response: HttpResponseBase, headers: tuple[Header, ...]) -> None:
    """Add headers to the response of a view."""
    for name, value in headers:
        response[name.lower()] = value


def response_of(answer: Answer) -> HttpResponse:
    """An answer, as Django sends it: nothing is added to it. ASGI wants names in lower case."""
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in ((name.lower(), value) for name, value in answer.headers):
        if name == COOKIE.lower():
            response.cookies.load(value)
        elif name in response:
            # Django has each header once; lines of one name mean the same joined.
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


def alias_of(target: object) -> object:
    """An alias or a Django connection as `Alias`; other targets unchanged."""
    name = target if isinstance(target, str) else getattr(target, "alias", None)
    return Alias(name) if isinstance(name, str) else target


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

_under_way: Final[set[asyncio.Task[Any]]] = set()
"""Event loops refer to tasks weakly."""


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
            made = _Keyed(view, route, self._alias)
            return made.async_view() if inspect.iscoroutinefunction(view) else made.view()

        return self._decorator(bare, _with_alias(options), wrapped)


def once_of(request: HttpRequest) -> Once:
    """The attempt of the current request."""
    once = getattr(request, _ONCE, None)
    if not isinstance(once, Once):
        raise UsageError("This view has no policy: decorate it with @idempotency(…).")
    return once


def _with_alias(options: dict[str, Any]) -> dict[str, Any]:
    """The options with a Django database as `Alias`."""
    target = options.get("transaction")
    return options if target is None else {**options, "transaction": alias_of(target)}


class _Every(set[str]):
    """Every alias, those that are added later included."""

    def __contains__(self, alias: object) -> bool:
        return True


class _Keyed:
    """A view with a policy."""

    def __init__(
        self,
        view: Callable[..., Any],
        route: KeyedRoute,
        alias: str | None,
    ) -> None:
        route.check()
        check_target(route.target)
        if inspect.isclass(view):
            raise InvalidInput("view", f"must be a function, got {view!r}")
        self._view = view
        self._route = route
        self._alias = alias
        self._takes_once = once_parameters(view)
        self._exempt: frozenset[str] = frozenset(getattr(view, "_non_atomic_requests", ()))

    # --- sync -------------------------------------------------------------------------------------

    def view(self) -> Callable[..., Any]:
        """A view that Django puts no block around: it has its own."""

        @wraps(self._view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.method in SAFE:
                return self._called(None, request, args, kwargs)
            runtime, target = transaction_of(self._route, self._alias)
            http_request = request_of(request)
            exchange = Exchange(
                self._route,
                http_request,
                self._body(request, http_request),
                principal=_value_of(self._route.principal, request),
                tenant=_value_of(self._route.tenant, request),
                runtime=runtime,
                target=target,
            )
            answer = exchange.run(exchange.begin())
            if answer is not None:
                return response_of(answer)
            return self._attempted(exchange, request, args, kwargs)

        wrapper._non_atomic_requests = _Every()  # type: ignore[attr-defined] # noqa: SLF001
        return wrapper

    def _body(self, request: HttpRequest, http_request: Request) -> Digested:
        """The body; not read if the request has no key."""
        policy = self._route.policy
        is_keyed = any(http_request.values(name) for name in policy.key.headers)
        return body_of(request) if is_keyed or (policy.form and is_form(http_request)) else NOTHING

    def _attempted(self, exchange: Exchange, request: HttpRequest, args: Any, kwargs: Any) -> Any:
        self._note(exchange, request)
        try:
            response = self._called(exchange.once, request, args, kwargs)
            _render(response)
            finished = self._finished(exchange, response)
        except Exception as error:
            instead = _left(exchange, request, error) if exchange.is_open else None
            if instead is None:
                raise
            return response_of(instead)
        except BaseException as error:
            exchange.run(exchange.fail(error))
            raise
        return finished

    def _called(self, once: Once | None, request: HttpRequest, args: Any, kwargs: Any) -> Any:
        """Call the view in atomic blocks, as ATOMIC_REQUESTS does; ours is open already."""
        target = self._route.target
        joined = target.name if once is not None and isinstance(target, Alias) else None
        with ExitStack() as stack:
            for alias, settings in connections.settings.items():
                if settings["ATOMIC_REQUESTS"] and alias not in {*self._exempt, joined}:
                    stack.enter_context(transaction.atomic(using=alias))
            more = dict.fromkeys(self._takes_once, once)
            return self._view(request, *args, **{**kwargs, **more})

    def _note(self, exchange: Exchange, request: HttpRequest) -> None:
        setattr(request, _ONCE, exchange.once)
        if isinstance(self._route.target, Alias):
            # All models of that database use the transaction.
            exchange.once.was_used = True

    def _finished(self, exchange: Exchange, response: Any) -> Any:
        if not exchange.is_open:
            return response
        add_headers(response, exchange.added)
        self._undo_if_told(exchange)
        stream = exchange.route.policy.stream
        if not response.streaming:
            return _told(exchange, answer_of(response, response.content), response)
        if stream == "forward":
            pieces = iter(response.streaming_content)
            response.streaming_content = Forwarded(
                exchange, answer_of(response, b""), pieces, _nothing
            )
            return response
        if stream == "tombstone":
            return _told(exchange, answer_of(response, b""), response)
        return response_of(exchange.run(exchange.finish(answer_of(response, b"".join(response)))))

    def _undo_if_told(self, exchange: Exchange) -> None:
        """Roll back if the view has set `needs_rollback`, as Django REST framework does."""
        target = self._route.target
        if isinstance(target, Alias) and connections[target.name].needs_rollback:
            exchange.run(exchange.undo(_RolledBack()))

    # --- async ------------------------------------------------------------------------------------

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
                return await self._view(
                    request, *args, **{**kwargs, **dict.fromkeys(self._takes_once)}
                )
            http_request = request_of(request)
            exchange = Exchange(
                route,
                http_request,
                self._body(request, http_request),
                principal=await _avalue_of(route.principal, request),
                tenant=await _avalue_of(route.tenant, request),
            )
            answer = await exchange.abegin()
            if answer is not None:
                return response_of(answer)
            return await _apart(self._aattempted(exchange, request, args, kwargs), request)

        return wrapper

    async def _aattempted(
        self, exchange: Exchange, request: HttpRequest, args: Any, kwargs: Any
    ) -> Any:
        self._note(exchange, request)
        more = dict.fromkeys(self._takes_once, exchange.once)
        try:
            response = await self._view(request, *args, **{**kwargs, **more})
            _render(response)
            finished = await self._afinished(exchange, response)
        except Exception as error:
            instead = await _aleft(exchange, request, error) if exchange.is_open else None
            if instead is None:
                raise
            return response_of(instead)
        except BaseException as error:
            await exchange.arun(exchange.fail(error))
            raise
        return finished

    async def _afinished(self, exchange: Exchange, response: Any) -> Any:
        if not exchange.is_open:
            return response
        add_headers(response, exchange.added)
        is_buried = exchange.route.policy.stream == "tombstone"
        if response.streaming and not is_buried:
            body = b"".join([piece async for piece in response])
            return response_of(await exchange.arun(exchange.finish(answer_of(response, body))))
        answer = answer_of(response, b"" if response.streaming else response.content)
        final = await exchange.arun(exchange.finish(answer))
        return response if final is answer else response_of(final)


class _RolledBack(Exception):
    """A view has set `needs_rollback`, and has responded."""


def _told(exchange: Exchange, answer: Answer, response: HttpResponse) -> Any:
    final = exchange.run(exchange.finish(answer))
    return response if final is answer else response_of(final)


def _left(exchange: Exchange, request: HttpRequest, error: Exception) -> Answer | None:
    """Leave the exception to the middleware, which sees the response of the project."""
    exchange.run(exchange.undo(error))
    if not getattr(request, IS_WATCHED, False):
        return _logged(exchange, exchange.run(exchange.fail(error)), error)
    setattr(request, PENDING, (exchange, error, exchange.run))
    return None


async def _aleft(exchange: Exchange, request: HttpRequest, error: Exception) -> Answer | None:
    """`_left`, awaited."""
    await exchange.arun(exchange.undo(error))
    if not getattr(request, IS_WATCHED, False):
        return _logged(exchange, await exchange.arun(exchange.fail(error)), error)
    setattr(request, PENDING, (exchange, error, async_to_sync(exchange.arun)))
    return None


def _logged(exchange: Exchange, final: Answer | None, error: Exception) -> Answer | None:
    """Log the error: Django does not, because the view responds."""
    if final is not None and not exchange.is_lost_by(error):
        log.error("A keyed request failed.", exc_info=error)
    return final


async def _apart(work: Coroutine[Any, Any, Any], request: HttpRequest) -> Any:
    """Run to the end: Django cancels a view whose client has disconnected."""
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The middleware does not see an exception any more.
        setattr(request, IS_WATCHED, False)
        task.add_done_callback(_tell)
        raise


def _tell(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("A request failed after its client had gone.", exc_info=error)


def _render(response: Any) -> None:
    """Render a template response now, because it will be stored."""
    render = getattr(response, "render", None)
    if callable(render):
        render()


def _value_of(function: Callable[..., Any] | None, request: HttpRequest) -> Any:
    return None if function is None else function(request)


async def _avalue_of(function: Callable[..., Any] | None, request: HttpRequest) -> Any:
    value = _value_of(function, request)
    return await value if inspect.isawaitable(value) else value


def _nothing() -> None:
    """Django closes its response by itself."""
