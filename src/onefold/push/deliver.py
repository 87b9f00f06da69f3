"""One push: a job is sent to the endpoint of its queue, and the response decides about it.

The body starts with the fields of SimpleQ, and the request has two signatures, SimpleQ's and that
of Standard Webhooks: receivers of both kinds can read it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold import __version__
from onefold.errors import DatabaseError, InvalidInput
from onefold.model.checks import shown
from onefold.model.delivery import Delivery, PushEnvelope, encode_error
from onefold.model.ids import milliseconds_of
from onefold.model.lifecycle import Event
from onefold.model.outcome import ErrorRules
from onefold.model.queue import QueueSettings
from onefold.model.timestamps import span
from onefold.model.wire import encode, iso_of
from onefold.push.address import Endpoint, endpoint
from onefold.push.response_policy import (
    NoResponse,
    PushOutcome,
    exchange_error,
    exchange_record,
    outcome_of,
)
from onefold.web.webhooks.provider import Secret, mac
from onefold.web.webhooks.signing import Signer
from onefold.worker.delivery_outcome import HANDED_BACK, PARKED, DeliveryOutcome, Parked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from onefold.app.deliveries import Deliveries
    from onefold.effects.run import Run
    from onefold.jobs.job_function import Isolation
    from onefold.model.job import Job, JobRow
    from onefold.push.endpoint_health import CircuitBreaker
    from onefold.push.response_policy import PushExchange
    from onefold.push.sender import PushSender


FENCE: Final = "Onefold-Fence"
ATTEMPT: Final = "Onefold-Attempt"
AGENT: Final = f"onefold/{__version__}"
SIMPLEQ: Final = "x-simpleq-signature"
OURS: Final = frozenset(
    {
        "accept-encoding", "connection", "content-length", "content-type", "expect", "host",
        "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "webhook-id",
        "webhook-signature", "webhook-timestamp", ATTEMPT.lower(), FENCE.lower(), SIMPLEQ,
    }
)  # fmt: skip
"""Headers that the settings of a queue cannot change."""


ACCEPT: Final = {"Accept": "*/*"}
"""Unless a queue has its own: some firewalls reject requests without it."""
_FIXED: Final = {
    "Content-Type": "application/json",
    "User-Agent": AGENT,
    "Accept-Encoding": "identity",
}


def body_of(job: Job | JobRow) -> bytes:
    """The bytes to send and to sign, the same for all tries of a delivery."""
    return encode(
        PushEnvelope(
            id=job.id,
            queue=shown(job.tenant, job.queue),
            payload_json=msgspec.Raw(job.payload_json),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            defers=job.defers,
            created_at=iso_of(milliseconds_of(job.id)),
            kind=job.kind,
            fence=job.fence,
            generation=job.generation,
        )
    )


def headers_of(
    job: Job | JobRow,
    body: bytes,
    signer: Signer | None,
    *,
    now: datetime,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers of one try: those of the queue, and ours, which take precedence."""
    own = {name: text for name, text in more.items() if name.lower() not in OURS} if more else {}
    headers = _FIXED | own if "accept" in map(str.lower, own) else _FIXED | ACCEPT | own
    headers[FENCE] = str(job.fence)
    headers[ATTEMPT] = str(job.attempt)
    if signer is not None:
        headers.update(signer.sign(id=job.id, body=body, now=now))
        # SimpleQ's adapters use the text of the secret, not the bytes that it encodes.
        secret = _only_secret(signer, now)
        headers[SIMPLEQ] = f"sha256={mac(secret.text.encode(), body).hex()}"
    return headers


def _only_secret(signer: Signer, now: datetime) -> Secret:
    """For a header with one signature: during a rotation, the oldest secret that still signs.

    The receiver knows one secret at a time, and replaces it when the old one expires.
    """
    if len(signer.keys) == 1:
        return signer.keys[0][0]
    alive = [secret for secret, _ in signer.keys if not secret.expired(now)]
    ending = [secret for secret in alive if secret.until is not None]
    return ending[-1] if ending else alive[0]


FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

log: logging.Logger = logging.getLogger("onefold.push")


class PushTarget(msgspec.Struct, frozen=True):
    """A queue as a push needs it."""

    settings: QueueSettings
    endpoint: Endpoint | None
    signer: Signer | None
    fault: str | None = None
    """Why the endpoint cannot be used."""


