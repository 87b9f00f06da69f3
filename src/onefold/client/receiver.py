"""`Receiver`: an endpoint to which a server pushes jobs.

1. A request with an invalid signature receives 401; nothing is stored or run.
2. With an Onefold, the id of the job and the handler's rows are one commit. So a redelivery
   receives a response and changes nothing.
3. In standard mode the response is the result. In ack mode the response (202) comes first, then
   the handler runs, and then the result is reported to the server with the fence of the delivery.
"""

from __future__ import annotations

import inspect
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from onefold.app.onefold import Tenant
from onefold.client import push_request
from onefold.client.client import AsyncClient, Client
from onefold.client.push_request import (
    PushDone,
    PushedJob,
    PushedJobs,
    PushResult,
    read_envelope,
    result_of,
    result_of_error,
)
from onefold.errors import Conflict, ConflictingOptions, InvalidInput, OnefoldError, UsageError
from onefold.model.outcome import Bury, Cancel, Outcome
from onefold.runtime import Call, Runtime
from onefold.web.webhooks import responses
from onefold.web.webhooks.endpoint import EndpointDelivery, WebhookEndpoint
from onefold.web.webhooks.processing import WebhookDelivery
from onefold.web.webhooks.provider import verify, why
from onefold.web.webhooks.webhook import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from wsgiref.types import WSGIApplication

    from onefold.runtime import Procedure
    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.webhooks.endpoint import Arguments, Handler
    from onefold.web.webhooks.provider import Secrets
    from onefold.web.webhooks.webhook_event import Received, Verified

    IsNew = Callable[[PushedJob], bool | Awaitable[bool]]

log: logging.Logger = logging.getLogger("onefold.client")

MAX_BODY: Final = 2 * 1024 * 1024
"""Bytes; a payload has up to 1 MiB."""


class Receiver(WebhookEndpoint):
    """Receives the jobs of one queue.

        receiver = Receiver("whsec_…", dedupe=onefold, transaction=engine)

        @receiver.process
        def charge(job: PushedJob) -> None:
            job.connection.execute(…)

        app.add_route("/jobs/payments", receiver.asgi, methods=["POST"])     # Starlette, FastAPI

    A handler ends like the handler of any job: `Retry`, `Defer`, `Bury` and `Cancel` work too.
    """

    event: type[PushedJob] = PushedJob

    def __init__(
        self,
        secrets: Secrets,
        *,
        dedupe: Tenant | IsNew,
        transaction: object = None,
        name: str = "jobs",
        mode: Literal["standard", "ack"] = "standard",
        client: Client | AsyncClient | None = None,
        max_body: int = MAX_BODY,
    ) -> None:
        """`dedupe` is an Onefold, or a function that returns whether a job is new.

        `transaction` is the target of the handler's transaction, as in a `Webhook`. `name`
        distinguishes this endpoint from others of the same database. `client` reports results that
        a response cannot express: it is required in ack mode, and for `Bury` and `Cancel`.
        """
        super().__init__(name, max_body)
        if mode not in ("standard", "ack"):
            raise InvalidInput("mode", f"must be standard or ack, got {mode!r}")
        if mode == "ack" and client is None:
            raise ConflictingOptions("mode", '"ack" needs a client= to send the acks with')
        self.responds_first: bool = mode == "ack"
        self.client: Client | AsyncClient | None = client
        self._provider = PushedJobs(secrets)
        self.dedupe: WebhookSettings | IsNew
        if isinstance(dedupe, Tenant):
            self.dedupe = WebhookSettings(
                dedupe,
                self._provider,
                name=name,
                transaction=transaction,
                guard="off",
                max_body=max_body,
            )
        elif not callable(dedupe):
            raise InvalidInput("dedupe", f"must be an Onefold or a function, got {dedupe!r}")
        elif transaction is not None:
            raise ConflictingOptions("transaction", "needs an Onefold: dedupe=onefold")
        else:
            self.dedupe = dedupe

    @property
    def wsgi(self) -> WSGIApplication:
        """The endpoint as a WSGI application, for a plain handler, which runs in threads."""
        if isinstance(self.client, AsyncClient):
            raise UsageError("A WSGI endpoint cannot await: use a Client, not an AsyncClient.")
        return super().wsgi

    def verify(self, request: HttpRequest, body: bytes) -> Verified:
        """Check the signature of a request; raises `BadSignature`."""
        return verify(self._provider, request, body, _now())

    def rejected(self, code: str) -> None:
        """Log a rejection."""
        log.warning("A pushed job is rejected: %s (%s).", why(code), code)

    def delivery(
        self, verified: Verified, request: HttpRequest, handler: Handler, arguments: Arguments
    ) -> EndpointDelivery:
        """The delivery of a job."""
        return _JobDelivery(self, verified, request, handler, arguments)

    def reporter_of(self, result: PushResult, job: PushedJob) -> Client | AsyncClient | None:
        """The client that reports a result; None if the response expresses it."""
        if not self.responds_first and not isinstance(result, Bury | Cancel):
            return None
        if self.client is None:
            log.warning("%r ended with %r. To report that, a receiver needs client=.", job, result)
        return self.client


