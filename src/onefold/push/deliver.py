"""What is sent: the body, which stands for all tries of a delivery, and the headers of one. Pure.

SimpleQ's members come first, and its signature is beside that of Standard Webhooks, so that
receivers of either find what they look for.

One push: a job is sent to the endpoint of its queue, and the answer is what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold import __version__
from onefold.errors import DatabaseError, InvalidInput, OnefoldError
from onefold.model.delivery import Delivery, encode_error
from onefold.model.ids import made_at
from onefold.model.lifecycle import Event
from onefold.model.outcome import UNTOLD
from onefold.model.queue import QueueConfiguration, shown
from onefold.model.timestamps import Iso, span
from onefold.push.address import Endpoint, endpoint
from onefold.push.response_policy import (
    Meaning,
    PushDefer,
    PushFail,
    PushFinish,
    PushGone,
    PushPark,
    Unanswered,
    failure,
    meaning_of,
    noted,
)
from onefold.web.webhooks.provider import Secret, mac
from onefold.web.webhooks.signing import Signer
from onefold.worker.delivery_outcome import HANDED_BACK, PARKED, DeliveryOutcome, Parked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from onefold.calls.engine import Engine
    from onefold.declaration import Isolation
    from onefold.effects.run import Run
    from onefold.model.job import Job, Json
    from onefold.model.outcome import Outcome
    from onefold.push.endpoint_health import Breaker
    from onefold.push.response_policy import PushExchange
    from onefold.push.sender import Sender


FENCE: Final = "Onefold-Fence"
ATTEMPT: Final = "Onefold-Attempt"
SIMPLEQ: Final = "x-simpleq-signature"
OURS: Final = frozenset(
    {
        "accept-encoding", "connection", "content-length", "content-type", "expect", "host",
        "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "webhook-id",
        "webhook-signature", "webhook-timestamp", ATTEMPT.lower(), FENCE.lower(), SIMPLEQ,
    }
)  # fmt: skip
"""Headers that nobody sets but us."""


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """The body, as JSON."""

    id: str
    queue: str
    payload: Any
    attempt: int
    max_attempts: int
    defer_count: int
    created_at: Iso
    kind: str
    fence: int
    generation: int
    """Grows with a fresh replay, by which a receiver tells that from a redelivery."""


_encoder: Final = msgspec.json.Encoder()


def body_of(job: Job) -> bytes:
    """The bytes that are sent, and signed."""
    made = made_at(job.id).astimezone(UTC).isoformat(timespec="milliseconds")
    return _encoder.encode(
        Envelope(
            id=job.id,
            queue=shown(job.tenant, job.queue),
            # As it was stored: a number that only others can have survives.
            payload=msgspec.Raw(job.payload_text.encode()),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            defer_count=job.defers,
            created_at=made.replace("+00:00", "Z"),
            kind=job.kind,
            fence=job.fence,
            generation=job.generation,
        )
    )


def headers_of(
    job: Job,
    body: bytes,
    signer: Signer | None,
    *,
    now: datetime,
    agent: str,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers of one try: what the queue adds, and ours, which win."""
    headers = {name: text for name, text in (more or {}).items() if name.lower() not in OURS}
    headers["Content-Type"] = "application/json"
    headers["User-Agent"] = agent
    headers["Accept-Encoding"] = "identity"
    headers[FENCE] = str(job.fence)
    headers[ATTEMPT] = str(job.attempt)
    if signer is not None:
        headers.update(signer.sign(id=job.id, body=body, now=now))
        # With the text of a secret as it was shown, as SimpleQ's adapters do.
        secret = _only_secret(signer, now)
        headers[SIMPLEQ] = f"sha256={mac(secret.text.encode(), body).hex()}"
    return headers


def _only_secret(signer: Signer, now: datetime) -> Secret:
    """For a header with one signature: while secrets are rotated, the oldest that still signs.

    Its receiver knows one secret at a time, and changes over when the old one ends.
    """
    alive = [secret for secret, _ in signer.keys if not secret.expired(now)]
    ending = [secret for secret in alive if secret.until is not None]
    return ending[-1] if ending else alive[0]


AGENT: Final = f"onefold/{__version__}"
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

log: logging.Logger = logging.getLogger("onefold.push")


class PushTarget(msgspec.Struct, frozen=True):
    """A queue as a push needs it."""

    configuration: QueueConfiguration
    endpoint: Endpoint | None
    signer: Signer | None
    fault: str | None = None
    """What is wrong with the endpoint, where it is none."""


def route_of(configuration: QueueConfiguration) -> PushTarget:
    """Read the settings of a queue once for all its pushes."""
    secrets = [Secret(text, until=until) for text, until in configuration.secrets]
    try:
        signer = Signer(secrets) if secrets else None
        return PushTarget(configuration, endpoint(configuration.endpoint), signer)
    except InvalidInput as error:
        return PushTarget(configuration, None, None, str(error))


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
        self.routes: Mapping[str, PushTarget] = {}
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

    async def function(self, job: Job) -> DeliveryOutcome | Parked:
        """Send the job, and say what becomes of it."""
        route = self.routes.get(job.queue)
        if route is None:
            return HANDED_BACK  # its queue has no endpoint any more
        exchange = await self._exchange(job, route)
        meaning = meaning_of(exchange, mode=route.configuration.mode, now=self._now())
        await self._conclude(job, route, meaning)
        if isinstance(meaning, PushPark):
            return await self._park(job, route.configuration, exchange)
        return _verdict(exchange, meaning, job.fence)

    async def _exchange(self, job: Job, route: PushTarget) -> PushExchange:
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

    async def _conclude(self, job: Job, route: PushTarget, meaning: Meaning) -> None:
        """What the answer says of the endpoint."""
        queue = job.queue
        self._judged(queue, not isinstance(meaning, PushFail) or not meaning.is_down)
        match meaning:
            case PushDefer(after):
                await self._breaker.pressed(queue, after)
            case PushFail(is_down=True):
                await self._breaker.down(queue)
            case PushGone():
                await self._stop(queue, route.configuration)
            case _:
                await self._breaker.well(job, route.configuration.mode)

    async def _stop(self, queue: str, configuration: QueueConfiguration) -> None:
        try:
            await self._gone(queue, configuration)
        except OnefoldError as error:
            log.warning("The queue %r could not be paused: %s", queue, error)

    async def _park(
        self, job: Job, configuration: QueueConfiguration, exchange: PushExchange
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


def _verdict(exchange: PushExchange, meaning: Meaning, fence: int) -> DeliveryOutcome:
    if isinstance(meaning, PushFinish):
        return DeliveryOutcome(Event.FINISH, _json({"pushed": noted(exchange, fence)}))
    error = failure(exchange, meaning)
    after = meaning.after if isinstance(meaning, PushDefer) else UNTOLD
    failed = isinstance(meaning, PushFail)
    return DeliveryOutcome(
        Event.FAIL if failed else Event.DEFER,
        after=None if failed else span(after, "after"),
        error=encode_error(error),
        error_type=error["type"],
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
