"""One push: a job is sent to the endpoint of its queue, and the answer is what becomes of it."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold import __version__
from onefold.errors import DatabaseError, InvalidInput, OnefoldError
from onefold.model.delivery import Delivery, encode_error
from onefold.model.lifecycle import Event
from onefold.model.moment import span
from onefold.model.outcome import UNTOLD
from onefold.model.served_queue import QueueConfiguration
from onefold.push.address import Endpoint, endpoint
from onefold.push.envelope import body_of, headers_of
from onefold.push.reading import (
    Defer,
    Fail,
    Finish,
    Gone,
    Meaning,
    Park,
    Unanswered,
    failure,
    meaning_of,
    noted,
)
from onefold.surfaces.webhooks.outgoing import Signer
from onefold.surfaces.webhooks.secret import Secret
from onefold.worker.verdict import HANDED_BACK, PARKED, Parked, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from onefold.calls.engine import Engine
    from onefold.declaration import Isolation
    from onefold.effects.run import Run
    from onefold.model.job import Job, Json
    from onefold.model.outcome import Outcome
    from onefold.push.breaker import Breaker
    from onefold.push.reading import Exchange
    from onefold.push.sender import Sender

AGENT: Final = f"onefold/{__version__}"
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

log: logging.Logger = logging.getLogger("onefold.push")


class Route(msgspec.Struct, frozen=True):
    """A queue as a push needs it."""

    configuration: QueueConfiguration
    endpoint: Endpoint | None
    signer: Signer | None
    fault: str | None = None
    """What is wrong with the endpoint, where it is none."""


def route_of(configuration: QueueConfiguration) -> Route:
    """Read the settings of a queue once for all its pushes."""
    secrets = [Secret(text, until=until) for text, until in configuration.secrets]
    try:
        signer = Signer(secrets) if secrets else None
        return Route(configuration, endpoint(configuration.endpoint), signer)
    except InvalidInput as error:
        return Route(configuration, None, None, str(error))


class Pushing:
    """A handler for jobs of every kind."""

    is_async: bool = True
    isolation: Isolation = "thread"
    timeout: timedelta | None = None
    """A push has one of its own, which ends with what was answered rather than with an error."""
    on_dead: Callable[[Job], Any] | None = None
    stores_result: bool = False
    wants_run: bool = False
    kinds: tuple[str, ...] = ("any",)

    def __init__(
        self,
        engine: Engine,
        sender: Sender,
        breaker: Breaker,
        *,
        now: Callable[[], datetime],
        gone: Callable[[str, QueueConfiguration], Awaitable[None]],
        judged: Callable[[str, bool], None],
    ) -> None:
        """`gone` is told of an endpoint that wants nothing more, `judged` whether one answers."""
        self.routes: Mapping[str, Route] = {}
        """By the engine's queue; whoever keeps it up to date replaces it."""
        self._engine = engine
        self._sender = sender
        self._breaker = breaker
        self._now = now
        self._gone = gone
        self._judged = judged

    # --- as a worker sees it --------------------------------------------------------------------

    def get(self, kind: str) -> Pushing:
        """Itself: what a job means is the endpoint's to know."""
        del kind
        return self

    def bind(self, job: Job, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A push takes the job as it is."""
        del run
        return (job,), {}

    def forgives(self, error: BaseException) -> bool:
        """An error is one."""
        del error
        return False

    def outcome_of(self, error: BaseException) -> Outcome | None:
        """It means what it means anywhere."""
        del error
        return None

    def to_json(self, value: Any) -> Json:
        """Never asked: the exchange is what is stored."""
        return value

    # --- the push -------------------------------------------------------------------------------

    async def function(self, job: Job) -> Verdict | Parked:
        """Send the job, and say what becomes of it."""
        route = self.routes.get(job.queue)
        if route is None:
            return HANDED_BACK  # its queue has no endpoint any more
        exchange = await self._exchange(job, route)
        meaning = meaning_of(exchange, mode=route.configuration.mode, now=self._now())
        await self._conclude(job, route, meaning)
        if isinstance(meaning, Park):
            return await self._park(job, route.configuration, exchange)
        return _verdict(exchange, meaning, job.fence)

    async def _exchange(self, job: Job, route: Route) -> Exchange:
        if route.endpoint is None:
            return Unanswered(route.fault or "the queue has no endpoint", 0.0)
        body = body_of(job)
        headers = headers_of(
            job,
            body,
            route.signer,
            now=self._now(),
            agent=AGENT,
            more=route.configuration.headers,
        )
        within = route.configuration.timeout
        return await self._sender.post(route.endpoint, body, headers, within=within)

    async def _conclude(self, job: Job, route: Route, meaning: Meaning) -> None:
        """What the answer says of the endpoint."""
        queue = job.queue
        self._judged(queue, not isinstance(meaning, Fail) or not meaning.is_down)
        match meaning:
            case Defer(after):
                await self._breaker.pressed(queue, after)
            case Fail(is_down=True):
                await self._breaker.down(queue)
            case Gone():
                await self._stop(queue, route.configuration)
            case _:
                await self._breaker.well(job, route.configuration.mode)

    async def _stop(self, queue: str, configuration: QueueConfiguration) -> None:
        try:
            await self._gone(queue, configuration)
        except OnefoldError as error:
            log.warning("The queue %r could not be paused: %s", queue, error)

    async def _park(
        self, job: Job, configuration: QueueConfiguration, exchange: Exchange
    ) -> Parked:
        """Have the job wait for its ack. It may have come already: there is nothing to say then."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._engine.apark(
                    Delivery(job.id, job.fence),
                    ack_timeout=timedelta(seconds=configuration.ack_timeout),
                    dead=configuration.ack_timeout_action == "dead",
                    exchange=_json(noted(exchange, job.fence)),
                )
            except DatabaseError as error:
                # The receiver has it. Whoever gave it up now would have it sent again.
                log.warning("Job %s could not be parked, and is tried again: %s", job.id, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return PARKED


def _verdict(exchange: Exchange, meaning: Meaning, fence: int) -> Verdict:
    if isinstance(meaning, Finish):
        return Verdict(Event.FINISH, _json({"pushed": noted(exchange, fence)}))
    error = failure(exchange, meaning)
    after = meaning.after if isinstance(meaning, Defer) else UNTOLD
    failed = isinstance(meaning, Fail)
    return Verdict(
        Event.FAIL if failed else Event.DEFER,
        after=None if failed else span(after, "after"),
        error=encode_error(error),
        error_type=error["type"],
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
