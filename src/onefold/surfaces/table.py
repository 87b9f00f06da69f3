"""A table of routes, for applications without a framework that would know where requests go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.surfaces.http.desk import Route
from onefold.surfaces.http.policy import PASSING

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.surfaces.http.desk import Desk
    from onefold.surfaces.http.policy import PolicyOptions

UNFOUND: Final = frozenset({307, 308, 401, 403, 404, 405})
"""What an application answers before its endpoint has begun; from outside, nobody can tell."""


class Match(msgspec.Struct, frozen=True):
    """Where a request goes."""

    route: Route | None = None
    """None where nothing is said of it."""
    template: str | None = None


class Table:
    """Routes by their methods and paths."""

    def __init__(self, desk: Desk) -> None:
        """It is empty."""
        self._desk = desk
        self._rows: list[tuple[str, re.Pattern[str], str, Route]] = []

    def add(
        self,
        method: str,
        path: str,
        options: PolicyOptions,
        *,
        principal: Callable[..., Any] | None,
        tenant: Callable[..., Any] | None,
    ) -> None:
        """Say what holds for a route. `{name}` in a path is any text without a slash."""
        name = f"{method.upper()} {path}"
        route = self._desk.route(options, principal=principal, tenant=tenant, name=name)
        route.policy = msgspec.structs.replace(route.policy, passing=PASSING | UNFOUND)
        route.check()
        pattern = "".join(
            "[^/]+" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{[^{}]*\})", path)
        )
        self._rows.append((method.upper(), re.compile(pattern), path, route))

    def find(self, method: str, path: str) -> Match:
        """The route of a request; the first that was added wins."""
        for wanted, pattern, template, route in self._rows:
            if wanted == method and pattern.fullmatch(path):
                return Match(route, template)
        return Match()
