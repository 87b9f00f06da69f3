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
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

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
from onefold.web.webhooks import processing, webhook_apps
from onefold.web.webhooks.provider import BadSignature, verify, why
from onefold.web.webhooks.webhook import Webhook
from onefold.web.webhooks.webhook_apps import AsgiWebhook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from onefold.runtime import Procedure
    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.webhooks.provider import Secrets
    from onefold.web.webhooks.webhook_apps import Work
    from onefold.web.webhooks.webhook_event import Received

    Handler = TypeVar("Handler", bound=Callable[[PushedJob], Any])
    IsNew = Callable[[PushedJob], bool | Awaitable[bool]]

log: logging.Logger = logging.getLogger("onefold.client")

MAX_BODY: Final = 2 * 1024 * 1024
"""Bytes; a payload has up to 1 MiB."""
ACCEPTED: Final = processing.short_response(202)


class Receiver:
    """Receives the jobs of one queue.

        receiver = Receiver("whsec_…", dedupe=onefold, transaction=engine)

        @receiver.process
        def charge(job: PushedJob) -> None:
            job.connection.execute(…)

        app.add_route("/jobs/payments", receiver.asgi, methods=["POST"])     # Starlette, FastAPI

    A handler ends like the handler of any job: `Retry`, `Defer`, `Bury` and `Cancel` work too.
    """

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
        if mode not in ("standard", "ack"):
            raise InvalidInput("mode", f"must be standard or ack, got {mode!r}")
        if mode == "ack" and client is None:
            raise ConflictingOptions("mode", '"ack" needs a client= to send the acks with')
        self._provider = PushedJobs(secrets)
        self._is_new: IsNew | None = None
        self._onefold: Tenant | None = None
        self._webhook: Webhook | None = None
        if isinstance(dedupe, Tenant):
            options: Any = {} if transaction is None else {"transaction": transaction}
            self._onefold = dedupe
            self._webhook = Webhook(
                dedupe, self._provider, name=name, max_body=max_body, guard="off", **options
            )
        else:
            if not callable(dedupe):
                raise InvalidInput("dedupe", f"must be an Onefold or a function, got {dedupe!r}")
            if transaction is not None:
                raise ConflictingOptions("transaction", "needs an Onefold: dedupe=onefold")
            self._is_new = dedupe
        self.mode: Literal["standard", "ack"] = mode
        self.max_body: int = max_body
        self._client = client
        self._handler: Callable[[PushedJob], Any] | None = None

    def process(self, handler: Handler) -> Handler:
        """Decorate the handler of the jobs: a function or a coroutine function."""
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
        """The endpoint as a WSGI application, for a plain handler. In ack mode it runs in threads.

        Create it once: `application = receiver.wsgi`.
        """
        if isinstance(self._client, AsyncClient):
            raise UsageError("A WSGI endpoint cannot await: use a Client, not an AsyncClient.")
        return WsgiReceiver(self)

    @property
    def event(self) -> type[PushedJob]:
        """The type that a handler receives."""
        return PushedJob

    def probed(self, method: str) -> HttpResponse | None:
        """The response to a request that is not a POST."""
        return None if method == "POST" else processing.NOT_ALLOWED

    async def respond(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> tuple[HttpResponse, Work | None]:
        """Check a request and run its job; in ack mode, respond first and run it afterwards."""
        rejected = self.check(request, body)
        if rejected is not None:
            return rejected, None
        work = partial(self.areceive, request, body, handler, arguments)
        return (ACCEPTED, work) if self.mode == "ack" else (await work(), None)

    def check(self, request: HttpRequest, body: bytes) -> HttpResponse | None:
        """Check a request without the database; the response if it is rejected."""
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
        """Run the job of a request that was checked, report its result, and return the response."""
        delivery = _Delivery(self._handled_by(), body, self._onefold)
        webhook = self._webhook
        handle = None if webhook is None else partial(webhook.receive, request, body, delivery.run)
        return Runtime().run(self._receive(delivery, handle))

    async def areceive(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> HttpResponse:
        """`receive`, awaited. A handler that is not a coroutine function runs in a thread."""
        chosen = self._handled_by() if handler is None else handler
        delivery = _Delivery(chosen, body, self._onefold, arguments)
        run = delivery.arun if inspect.iscoroutinefunction(chosen) else delivery.run
        webhook = self._webhook
        handle = None if webhook is None else partial(webhook.areceive, request, body, run)
        return await Runtime().arun(self._receive(delivery, handle))

    def _receive(
        self, delivery: _Delivery, handle: Callable[[], Any] | None
    ) -> Procedure[HttpResponse]:
        if handle is None:
            assert self._is_new is not None
            response = yield from delivery.run_alone(self._is_new)
        else:
            response = yield Call(handle)
        result = push_request.final_result(delivery.result, response, _now())
        client = self._reports(result, delivery.job)
        if client is None:
            return push_request.response_to(result)
        try:
            yield Call(push_request.report, (client, delivery.job, result))
        except OnefoldError as error:
            return _not_reported(delivery.job, result, error)
        return processing.DONE

    def _reports(self, result: PushResult, job: PushedJob) -> Client | AsyncClient | None:
        """The client that reports a result; None if the response expresses it."""
        if self.mode == "standard" and not isinstance(result, Bury | Cancel):
            return None
        if self._client is None:
            log.warning("%r ended with %r. To report that, a receiver needs client=.", job, result)
        return self._client

    def _handled_by(self) -> Callable[[PushedJob], Any]:
        if self._handler is None:
            raise UsageError("This receiver has no handler: decorate one with @receiver.process.")
        return self._handler


class _Delivery:
    """One delivery, and the result of its handler."""

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
        self.result: PushResult | None = None
        """None if the handler did not run: a duplicate, or an error before it."""

    def run(self, received: Received) -> HttpResponse | None:
        """The handler of a webhook. A response other than 2xx rolls its rows back."""
        try:
            returned = self._handler(self._job_of(received), *self._arguments)
        except Outcome as outcome:
            returned = outcome
        except Exception as error:
            self.result = result_of_error(error)
            raise
        return self._ended(returned)

    async def arun(self, received: Received) -> HttpResponse | None:
        """`run`, awaited."""
        try:
            returned = await self._handler(self._job_of(received), *self._arguments)
        except Outcome as outcome:
            returned = outcome
        except Exception as error:
            self.result = result_of_error(error)
            raise
        return self._ended(returned)

    def run_alone(self, is_new: IsNew) -> Procedure[HttpResponse]:
        """Run the handler without a database: `is_new` finds duplicates."""
        try:
            answer: Any = is_new(self.job)
            if inspect.isawaitable(answer):
                answer = yield Call(_awaited, (answer,))
            returned: object = None
            if answer:
                returned = yield Call(self._handler, (self.job, *self._arguments))
        except Exception as error:  # noqa: BLE001 - of the handler
            return self._raised(error)
        return self._ended(returned) or processing.DONE

    def _job_of(self, received: Received) -> PushedJob:
        self.job = PushedJob(self._envelope, self._onefold, received.connection)
        return self.job

    def _raised(self, error: Exception) -> HttpResponse:
        if isinstance(error, Outcome):
            return self._ended(error) or processing.DONE
        log.error("%r failed.", self.job, exc_info=error)
        self.result = result_of_error(error)
        return push_request.response_to(self.result)

    def _ended(self, returned: object) -> HttpResponse | None:
        self.result = result_of(returned)
        if isinstance(self.result, PushDone):
            return None
        # Not 2xx, so that the webhook rolls the rows back and does not store the id.
        return processing.FAILED


class WsgiReceiver:
    """A receiver as a WSGI application."""

    def __init__(self, receiver: Receiver) -> None:
        """Made by `Receiver.wsgi`."""
        self._receiver = receiver
        self._threads: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Receive one request."""
        request = webhook_apps.wsgi_request_of(environ)
        body = webhook_apps.wsgi_read_body(request, environ, self._receiver.max_body)
        rejected = body if not isinstance(body, bytes) else self._receiver.check(request, body)
        if rejected is not None or not isinstance(body, bytes):
            assert rejected is not None
            return _respond(rejected, start_response, head=request.method == "HEAD")
        if self._receiver.mode == "ack":
            self._workers().submit(self._work, request, body)
            return _respond(ACCEPTED, start_response)
        return _respond(self._receiver.receive(request, body), start_response)

    def _work(self, request: HttpRequest, body: bytes) -> None:
        try:
            self._receiver.receive(request, body)
        except Exception:
            # The result of the thread is not read.
            log.exception("A pushed job could not be received.")

    def _workers(self) -> ThreadPoolExecutor:
        """The threads of this process, started with the first job.

        The work is not done in `close()` of the response: some servers send nothing before that.
        """
        with self._mutex:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(thread_name_prefix="onefold-receiver")
            return self._threads


def _respond(
    response: HttpResponse, start_response: StartResponse, *, head: bool = False
) -> list[bytes]:
    start_response(webhook_apps.status_line(response.status), list(response.headers))
    return [b"" if head else response.body]


def _not_reported(job: PushedJob, result: PushResult, error: OnefoldError) -> HttpResponse:
    """The server delivers the job again, and the redelivery reports the same result."""
    if isinstance(error, Conflict):
        log.info("%r has ended on the server before its result was reported: %s", job, error)
        return processing.DONE
    log.warning("The result %r of %r could not be reported: %s", result, job, error)
    return processing.FAILED


async def _awaited(value: Awaitable[bool]) -> bool:
    return await value


def _now() -> datetime:
    return datetime.now(UTC)
