"""`Webhook`: one endpoint that receives the events of one sender, each of them once."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onefold.errors import ConflictingOptions, UsageError
from onefold.model.moment import from_micros
from onefold.model.webhook_event import WebhookRejected
from onefold.surfaces.stage import AsyncStage, Close, Stage
from onefold.surfaces.webhooks import answers
from onefold.surfaces.webhooks.asgi import AsgiWebhook
from onefold.surfaces.webhooks.provider import verify
from onefold.surfaces.webhooks.received import Received
from onefold.surfaces.webhooks.reception import Reception
from onefold.surfaces.webhooks.rejection import BadSignature, why
from onefold.surfaces.webhooks.settings import Settings, WebhookOptions, settings
from onefold.surfaces.webhooks.wsgi import WsgiWebhook

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from onefold.app import Tenant
    from onefold.calls.procedure import Conductor
    from onefold.model.webhook_event import WebhookEvent
    from onefold.surfaces.http.answer import Answer
    from onefold.surfaces.http.request import Request
    from onefold.surfaces.webhooks.provider import Provider
    from onefold.surfaces.webhooks.verified import Verified

    Handler = TypeVar("Handler", bound=Callable[..., Any])

log: logging.Logger = logging.getLogger("onefold.surfaces")

PROBES: Final = frozenset({"GET", "HEAD"})


class Webhook:
    """Receives the events of one sender at one endpoint: verify → claim → process.

        payments = Webhook(onefold, Stripe("whsec_…"), name="payments", transaction=engine)

        @payments.process
        def paid(event: Received) -> None:
            event.connection.execute(…)

        app.add_route("/hooks/stripe", payments.asgi, methods=["POST"])     # Starlette, FastAPI

    The handler's rows and the memory of the event are one commit. With `enqueue="stripe.event"` a
    job is stored in that commit instead, and no handler is needed.
    """

    def __init__(
        self,
        onefold: Tenant,
        provider: Provider,
        *,
        name: str,
        **options: Unpack[WebhookOptions],
    ) -> None:
        """`name` tells this endpoint from others; renaming it forgets what was received."""
        self.settings: Settings = settings(onefold, provider, name, options)
        self._handler: Callable[..., Any] | None = None

    def process(self, handler: Handler) -> Handler:
        """Have each event processed by a function, which is given a `Received`.

        It returns None, or an `Answer` that redeliveries are given, too. What it raises undoes its
        rows, and the event comes again; `Refuse` says that it must not.
        """
        if self.settings.enqueue is not None:
            raise ConflictingOptions("enqueue", "is given: the job processes the event")
        if self._handler is not None:
            raise UsageError(f"The webhook {self.settings.name!r} has a handler already.")
        self._handler = handler
        return handler

    @property
    def asgi(self) -> AsgiWebhook:
        """The endpoint as an ASGI application."""
        return AsgiWebhook(self)

    @property
    def wsgi(self) -> WsgiWebhook:
        """The endpoint as a WSGI application."""
        return WsgiWebhook(self)

    @property
    def event(self) -> type[Received]:
        """What a handler is given."""
        return Received

    @property
    def max_body(self) -> int:
        """Bytes of a body; more is 413."""
        return self.settings.max_body

    async def respond(
        self,
        request: Request,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> tuple[Answer, None]:
        """The answer to one request, and nothing to do after it."""
        return await self.areceive(request, body, handler, arguments), None

    def verify(self, request: Request, body: bytes) -> Verified:
        """Check a request; raises `BadSignature`. Nothing is stored."""
        now = from_micros(self._conductor.now())
        return self.settings.dated(verify(self.settings.provider, request, body, now))

    def receive(
        self,
        request: Request,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> Answer:
        """Receive one request, blocking: the answer is for its sender."""
        checked = self.check(request, body)
        if not isinstance(checked, tuple):
            return checked
        stage = Stage(self._conductor, self.settings.transaction)
        reception = self._reception(stage, checked[0], request)
        try:
            return stage.run(reception.scene(self._handled_by(handler), arguments))
        finally:
            stage.perform(Close(commit=False))

    async def areceive(
        self,
        request: Request,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> Answer:
        """`receive`, awaited. A handler that is no coroutine function runs in a thread."""
        checked = self.check(request, body)
        if not isinstance(checked, tuple):
            return checked
        function = self._handled_by(handler)
        is_plain = not inspect.iscoroutinefunction(function)
        stage = AsyncStage(self._conductor, self.settings.transaction, blocks=is_plain)
        reception = self._reception(stage, checked[0], request)
        try:
            return await stage.run(reception.scene(function, arguments))
        finally:
            await stage.perform(Close(commit=False))

    def _reception(
        self, stage: Stage | AsyncStage, verified: Verified, request: Request
    ) -> Reception:
        note = self._conductor.suppressing.note
        return Reception(self.settings, stage, verified, request, tell=self._tell, note=note)

    def check(self, request: Request, body: bytes) -> Answer | tuple[Verified]:
        """What needs no database: an answer, or the event whose signature is good."""
        if (probed := self.probed(request.method)) is not None:
            return probed
        if len(body) > self.settings.max_body:
            return answers.too_large(self.settings.max_body)
        try:
            verified = self.verify(request, body)
        except BadSignature as error:
            return self._rejected(error.code)
        challenge = self.settings.provider.challenge(verified)
        if challenge is not None:
            return answers.echoed(challenge)
        if self._is_too_old(verified):
            self._rejected("event_too_old")
            return answers.TOO_OLD
        return (verified,)

    def probed(self, method: str) -> Answer | None:
        """The answer to what is no POST: somebody has a look whether there is anything here."""
        if method == "POST":
            return None
        if method in PROBES and self.settings.probe == answers.DONE.status:
            return answers.DONE
        return answers.NOT_ALLOWED

    def _rejected(self, code: str) -> Answer:
        provider, name = self.settings.provider.name, self.settings.name
        log.warning("A webhook of %s:%s is rejected: %s (%s).", provider, name, why(code), code)
        self._tell(WebhookRejected(provider, name, code, self.settings.tenant))
        return answers.REJECTED

    def _is_too_old(self, verified: Verified) -> bool:
        oldest = self.settings.oldest
        if oldest is None or verified.occurred_at is None:
            return False
        return verified.occurred_at < from_micros(self._conductor.now()) - oldest

    def _handled_by(self, handler: Callable[..., Any] | None) -> Callable[..., Any]:
        found = self._handler if handler is None else handler
        if found is None and self.settings.enqueue is None:
            raise UsageError(
                f"The webhook {self.settings.name!r} has no handler: say one with @….process, or"
                " enqueue= a job."
            )
        return _nothing if found is None else found

    def _tell(self, event: WebhookEvent) -> None:
        hooks = self._conductor.hooks
        if hooks.wanted:
            hooks.tell(event)

    @property
    def _conductor(self) -> Conductor:
        return self.settings.onefold._conductor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _nothing(*_: Any) -> None:
    """The job does it."""
