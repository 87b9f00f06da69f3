"""Idempotency-Key, webhooks and pushed jobs for FastAPI.

With `transaction=Depends(get_session)` the claim joins the session of the request, which the
endpoint and its dependencies use. A webhook is an argument, not a dependency: code after the
`yield` of a dependency runs too late for the commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

from onefold.errors import Needs

with Needs("onefold[fastapi]"):
    from fastapi import Depends, Request, params, routing
    from starlette.responses import Response
    from starlette.routing import compile_path


from onefold.databases.handler_transaction import Given
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.checks import options_of
from onefold.web import starlette
from onefold.web.asgi import asgi_exchange_of
from onefold.web.idempotency.once_parameter import Once, check_target, once_parameters
from onefold.web.idempotency.openapi_keys import describe
from onefold.web.idempotency.policy import RouteOptions
from onefold.web.starlette import (
    RouteFinder,
    attempted,
    called,
    once_of,
    respond,
    response_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from fastapi import FastAPI

    from onefold.web.idempotency.keyed_routes import F, KeyedRoute
    from onefold.web.webhooks.endpoint import WebhookEndpoint


__all__ = ["Idempotency", "Once", "once_of"]

REQUEST: Final = "onefold_request"
PRINCIPAL: Final = "onefold_principal"
TENANT: Final = "onefold_tenant"
SESSION: Final = "onefold_session"


class Idempotency(starlette.Idempotency):
    """The keys of a FastAPI application."""

    @cached_property
    def finder(self) -> RouteFinder:
        """Finds the routes of the application."""
        return _Finder()

    def install(self, app: FastAPI) -> None:  # type: ignore[override] # a FastAPI is a Starlette
        """Add the middleware, and describe keys and their answers in the OpenAPI document."""
        super().install(app)
        generate, finder = app.openapi, self.finder

        def openapi() -> dict[str, Any]:
            if app.openapi_schema is None:
                document = generate()
                for route, methods, path in finder.routes(app):
                    # Without convertors: `/files/{name:path}` is `/files/{name}` there.
                    described = compile_path(path)[1]
                    describe(document, described, methods, route.policy)
                app.openapi_schema = document
            return app.openapi_schema

        app.openapi = openapi  # type: ignore[method-assign] # as FastAPI's documentation has it

    @options_of(RouteOptions[Callable[..., Any]])
    def __call__(self, *bare: object, **options: Any) -> Callable[[F], F]:
        """Accept idempotency keys on an endpoint: under `@app.post(…)`, on the function.

        `principal` and `tenant` are dependencies, with or without `Depends` around them, that give
        the id of the caller and the owner of the keys. `transaction` may be `Depends(get_session)`:
        the session that this dependency gives to the request. A parameter annotated `Once` is given
        the attempt.
        """
        return self._decorator(bare, options, _wrapped)


class _Finder(RouteFinder):
    """Knows routers that were included, too."""

    def flattened(self, routes: Any) -> Any:
        """Newer versions of FastAPI keep included routers, and expand them here."""
        expand: Any = getattr(routing, "iter_route_contexts", None)
        return routes if expand is None else list(expand(routes))


def _wrapped(endpoint: Callable[..., Any], route: KeyedRoute) -> Callable[..., Any]:
    if not inspect.isfunction(endpoint):
        raise InvalidInput("endpoint", f"must be a function, got {endpoint!r}")
    route.is_plain = not inspect.iscoroutinefunction(endpoint)
    given = route.policy.transaction
    if isinstance(given, params.Depends):
        _check_shared(given, endpoint)
    elif inspect.isasyncgenfunction(given) or inspect.isgeneratorfunction(given):
        raise InvalidInput("transaction", f"must be Depends({given.__name__}) here")
    else:
        check_target(route.target, blocks=route.is_plain)
    takes_once = once_parameters(endpoint)
    own_request = _own_request(endpoint)
    is_given = isinstance(given, params.Depends)

    @wraps(endpoint)
    async def wrapper(**kwargs: Any) -> Any:
        request: Request = kwargs[own_request] if own_request else kwargs.pop(REQUEST)
        principal, tenant = kwargs.pop(PRINCIPAL, None), kwargs.pop(TENANT, None)
        exchange = asgi_exchange_of(request.scope)
        target = Given(kwargs.pop(SESSION)) if is_given else None
        answer = await exchange.begin(route, principal=principal, tenant=tenant, target=target)
        if answer is not None:
            return response_of(answer)

        async def run(once: Once) -> Any:
            # The endpoint has the session from its dependency.
            once.was_used = is_given
            return await called(endpoint, (), {**kwargs, **dict.fromkeys(takes_once, once)})

        return await attempted(exchange, run)

    signature = inspect.signature(endpoint, eval_str=True)
    changed = _changed(signature, takes_once, _added(endpoint, route))
    wrapper.__signature__ = changed  # type: ignore[attr-defined]
    return wrapper


def _check_shared(given: params.Depends, endpoint: Callable[..., Any]) -> None:
    """Reject a session that the endpoint would not share, or that ends before its response."""
    _check_options(given, "transaction")
    for name, parameter in inspect.signature(endpoint, eval_str=True).parameters.items():
        for source in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
            if isinstance(source, params.Depends) and source.dependency is given.dependency:
                _check_options(source, name)


def _check_options(dependency: params.Depends, field: str) -> None:
    if not dependency.use_cache:
        raise ConflictingOptions(
            field, "must not be a Depends with use_cache=False: each gets a session of its own"
        )
    if getattr(dependency, "scope", None) == "function":
        raise ConflictingOptions(
            field,
            'must not be a Depends with scope="function", which ends before the response is'
            " committed",
        )


def _depends(given: Any) -> Any:
    return given if isinstance(given, params.Depends) else Depends(given)


def _own_request(endpoint: Callable[..., Any]) -> str | None:
    """The parameter for the request; FastAPI fills only one."""
    for name, hint in get_type_hints(endpoint).items():
        if name != "return" and inspect.isclass(hint) and issubclass(hint, Request):
            return name
    return None


def _added(endpoint: Callable[..., Any], route: KeyedRoute) -> dict[str, Any]:
    """The parameters of the wrapper, which FastAPI provides."""
    added: dict[str, Any] = {} if _own_request(endpoint) else {REQUEST: Request}
    if route.principal is not None:
        added[PRINCIPAL] = Annotated[Any, _depends(route.principal)]
    if route.tenant is not None:
        added[TENANT] = Annotated[Any, _depends(route.tenant)]
    if isinstance(route.policy.transaction, params.Depends):
        added[SESSION] = Annotated[Any, route.policy.transaction]
    return added


def _changed(
    signature: inspect.Signature, without: Sequence[str], added: dict[str, Any]
) -> inspect.Signature:
    """A signature for FastAPI, which reads it: without some parameters, and with others."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = signature.parameters.items()
    kept = [one.replace(kind=kind) for name, one in parameters if name not in without]
    more = [inspect.Parameter(name, kind, annotation=hint) for name, hint in added.items()]
    return signature.replace(parameters=[*kept, *more])