class _JobDelivery(EndpointDelivery):
    """One delivery of a job, and the result of its handler."""

    def __init__(
        self,
        receiver: Receiver,
        verified: Verified,
        request: HttpRequest,
        handler: Handler,
        arguments: Arguments,
    ) -> None:
        self._receiver = receiver
        self._handler = handler
        self._arguments = arguments
        self._envelope = read_envelope(verified.body)
        self._job = PushedJob(self._envelope)
        self._result: PushResult | None = None
        """None if the handler did not run: a duplicate, or an error before it."""
        self._claimed: WebhookDelivery | None = None
        if isinstance(receiver.dedupe, WebhookSettings):
            blocking = not inspect.iscoroutinefunction(handler)
            self._claimed = WebhookDelivery(
                receiver.dedupe, verified, request, self._call, blocking=blocking
            )
        super().__init__(Runtime() if self._claimed is None else self._claimed.runtime)

    def process(self) -> Procedure[HttpResponse]:
        """Run the handler and report its result."""
        response = yield from self._run() if self._claimed is None else self._claimed.process()
        result = push_request.final_result(self._result, response, _now())
        client = self._receiver.reporter_of(result, self._job)
        if client is None:
            return push_request.response_to(result)
        try:
            yield Call(push_request.report, (client, self._job, result))
        except OnefoldError as error:
            return _not_reported(self._job, result, error)
        return responses.DONE

    def roll_back(self) -> Procedure[None]:
        """Roll back the transaction if it is open."""
        if self._claimed is not None:
            yield from self._claimed.roll_back()

    def _call(self, received: Received | None) -> Procedure[HttpResponse | None]:
        """Call the handler. A response other than 2xx rolls its rows back."""
        if received is not None:
            self._job = PushedJob(self._envelope, received)
        try:
            returned = yield Call(self._handler, (self._job, *self._arguments))
        except Outcome as outcome:
            returned = outcome
        except Exception as error:
            self._result = result_of_error(error)
            raise
        self._result = result_of(returned)
        return None if isinstance(self._result, PushDone) else responses.FAILED

    def _run(self) -> Procedure[HttpResponse]:
        """Run the handler without a database: a function finds duplicates."""
        is_new = self._receiver.dedupe
        assert not isinstance(is_new, WebhookSettings)
        try:
            answer: Any = is_new(self._job)
            if inspect.isawaitable(answer):
                answer = yield Call(_awaited, (answer,))
            response = (yield from self._call(None)) if answer else None
        except Exception as error:
            log.exception("%r failed.", self._job)
            self._result = result_of_error(error)
            return responses.FAILED
        return response or responses.DONE


def _not_reported(job: PushedJob, result: PushResult, error: OnefoldError) -> HttpResponse:
    """The server delivers the job again, and the redelivery reports the same result."""
    if isinstance(error, Conflict):
        log.info("%r has ended on the server before its result was reported: %s", job, error)
        return responses.DONE
    log.warning("The result %r of %r could not be reported: %s", result, job, error)
    return responses.FAILED


async def _awaited(value: Awaitable[bool]) -> bool:
    return await value


def _now() -> datetime:
    return datetime.now(UTC)