def target_of(settings: QueueSettings) -> PushTarget:
    """Parse the settings of a queue once for all its pushes."""
    secrets = [Secret(one.secret, until=one.expires_at) for one in settings.secrets]
    try:
        signer = Signer(secrets) if secrets else None
        return PushTarget(settings, endpoint(settings.endpoint), signer)
    except InvalidInput as error:
        return PushTarget(settings, None, None, str(error))


class PushHandler:
    """The handler of a push worker, for jobs of every kind."""

    is_async: bool = True
    isolation: Isolation = "thread"
    timeout: timedelta | None = None
    """None: a push has its own timeout, which stores the exchange as the error."""
    on_dead: Callable[[Job], Any] | None = None
    stores_result: bool = False
    wants_run: bool = False
    rules: ErrorRules = ErrorRules()
    kinds: None = None

    def __init__(
        self,
        deliveries: Deliveries,
        sender: PushSender,
        breaker: CircuitBreaker,
        *,
        now: Callable[[], datetime],
        answered: Callable[[str, bool], None],
    ) -> None:
        """`answered` receives whether the endpoint of a queue has responded."""
        self.function: Callable[..., Any] = self._push
        self.targets: Mapping[str, PushTarget] = {}
        """By queue name; the push worker replaces it."""
        self._deliveries = deliveries
        self._sender = sender
        self._breaker = breaker
        self._now = now
        self._answered = answered

    # --- the interface of a handler -------------------------------------------------------------

    def get(self, kind: str) -> PushHandler:
        """Itself: the endpoint handles jobs of all kinds."""
        del kind
        return self

    def bind(self, job: JobRow, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A push has the row of the job as its only argument."""
        del run
        return (job,), {}

    # --- the push -------------------------------------------------------------------------------

    async def _push(self, job: JobRow) -> DeliveryOutcome | Parked:
        """Send the job and return the outcome of its delivery."""
        target = self.targets.get(job.queue)
        if target is None:
            return HANDED_BACK  # its queue no longer has an endpoint
        exchange = await self._exchange(job, target)
        outcome = outcome_of(exchange, mode=target.settings.mode, now=self._now())
        await self._report_endpoint(job, target, outcome)
        if outcome.action == "await_ack":
            return await self._park(job, target.settings, exchange)
        return _delivery_outcome(exchange, outcome, job.fence)

    async def _exchange(self, job: JobRow, target: PushTarget) -> PushExchange:
        if target.endpoint is None:
            return NoResponse(target.fault or "the queue has no endpoint", 0.0)
        body = body_of(job)
        headers = headers_of(
            job,
            body,
            target.signer,
            now=self._now(),
            more=target.settings.headers,
        )
        within = target.settings.timeout.total_seconds()
        return await self._sender.post(target.endpoint, body, headers, within=within)

    async def _report_endpoint(self, job: JobRow, target: PushTarget, outcome: PushOutcome) -> None:
        """Record whether the endpoint answers, is overloaded, is down, or is gone."""
        queue = job.queue
        self._answered(queue, not outcome.endpoint_failed)
        if outcome.action == "defer":
            await self._breaker.overloaded(queue, outcome.after)
        elif outcome.endpoint_failed:
            await self._breaker.failed(queue)
        elif outcome.action == "pause":
            await self._breaker.gone(queue, target.settings.endpoint or "")
        else:
            await self._breaker.answered(job, target.settings.mode)

    async def _park(self, job: JobRow, settings: QueueSettings, exchange: PushExchange) -> Parked:
        """Let the job wait for its ack. If the ack came already, nothing changes."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._deliveries.apark(
                    Delivery(job.id, job.fence),
                    ack_timeout=settings.ack_timeout,
                    dead=settings.ack_timeout_action == "dead",
                    exchange=_json(exchange_record(exchange, job.fence)),
                )
            except DatabaseError as error:
                # The receiver has the job. Without this state it would be sent again.
                log.warning(
                    "Job %s: waiting for its ack was not stored; retrying: %s", job.id, error
                )
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return PARKED


def _delivery_outcome(exchange: PushExchange, outcome: PushOutcome, fence: int) -> DeliveryOutcome:
    if outcome.action == "finish":
        return DeliveryOutcome(Event.FINISH, _json({"pushed": exchange_record(exchange, fence)}))
    error = exchange_error(exchange, outcome)
    failed = outcome.action == "fail"
    return DeliveryOutcome(
        Event.FAIL if failed else Event.DEFER,
        after=None if failed else span(outcome.after, "after"),
        error=encode_error(error),
        error_type=error["type"],
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