if TYPE_CHECKING:
    Endpoint = Callable[..., Awaitable[Response]]


def receives(webhook: WebhookEndpoint) -> Callable[[Callable[..., Any]], Endpoint]:
    """Make a path operation of a handler. The parameter annotated `Received` is the event.

    Of a `Receiver`, the parameter annotated `PushedJob` is the job.

    @app.post("/hooks/stripe")
    @receives(payments)
    async def paid(event: Received, mailer: Annotated[Mailer, Depends(mailer)]) -> None: ...
    """

    def decorate(handler: Callable[..., Any]) -> Endpoint:
        signature = inspect.signature(handler, eval_str=True)
        event = _event(signature, handler, webhook.event)

        @wraps(handler)
        async def endpoint(**given: Any) -> Response:
            request: Request = given.pop(REQUEST)

            def handled(received: object) -> Any:
                return handler(**{event: received}, **given)

            async def ahandled(received: object) -> Any:
                return await handler(**{event: received}, **given)

            chosen = ahandled if inspect.iscoroutinefunction(handler) else handled
            return await respond(webhook, request, partial(chosen), ())

        changed = _changed(signature, [event], {REQUEST: Request})
        endpoint.__signature__ = changed.replace(return_annotation=Response)  # type: ignore[attr-defined]
        return endpoint

    return decorate


def _event(signature: inspect.Signature, handler: object, kind: type[Any]) -> str:
    """The name of the parameter that takes the event."""
    found = [name for name, one in signature.parameters.items() if one.annotation is kind]
    if len(found) != 1:
        raise InvalidInput(
            "handler", f"must have one parameter annotated {kind.__name__}, got {handler}"
        )
    return found[0]
