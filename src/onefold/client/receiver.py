"""`Receiver`: an endpoint that jobs are pushed to. Verify, dedupe by the job's id, run, tell.

1. A signature that is not good is 401, before anything is stored or run.
2. With an Onefold, the memory of the job and the handler's rows are one commit: a redelivery is
   answered and does nothing, whatever was lost on the way.
3. In standard mode the answer is the verdict. In ack mode the answer comes first (202), then the
   work, then the word to the server, under the fence of the delivery.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from onefold.app import Tenant
from onefold.client import verdict as verdicts
from onefold.client.client import AsyncClient, Client
from onefold.client.push_apps import WsgiReceiver
from onefold.client.pushed import PushedJob, PushedJobs, read_envelope
from onefold.client.verdict import ACCEPTED, Done, Verdict, Word
from onefold.errors import Conflict, ConflictingOptions, InvalidInput, OnefoldError, UsageError
from onefold.model.outcome import Bury, Cancel, Outcome
from onefold.web.webhooks import processing
from onefold.web.webhooks.provider import BadSignature, verify, why
from onefold.web.webhooks.webhook import Webhook
from onefold.web.webhooks.webhook_apps import AsgiWebhook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.webhooks.provider import Secrets
    from onefold.web.webhooks.webhook_apps import Work
    from onefold.web.webhooks.webhook_event import Received

    Handler = TypeVar("Handler", bound=Callable[[PushedJob], Any])
    Remember = Callable[[PushedJob], bool | Awaitable[bool]]

log: logging.Logger = logging.getLogger("onefold.client")

MAX_BODY: Final = 2 * 1024 * 1024
"""A payload has at most one mebibyte; the rest is around it."""


class Receiver:
    """Receives the jobs of one queue.

        receiver = Receiver("whsec_…", dedupe=onefold, transaction=engine)

        @receiver.process
        def charge(job: PushedJob) -> None:
            job.connection.execute(…)

        app.add_route("/jobs/payments", receiver.asgi, methods=["POST"])     # Starlette, FastAPI

    A handler returns or raises as the handler of any job: `Retry`, `Defer`, `Bury`, `Cancel`.
    """

    def __init__(
        self,
        secrets: Secrets,
        *,
        dedupe: Tenant | Remember,
        transaction: object = None,
        name: str = "jobs",
        mode: Literal["standard", "ack"] = "standard",
        client: Client | AsyncClient | None = None,
        max_body: int = MAX_BODY,
    ) -> None:
        """`dedupe` is an Onefold, or a function that says whether a job is new.

        `transaction` is what the handler's transaction is begun on, as a `Webhook` takes it; `name`
        tells this endpoint from others of the same database. `client` tells the server what an
        answer cannot: it is needed in ack mode, and for `Bury`.
        """
        if mode not in ("standard", "ack"):
            raise InvalidInput("mode", f"must be standard or ack, got {mode!r}")
        if mode == "ack" and client is None:
            raise ConflictingOptions("mode", '"ack" needs a client= to send the acks with')
        self._provider = PushedJobs(secrets)
        self._remember: Remember | None = None
        self._webhook: Webhook | None = None
        if isinstance(dedupe, Tenant):
            options: Any = {} if transaction is None else {"transaction": transaction}
            self._onefold: Tenant | None = dedupe
            self._webhook = Webhook(
                dedupe, self._provider, name=name, max_body=max_body, guard="off", **options
            )
        else:
            if not callable(dedupe):
                raise InvalidInput("dedupe", f"must be an Onefold or a function, got {dedupe!r}")
            if transaction is not None:
                raise ConflictingOptions("transaction", "needs an Onefold: dedupe=onefold")
            self._onefold = None
            self._remember = dedupe
        self.mode: Literal["standard", "ack"] = mode
        self.max_body: int = max_body
        self._client = client
        self._handler: Callable[[PushedJob], Any] | None = None

    def process(self, handler: Handler) -> Handler:
        """Have each job processed by a function, plain or coroutine."""
        if self._handler is not None:
            raise UsageError("This receiver has a handler already.")
        self._handler = handler
        return handler

    @property
    def asgi(self) -> AsgiWebhook:
        """The endpoint as an ASGI application."""
        return AsgiWebhook(self)

    @property
    def wsgi(self) -> WsgiReceiver:
        """The endpoint as a WSGI application, for a plain handler. In ack mode threads do the work.

        Make it once: `application = receiver.wsgi`.
        """
        if isinstance(self._client, AsyncClient):
            raise UsageError("A WSGI endpoint cannot await: give it a Client, not an AsyncClient.")
        return WsgiReceiver(self)

    @property
    def event(self) -> type[PushedJob]:
        """What a handler is given."""
        return PushedJob

    def probed(self, method: str) -> HttpResponse | None:
        """The answer to what is no POST."""
        return None if method == "POST" else processing.NOT_ALLOWED

    async def respond(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> tuple[HttpResponse, Work | None]:
        """Check a request and run its job; in ack mode, answer first and run it afterwards."""
        refused = self.check(request, body)
        if refused is not None:
            return refused, None
        work = partial(self.areceive, request, body, handler, arguments)
        return (ACCEPTED, work) if self.mode == "ack" else (await work(), None)

    def check(self, request: HttpRequest, body: bytes) -> HttpResponse | None:
        """What needs neither database nor handler: a refusal, or None."""
        if (probed := self.probed(request.method)) is not None:
            return probed
        if len(body) > self.max_body:
            return processing.too_large(self.max_body)
        try:
            verify(self._provider, request, body, _now())
        except BadSignature as error:
            log.warning("A pushed job is rejected: %s (%s).", why(error.code), error.code)
            return processing.REJECTED
        return None

    def receive(self, request: HttpRequest, body: bytes) -> HttpResponse:
        """Run the job of a request that was checked, and tell the server; for its answer."""
        delivery = _Delivery(self._handled_by(), body, self._onefold)
        if self._webhook is not None:
            answer = self._webhook.receive(request, body, delivery.run)
        else:
            answer = delivery.alone(self._remember)
        verdict = verdicts.final(delivery.verdict, answer, _now())
        word = self._word(verdict, delivery.job)
        if word is None:
            return verdicts.answer_to(verdict)
        assert isinstance(self._client, Client)
        try:
            getattr(self._client, word.call)(delivery.job.id, **word.options)
        except OnefoldError as error:
            return _untold(delivery.job, verdict, error)
        return processing.DONE

    async def areceive(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> HttpResponse:
        """`receive`, awaited. A handler that is no coroutine function runs in a thread."""
        chosen = self._handled_by() if handler is None else handler
        delivery = _Delivery(chosen, body, self._onefold, arguments)
        if self._webhook is not None:
            run = delivery.arun if delivery.is_async else delivery.run
            answer = await self._webhook.areceive(request, body, run)
        else:
            answer = await delivery.aalone(self._remember)
        verdict = verdicts.final(delivery.verdict, answer, _now())
        word = self._word(verdict, delivery.job)
        if word is None:
            return verdicts.answer_to(verdict)
        call = getattr(self._client, word.call)
        try:
            if isinstance(self._client, Client):
                await asyncio.to_thread(call, delivery.job.id, **word.options)
            else:
                await call(delivery.job.id, **word.options)
        except OnefoldError as error:
            return _untold(delivery.job, verdict, error)
        return processing.DONE

    def _word(self, verdict: Verdict, job: PushedJob) -> Word | None:
        """What the server must be told beside the answer; None where the answer says it."""
        if self.mode == "standard" and not isinstance(verdict, Bury | Cancel):
            return None
        if self._client is None:
            log.warning(
                "%r ended as %r, which a receiver without client= cannot say.", job, verdict
            )
            return None
        return verdicts.word_of(verdict, job)

    def _handled_by(self) -> Callable[[PushedJob], Any]:
        if self._handler is None:
            raise UsageError("This receiver has no handler: say one with @receiver.process.")
        return self._handler


class _Delivery:
    """One delivery on its way through the handler, and what the handler made of it."""

    def __init__(
        self,
        handler: Callable[..., Any],
        body: bytes,
        onefold: Tenant | None,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        self._handler = handler
        self._arguments = arguments
        self._envelope = read_envelope(body)
        self._onefold = onefold
        self.job = PushedJob(self._envelope)
        self.verdict: Verdict | None = None
        """None where the handler was not run: a duplicate, or something was in the way."""

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._handler)

    def run(self, received: Received) -> HttpResponse | None:
        """As the handler of a webhook: an answer that is no 2xx undoes its rows."""
        try:
            returned = self._handler(self._job_of(received), *self._arguments)
        except Outcome as outcome:
            returned = outcome
        except Exception as error:
            self.verdict = verdicts.of_error(error)
            raise
        return self._judged(returned)

    async def arun(self, received: Received) -> HttpResponse | None:
        """`run`, awaited."""
        try:
            returned = await self._handler(self._job_of(received), *self._arguments)
        except Outcome as outcome:
            returned = outcome
        except Exception as error:
            self.verdict = verdicts.of_error(error)
            raise
        return self._judged(returned)

    def alone(self, remember: Remember | None) -> HttpResponse:
        """Without a database: whoever dedupes says whether it is new."""
        assert remember is not None
        try:
            is_new = remember(self.job)
            returned = self._handler(self.job) if is_new else None
        except Exception as error:  # noqa: BLE001 - the handler's
            return self._raised(error)
        return self._judged(returned) or processing.DONE

    async def aalone(self, remember: Remember | None) -> HttpResponse:
        """`alone`, awaited."""
        assert remember is not None
        try:
            is_new = remember(self.job)
            if inspect.isawaitable(is_new):
                is_new = await is_new
            returned = None
            if is_new and self.is_async:
                returned = await self._handler(self.job, *self._arguments)
            elif is_new:
                returned = await asyncio.to_thread(self._handler, self.job, *self._arguments)
        except Exception as error:  # noqa: BLE001 - the handler's
            return self._raised(error)
        return self._judged(returned) or processing.DONE

    def _job_of(self, received: Received) -> PushedJob:
        self.job = PushedJob(self._envelope, self._onefold, received.connection)
        return self.job

    def _raised(self, error: Exception) -> HttpResponse:
        if isinstance(error, Outcome):
            return self._judged(error) or processing.DONE
        log.error("%r failed.", self.job, exc_info=error)
        self.verdict = verdicts.of_error(error)
        return verdicts.answer_to(self.verdict)

    def _judged(self, returned: object) -> HttpResponse | None:
        self.verdict = verdicts.verdict_of(returned)
        if isinstance(self.verdict, Done):
            return None
        # For the webhook, whatever is no 2xx: the rows are undone, and the id is not remembered.
        return processing.FAILED


def _untold(job: PushedJob, verdict: Verdict, error: OnefoldError) -> HttpResponse:
    """The word did not get through: the server asks again, and a redelivery is told the same."""
    if isinstance(error, Conflict):
        log.info("%r is no longer this delivery's: %s", job, error)
        return processing.DONE
    log.warning("The server could not be told that %r ended as %r: %s", job, verdict, error)
    return processing.FAILED


def _now() -> datetime:
    return datetime.now(UTC)
