"""Exchanges that are carried out step by step, so that a test can say what happens in between."""

from collections.abc import Awaitable, Callable
from typing import Any

from onefold import Onefold
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.body import digested
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import KeyedRoute, RouteRegistry
from onefold.web.stage import AsyncStage, Step

DONE = HttpResponse(201, (("Content-Type", "text/plain"),), b"done")

Between = Callable[[], Awaitable[None]]


class Interrupted(AsyncStage):
    """Has something else happen before its steps: `before[2]` before the third one."""

    def __init__(self, conductor: Any, target: object, before: dict[int, Between]) -> None:
        super().__init__(conductor, target)
        self._before = before
        self.steps: list[Step] = []

    async def perform(self, step: Step) -> Any:
        between = self._before.pop(len(self.steps), None)
        self.steps.append(step)
        if between is not None:
            await between()
        return await super().perform(step)


class Counter:
    """One route, and attempts at it without a server."""

    def __init__(self, onefold: Onefold, **options: Any) -> None:
        self.desk = RouteRegistry(onefold)
        said: Any = options
        self.route: KeyedRoute = self.desk.route(said, principal=str, name="POST /pay")

    def exchange(self, body: bytes = b"{}", key: str = "k") -> Exchange:
        headers = (("idempotency-key", key), ("content-type", "application/json"))
        request = HttpRequest(method="POST", path="/pay", headers=headers)
        return self.desk.exchange(
            self.route, request, digested(body), principal="alice", tenant=None
        )

    def stage(self, before: dict[int, Between] | None = None) -> Interrupted:
        target = self.desk.target(self.route.policy)
        return Interrupted(self.desk.conductor, target, before or {})

    async def begin(self, before: dict[int, Between] | None = None) -> HttpResponse | None:
        """Claim; who claims and does no more has vanished."""
        return await self.stage(before).run(self.exchange().begin())

    async def carry_out(self) -> HttpResponse:
        """A whole attempt, done."""
        stage, exchange = self.stage(), self.exchange()
        answer: HttpResponse | None = await stage.run(exchange.begin())
        if answer is not None:
            return answer
        return await stage.run(exchange.finish(DONE))
