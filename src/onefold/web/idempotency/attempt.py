"""An attempt: one keyed request, from the claim of its key to its answer, for every framework.

Whoever drives it says what it knows: the request and its body, who asks, what the handler has
answered or raised. What it is told back is what to send.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from onefold.errors import UsageError
from onefold.web.idempotency.exchange import KeyedRequest
from onefold.web.idempotency.once_parameter import Once
from onefold.web.problems import Refused
from onefold.web.stage import AsyncStage, Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.web.http import Header, HttpRequest, HttpResponse
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.exchange import Exchange
    from onefold.web.idempotency.keyed_routes import KeyedRoute, RouteRegistry
    from onefold.web.stage import Scene

log: logging.Logger = logging.getLogger("onefold.web")


class _Attempt:
    """What the two colours share."""

    def __init__(self, desk: RouteRegistry, route: KeyedRoute) -> None:
        self.route: KeyedRoute = route
        self.captures: bool = False
        """True while an answer is expected that is to be stored, or committed."""
        self._desk = desk
        self._exchange: Exchange | None = None
        self._once: Once | None = None
        self._error: BaseException | None = None

    @property
    def added(self) -> tuple[Header, ...]:
        """What the handler's answer has on top of its own headers."""
        return self._exchange.added if self.captures and self._exchange is not None else ()

    @property
    def once(self) -> Once:
        """What the handler is given."""
        if self._once is None:
            raise UsageError("The handler of this request does not run: it has an answer already.")
        return self._once

    def is_lost_by(self, error: BaseException) -> bool:
        """True where the handler has stopped because its key is lost: that is no failure."""
        return self.once.is_lost_by(error)

    def _begun(self, exchange: Exchange, stage: Stage | AsyncStage) -> None:
        policy = self.route.policy
        self._exchange, desk = exchange, self._desk
        self._once = Once(exchange, stage, desk.onefold)
        stage.enter()
        if exchange.claim is not None and not policy.joined:
            self._once.beat = desk.heart.keep(exchange.claim, policy.lease)
        self.captures = stage.is_open or exchange.claim is not None or exchange.unprotected

    def _failed(self, error: BaseException) -> Scene[HttpResponse | None]:
        assert self._exchange is not None
        if self.once.is_lost_by(error):
            return (yield from self._exchange.lose())
        return (yield from self._exchange.fail(error))

    def _answered(self, answer: HttpResponse) -> Scene[HttpResponse]:
        assert self._exchange is not None
        if self.once.is_lost_by(self._error):
            return self._exchange.lose()
        return self._exchange.finish(answer, self._error)

    def _ended(self) -> None:
        self.captures = False
        assert self._exchange is not None
        assert self._once is not None
        if self._once.beat is not None:
            self._desk.heart.let_go(self._once.beat)
        self._desk.ended(self.route, self._exchange)
        self._desk.warn_of_unused(self.route, self._once)


class Attempt(_Attempt):
    """In a thread, from its begin to its end."""

    def __init__(self, desk: RouteRegistry, route: KeyedRoute, stage: Stage | None = None) -> None:
        """`stage` is where a framework has its own way to begin a transaction."""
        super().__init__(desk, route)
        self._stage: Stage = (
            Stage(desk.conductor, desk.target(route.policy)) if stage is None else stage
        )

    def begin(
        self, request: HttpRequest, body: Digested, *, principal: object, tenant: object
    ) -> HttpResponse | None:
        """Claim the key. None means that the handler is to run; otherwise this is the answer."""
        route, desk = self.route, self._desk
        try:
            exchange = desk.exchange(route, request, body, principal=principal, tenant=tenant)
            answer = self._stage.run(exchange.begin())
        except Refused as refused:
            return KeyedRequest(request, body, None).refusal(refused.problem, route.policy)
        if answer is None:
            self._begun(exchange, self._stage)
        else:
            desk.ended(route, exchange)
        return answer

    def undo(self, error: BaseException) -> None:
        """The handler has raised: what it has written must not stay, whatever is answered."""
        self._error = error
        if self.captures:
            assert self._exchange is not None
            self._stage.run(self._exchange.undo())

    def fail(self, error: BaseException) -> HttpResponse | None:
        """The handler has raised, and nothing came of it that could be stored.

        The answer to send; None means that the application answers. Either way the exception is
        for its logs, unless `is_lost_by` is true of it.
        """
        if not self.captures:
            return None
        try:
            return self._stage.run(self._failed(error))
        finally:
            self._ended()

    def finish(self, answer: HttpResponse) -> HttpResponse:
        """Store the answer; what is to be sent is most often this very one."""
        if not self.captures:
            return answer
        assert self._exchange is not None
        try:
            told = self._stage.run(self._answered(answer))
        finally:
            self._ended()
        return told


