"""The keyed routes of an application and what they share; a route table without a framework."""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from onefold.effects.lease_keeper import LeaseKeeper
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.model.checks import options_of
from onefold.model.event import KeyAnswered
from onefold.web.idempotency.key import read_key
from onefold.web.idempotency.policy import C, RouteOptions, RoutePolicy, policy
from onefold.web.problems import NOT_CONFIGURED, Refused, make, too_large

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.app.context import Context
    from onefold.app.onefold import Onefold
    from onefold.runtime import Runtime
    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.exchange import Exchange
    from onefold.web.problems import Problem

F = TypeVar("F", bound=Callable[..., Any])

Unconfigured: TypeAlias = Literal["refuse", "ignore"]
"""What happens to a POST or PATCH with a key on a route that has no policy."""

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that have no effect to be repeated."""

KEYED: Final = frozenset({"POST", "PATCH"})
"""Methods whose keys are rejected on routes without a policy."""

KEPT_AWAY: Final = frozenset({"busy", "mismatch", "replayed", "unknown"})
"""Outcomes of requests that did not run because of their key."""

MARK: Final = "__onefold_route__"
"""The attribute of a decorated function that has its `KeyedRoute`."""
DECORATED: Final = "__onefold_decorated__"
"""The same attribute of the function that was decorated."""

log: logging.Logger = logging.getLogger("onefold.web")


def report(routes: Sequence[KeyedRoute], unconfigured: Unconfigured) -> None:
    """Log the guarantee of each route; to the log of uvicorn if the application logs nothing."""
    server = logging.getLogger("uvicorn.error")
    chosen = server if server.hasHandlers() and not log.hasHandlers() else log
    for route in routes:
        chosen.info("%s", route.summary())
    if unconfigured == "ignore":
        log.warning(
            "Keys of requests to routes without a policy are ignored: a client that retries such a"
            " request does not learn that it runs again."
        )


def refuse_bare(given: tuple[object, ...]) -> None:
    """Reject `@idempotency` without parentheses: it would receive the function."""
    if given:
        raise UsageError(
            "Write @idempotency(principal=…, transaction=…) or @idempotency(principal=…,"
            ' takeover="refuse"): a route needs its caller and the place of its effects, by name.'
            f" Without parentheses, idempotency was given {given[0]!r}."
        )


class KeyedRoute:
    """One route with its policy."""

    def __init__(
        self,
        registry: RouteRegistry,
        policy: RoutePolicy,
        *,
        principal: Callable[..., Any] | None,
        tenant: Callable[..., Any] | None,
        name: str | None,
    ) -> None:
        """The framework calls `principal` and `tenant` with its own arguments."""
        self.registry: RouteRegistry = registry
        self.policy: RoutePolicy = policy
        self.principal: Callable[..., Any] | None = principal
        self.tenant: Callable[..., Any] | None = tenant
        self.name: str | None = name
        """The name in the report: the method and the path."""
        self.is_plain: bool = False
        """True if the handler is a plain function in an async application."""
        self.passing: frozenset[int] = frozenset()
        """More statuses that free the key."""
        self.waiters: threading.Semaphore = threading.Semaphore(policy.waiters)
        """Counts the duplicates that wait in this process: each one occupies a worker."""
        self.was_warned: bool = False

    @property
    def target(self) -> object:
        """The target of its transactions; None is our own database."""
        transaction = self.policy.transaction
        return None if transaction is self.registry.onefold else transaction

    @property
    def begins_unkeyed(self) -> bool:
        """True if a request without a key has a transaction, too."""
        return self.policy.joined and not self.policy.required

    def refuse_swapped(self, where: str) -> None:
        """Refuse a route that has the function without its policy: the decorators are swapped."""
        raise UsageError(
            f"{where} has the function {self.name} without its policy, because @idempotency(…)"
            " stands above the decorator of the route. Write the route on top and @idempotency(…)"
            " below it, directly above the function."
        )

    def check(self) -> None:
        """Reject a route without a `principal`."""
        if self.principal is None:
            raise InvalidInput(
                "principal",
                f"is missing for {self.name or 'a route'}: give a function that returns the id of"
                " the caller. Keys belong to one caller; without it, callers who choose the same"
                " key would receive each other's responses. For anonymous callers, return what"
                " distinguishes them (a session, a cart), never a constant.",
            )

    def caller(self, *arguments: Any) -> dict[str, Any]:
        """The principal and the tenant of a request, as arguments of an `Exchange`."""
        principal, tenant = self.principal, self.tenant
        return {
            "principal": None if principal is None else principal(*arguments),
            "tenant": None if tenant is None else tenant(*arguments),
        }

    async def acaller(self, *arguments: Any) -> dict[str, Any]:
        """`caller`, awaited if the functions are coroutine functions."""
        found = self.caller(*arguments)
        for name, value in found.items():
            # Nearly always a text, and `isawaitable` takes as long as the rest of this function.
            if value is not None and type(value) is not str and inspect.isawaitable(value):
                found[name] = await value
        return found

    def refusal(self, problem: Problem, request: HttpRequest, body: Digested) -> HttpResponse:
        """The response to a request that does not run."""
        described = problem.described_by(self.policy.link)
        form = self.policy.form
        page = None if form is None else form.page(request, body, described)
        return described.answer(request) if page is None else page

    def summary(self) -> str:
        """The guarantee, in one line."""
        made = self.policy
        mode = "joined" if made.joined else f"leased, takeover {made.takeover}"
        needed = "required" if made.required else "optional"
        kept = f"{made.retention.total_seconds() / 3600:.3g} h"
        return f"{self.name or '?'}: {made.promises} ({mode}; key {needed}, kept {kept})"


def undecorated(function: Any) -> KeyedRoute | None:
    """The policy of a function that a route has without it; None for any other function."""
    return None if hasattr(function, MARK) else getattr(function, DECORATED, None)


class RouteRegistry:
    """The routes of one application, and what they share."""

    def __init__(
        self,
        onefold: Onefold,
        *,
        unconfigured: Unconfigured = "refuse",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """`defaults` are the options of every route; a route can replace them."""
        if unconfigured not in ("refuse", "ignore"):
            raise InvalidInput("unconfigured", f"must be refuse or ignore, got {unconfigured!r}")
        self.onefold: Onefold = onefold
        self.unconfigured: Unconfigured = unconfigured
        self.defaults: Mapping[str, Any] = {} if defaults is None else defaults
        self.context: Context = onefold.context
        self.runtime: Runtime = self.context.runtime
        self.lease_keeper: LeaseKeeper = LeaseKeeper(self.context)
        self.routes: list[KeyedRoute] = []

    def route(self, options: Mapping[str, Any], *, name: str | None = None) -> KeyedRoute:
        """Make a route of `RouteOptions`; raises if they conflict."""
        rest = {key: options[key] for key in options if key not in {"principal", "tenant"}}
        try:
            made = policy(rest, self.defaults)
        except (ConflictingOptions, InvalidInput) as error:
            if name is not None:
                error.add_note(f"These are the options of {name}.")
            raise
        principal, tenant = options.get("principal"), options.get("tenant")
        route = KeyedRoute(self, made, principal=principal, tenant=tenant, name=name)
        self.routes.append(route)
        return route

    @property
    def key_headers(self) -> set[str]:
        """The names of all headers that may have a key, in lower case."""
        names = {name.lower() for route in self.routes for name in route.policy.key.headers}
        return names | {"idempotency-key"}

    def refuse_early(self, route: KeyedRoute | None, request: HttpRequest) -> HttpResponse | None:
        """The response to a keyed request that is rejected before its body is read."""
        if route is None:
            is_refused = self.unconfigured == "refuse" and request.method in KEYED
            return make(NOT_CONFIGURED).answer(request) if is_refused else None
        limit = route.policy.max_request
        try:
            read_key(request, route.policy.key)
        except Refused as refused:
            problem = refused.problem
        else:
            if (request.content_length or 0) <= limit:
                return None
            problem = too_large(limit)
        return problem.described_by(route.policy.link).answer(request)

    def ended(self, exchange: Exchange) -> None:
        """Report the result of a request to listeners, and log it if it is a duplicate."""
        key, request = exchange.key, exchange.request
        if key is None:
            return
        if exchange.outcome in KEPT_AWAY:
            self.context.duplicate_log.note(key, request.id)
        hooks = self.context.hooks
        if hooks.listeners:
            # An endpoint may have several routes; the request had one.
            name = exchange.route.name if request.route is None else request.operation
            hooks.tell(KeyAnswered(key.surface, name or "", exchange.outcome, key.tenant))

    def warn_of_unused(self, exchange: Exchange) -> None:
        """Warn once if a joined handler does not use its connection."""
        route, was_used = exchange.route, exchange.once.was_used
        is_apart = route.policy.joined and exchange.has_succeeded and not was_used
        if is_apart and not route.was_warned:
            route.was_warned = True
            log.warning(
                "%s is joined, and its handler has not used once.connection: what it writes"
                " on a connection of its own is committed apart from its key.",
                route.name,
            )

    def announce(self) -> None:
        """Check the routes, and log the report."""
        for route in self.routes:
            route.check()
        report(self.routes, self.unconfigured)


class AppOptions(RoutePolicy, frozen=True):
    """What an `Idempotency` takes."""

    onefold: Onefold
    unconfigured: Unconfigured = "refuse"


class IdempotencyBase:
    """What the `Idempotency` of every framework has."""

    @options_of(AppOptions)
    def __init__(
        self, onefold: Onefold, *, unconfigured: Unconfigured = "refuse", **defaults: Any
    ) -> None:
        """`defaults` are the options of every route; a route can replace them.

        A POST or PATCH with a key to a route without a policy receives 400, unless `unconfigured`
        is "ignore".
        """
        self.registry: RouteRegistry = RouteRegistry(
            onefold, unconfigured=unconfigured, defaults=defaults
        )

    def report(self) -> list[str]:
        """The guarantee of each route, one line per route."""
        return [route.summary() for route in self.registry.routes]

    def _decorator(
        self,
        bare: tuple[object, ...],
        options: Mapping[str, Any],
        wrapped: Callable[[Any, KeyedRoute], Any],
    ) -> Callable[[F], F]:
        """Register a route for each decorated function, and wrap it."""
        refuse_bare(bare)

        def decorate(function: F) -> F:
            name = getattr(function, "__qualname__", repr(function))
            route = self.registry.route(options, name=name)
            wrapper: F = wrapped(function, route)
            setattr(wrapper, MARK, route)
            with suppress(AttributeError, TypeError):  # A method, a partial: it has no attributes.
                setattr(function, DECORATED, route)
            return wrapper

        return decorate


UNFOUND: Final = frozenset({307, 308, 401, 403, 404, 405})
"""Statuses that an application may send before its endpoint begins: they free the key."""


class Match(msgspec.Struct, frozen=True):
    """The route of a request."""

    route: KeyedRoute | None = None
    """None if it has no policy."""
    template: str | None = None


class PathOptions(RouteOptions[C], Generic[C], frozen=True):
    """What `add` takes."""

    method: str
    path: str


class PathTable(IdempotencyBase):
    """Routes by their methods and paths, for applications without a framework."""

    @cached_property
    def _rows(self) -> list[tuple[str, re.Pattern[str], str, KeyedRoute]]:
        return []

    def _add(self, method: str, path: str, options: Mapping[str, Any]) -> None:
        route = self.registry.route(options, name=f"{method.upper()} {path}")
        route.passing = UNFOUND
        route.check()
        pattern = "".join(
            "[^/]+" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{[^{}]*\})", path)
        )
        self._rows.append((method.upper(), re.compile(pattern), path, route))

    def _find(self, method: str, path: str) -> Match:
        """The route of a request; the first that was added wins."""
        for wanted, pattern, template, route in self._rows:
            if wanted == method and pattern.fullmatch(path):
                return Match(route, template)
        return Match()
