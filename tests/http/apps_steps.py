"""Exchanges that are carried out step by step, so that a test can say what happens in between."""

from collections.abc import Awaitable, Callable
from typing import Any

from onefold import Onefold
from onefold.runtime import Command, Runtime
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.body import digested
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import KeyedRoute, RouteRegistry

DONE = HttpResponse(201, (("Content-Type", "text/plain"),), b"done")

Between = Callable[[], Awaitable[None]]


class Interrupted(Runtime):
    """Calls a function before a command: `before[2]` before the third one."""

    def __init__(self, store: Any, before: dict[int, Between]) -> None:
        super().__init__(store)
        self._before = before
        self.commands: list[Command] = []

    async def aperform(self, command: Command) -> Any:
        between = self._before.pop(len(self.commands), None)
        self.commands.append(command)
        if between is not None:
            await between()
        return await super().aperform(command)


class Counter:
    """One route, and attempts at it without a server."""

    def __init__(self, onefold: Onefold, **options: Any) -> None:
        self.registry = RouteRegistry(onefold)
        options["principal"] = str
        self.route: KeyedRoute = self.registry.route(options, name="POST /pay")

    @property
    def claim_step(self) -> int:
        """The number of the command that claims: 1 after a look, 0 if none is needed."""
        is_sqlite = self.registry.runtime.store.database.sql.dialect == "sqlite"
        return 1 if self.route.policy.joined or is_sqlite else 0

    def exchange(
        self, body: bytes = b"{}", key: str = "k", before: dict[int, Between] | None = None
    ) -> Exchange:
        headers = (("idempotency-key", key), ("content-type", "application/json"))
        request = HttpRequest(method="POST", path="/pay", headers=headers)
        return Exchange(
            self.route,
            request,
            digested(body),
            principal="alice",
            tenant=None,
            runtime=Interrupted(self.registry.runtime.store, before or {}),
        )

    async def begin(self, before: dict[int, Between] | None = None) -> HttpResponse | None:
        """Claim, and do no more: the lease is not renewed."""
        exchange = self.exchange(before=before)
        response = await exchange.arun(exchange.begin())
        exchange._stop_renewing()
        return response

    async def carry_out(self) -> HttpResponse:
        """A whole attempt, done."""
        exchange = self.exchange()
        answer: HttpResponse | None = await exchange.arun(exchange.begin())
        if answer is not None:
            return answer
        return await exchange.arun(exchange.finish(DONE))