class AsyncAttempt(_Attempt):
    """In an event loop. What must come to its end does, though its task is cancelled."""

    def __init__(
        self, desk: RouteRegistry, route: KeyedRoute, stage: AsyncStage | None = None
    ) -> None:
        """`stage` is where somebody has another way to carry it out."""
        super().__init__(desk, route)
        if stage is None:
            stage = AsyncStage(desk.conductor, desk.target(route.policy), blocks=route.is_plain)
        self._stage: AsyncStage = stage

    async def begin(
        self,
        request: HttpRequest,
        body: Digested,
        *,
        principal: object,
        tenant: object,
        gone: Callable[[], Awaitable[object]] | None = None,
    ) -> HttpResponse | None:
        """Claim the key. None means that the handler is to run; otherwise this is the answer.

        `gone` returns when nobody waits for it any more.
        """
        route, desk = self.route, self._desk
        try:
            exchange = desk.exchange(route, request, body, principal=principal, tenant=tenant)
            answer = await self._claimed(exchange, gone)
        except Refused as refused:
            return KeyedRequest(request, body, None).refusal(refused.problem, route.policy)
        if answer is None:
            self._begun(exchange, self._stage)
        else:
            desk.ended(route, exchange)
        return answer

    async def _claimed(
        self, exchange: Exchange, gone: Callable[[], Awaitable[object]] | None
    ) -> HttpResponse | None:
        """To its end: a claim that nobody knows of would hold its key for a lease."""
        # Most answers of retries need no claim, and no task to protect it.
        told = await self._stage.run(exchange.glance())
        if told is not None:
            return told
        begun = asyncio.ensure_future(self._stage.run(exchange.begin()))
        try:
            if gone is not None and exchange.policy.wait is not None:
                await _either(begun, gone())
                exchange.is_hurried = True
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            exchange.is_hurried = True
            await asyncio.shield(asyncio.ensure_future(self._give_back(exchange, begun)))
            raise

    async def _give_back(self, exchange: Exchange, begun: Awaitable[HttpResponse | None]) -> None:
        try:
            if await begun is None:
                await self._stage.run(exchange.give_back())
        except Exception as error:  # noqa: BLE001 - the lease ends by itself
            log.warning("The key of a request that was cancelled is not free yet: %s", error)

    async def undo(self, error: BaseException) -> None:
        """The handler has raised: what it has written must not stay, whatever is answered."""
        self._error = error
        if self.captures:
            assert self._exchange is not None
            await self._run(self._exchange.undo())

    async def fail(self, error: BaseException) -> HttpResponse | None:
        """The handler has raised, and nothing came of it that could be stored.

        The answer to send; None means that the application answers. Either way the exception is
        for its logs, unless `is_lost_by` is true of it.
        """
        if not self.captures:
            return None
        try:
            told: HttpResponse | None = await self._run(self._failed(error))
        finally:
            self._ended()
        return told

    async def finish(self, answer: HttpResponse) -> HttpResponse:
        """Store the answer; what is to be sent is most often this very one."""
        if not self.captures:
            return answer
        assert self._exchange is not None
        try:
            told: HttpResponse = await self._run(self._answered(answer))
        finally:
            self._ended()
        return told

    async def _run(self, scene: Scene[Any]) -> Any:
        return await asyncio.shield(asyncio.ensure_future(self._stage.run(scene)))


async def _either(one: Awaitable[Any], other: Awaitable[Any]) -> None:
    """Until one of them is there; the other one is not waited for."""
    two = asyncio.ensure_future(other)
    try:
        await asyncio.wait({asyncio.ensure_future(one), two}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        two.cancel()
