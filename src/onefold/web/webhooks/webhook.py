"""`Webhook`: an endpoint that processes each event of one sender once, and its settings."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onefold.app.onefold import Tenant
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.jobs.enqueue_options import EnqueueOptions
from onefold.model import checks
from onefold.model.checks import options_of
from onefold.model.event import WebhookRejected
from onefold.model.timestamps import from_micros, span, to_micros
from onefold.runtime import Call
from onefold.web.http import HttpResponse
from onefold.web.webhooks import responses
from onefold.web.webhooks.endpoint import WebhookEndpoint
from onefold.web.webhooks.processing import WebhookDelivery
from onefold.web.webhooks.provider import Provider, verify, why
from onefold.web.webhooks.webhook_event import Received, Verified

if TYPE_CHECKING:
    from onefold.model.event import WebhookEvent
    from onefold.runtime import Procedure
    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.endpoint import Arguments, EndpointDelivery, F, Handler

RETENTION: Final = timedelta(days=30)
MAX_BODY: Final = 1024 * 1024
PROBES: Final = frozenset({"GET", "HEAD"})
_MOMENT: Final = timedelta(microseconds=1)

log: logging.Logger = logging.getLogger("onefold.web")


class SecondKey(msgspec.Struct, frozen=True):
    """Another key that identifies an event: of two events with the same one, one is processed."""

    of: Callable[[Verified], str | None]
    """Returns the key of an event; None if it has none."""
    window: timedelta = timedelta(minutes=5)
    """How long the key is stored."""

    def __post_init__(self) -> None:
        span(self.window, "window", least=_MOMENT)


class _Source(msgspec.Struct, frozen=True):
    """The positional arguments of a `Webhook`."""

    onefold: Tenant
    provider: Provider


class WebhookSettings(_Source, frozen=True, kw_only=True):
    """The arguments of a `Webhook`."""

    name: str
    """Identifies this endpoint. After it is renamed, old events are processed again."""
    transaction: object = None
    """Where the handler's transaction begins: an engine, a pool, a session maker, or a function
    that returns one. None: Onefold's own database."""
    enqueue: str | None = None
    """The kind of a job to enqueue for each event, instead of processing it here."""
    enqueue_options: EnqueueOptions = {}
    """`queue`, `priority` and other options of that job."""
    retention: timedelta = RETENTION
    """How long an event is remembered: longer than its sender retries, also by hand."""
    reused_id: Literal["refuse", "ignore", "process"] = "refuse"
    """An event with the id of another event: reject it, respond with 2xx and ignore it, or process
    it. Listeners receive a `WebhookAlarm` in each case."""
    guard: Literal["drop", "flag", "off"] = "drop"
    """A body that was received under another id, if ids are not signed: respond with 2xx and ignore
    it, or process it with `event.suspect`. Listeners receive a `WebhookAlarm` in both cases."""
    guard_window: timedelta = RETENTION
    """How long the digests of bodies are stored."""
    second_key: SecondKey | None = None
    oldest: timedelta | None = None
    """Reject events that are older by their own time, also if their signature is new."""
    occurred_at: Callable[[Verified], datetime | None] | None = None
    """Returns the time of an event, if its provider does not."""
    order_retention: timedelta | None = None
    """How long `is_newest` stores an object after its last event; None: for ever."""
    max_body: int = MAX_BODY
    """Bytes; more is 413."""
    probe: Literal[200, 405] = 405
    """The status of the response to GET and HEAD."""

    def __post_init__(self) -> None:
        _check_kind("onefold", self.onefold, Tenant, "an Onefold or a tenant of one")
        _check_kind("provider", self.provider, Provider, "a provider such as Stripe(…)")
        if ":" in checks.name(self.name, "name"):
            raise InvalidInput("name", f"must not contain a colon, got {self.name!r}")
        if self.second_key is not None:
            _check_kind("second_key", self.second_key, SecondKey, "a SecondKey")
        if self.enqueue is not None:
            checks.name(self.enqueue, "enqueue")
        elif self.enqueue_options:
            raise ConflictingOptions("enqueue_options", "are for a webhook with enqueue=")
        self._check_values()

    def _check_values(self) -> None:
        for field in ("retention", "guard_window"):
            span(getattr(self, field), field, least=_MOMENT)
        for field in ("oldest", "order_retention"):
            if getattr(self, field) is not None:
                span(getattr(self, field), field, least=_MOMENT)
        size: object = self.max_body
        if type(size) is not int or size < 0:
            raise InvalidInput("max_body", f"must be a whole number from 0 on, got {size!r}")
        for field, known in _CHOICES.items():
            value: object = getattr(self, field)
            if value not in known:
                choices = ", ".join(map(str, known))
                raise InvalidInput(field, f"must be one of {choices}, got {value!r}")

    @property
    def tenant(self) -> str:
        """The tenant of the events."""
        return self.onefold.context.tenant

    def report(self, event: WebhookEvent) -> None:
        """Send an event to the listeners."""
        self.onefold.context.hooks.tell(event)


def _check_kind(field: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise InvalidInput(field, f"must be {what}, got {value!r}")


_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "reused_id": ("refuse", "ignore", "process"),
    "guard": ("drop", "flag", "off"),
    "probe": (200, 405),
}


class Webhook(WebhookEndpoint):
    """Receives the events of one sender at one endpoint: verify → claim → process.

        payments = Webhook(onefold, Stripe("whsec_…"), name="payments", transaction=engine)

        @payments.process
        def paid(event: Received) -> None:
            event.connection.execute(…)

        app.add_route("/hooks/stripe", payments.asgi, methods=["POST"])     # Starlette, FastAPI

    The handler's rows and the id of the event are one commit. With `enqueue="stripe.event"` a job
    is stored in that commit instead, and no handler is needed.
    """

    event: type[Received] = Received

    @options_of(WebhookSettings)
    def __init__(self, *source: Any, **options: Any) -> None:
        checks.options(options, frozenset(WebhookSettings.__struct_fields__))
        self.settings: WebhookSettings = WebhookSettings(*source, **options)
        super().__init__(self.settings.name, self.settings.max_body)
        if self.settings.enqueue is not None:
            self._handler = self._enqueue

    def process(self, handler: F) -> F:
        """Process each event with a function, which receives a `Received`.

        It returns None, or an `HttpResponse` that redeliveries receive. An exception rolls its rows
        back, and the sender sends the event again; `Refuse` prevents that.
        """
        if self.settings.enqueue is not None:
            raise ConflictingOptions("enqueue", "is given: the job processes the event")
        return super().process(handler)

    def rejected_unread(self, request: HttpRequest) -> HttpResponse | None:
        """The response to a request whose body is not read: a probe, or one that is too long."""
        if request.method in PROBES and self.settings.probe == responses.DONE.status:
            return responses.DONE
        return super().rejected_unread(request)

    def verify(self, request: HttpRequest, body: bytes) -> Verified:
        """Check a request; raises `BadSignature`. Nothing is stored."""
        settings = self.settings
        verified = verify(settings.provider, request, body, self._now())
        found = None if settings.occurred_at is None else settings.occurred_at(verified)
        if found is None:
            return verified
        to_micros(found, "occurred_at")
        return msgspec.structs.replace(verified, occurred_at=found)

    def check(self, request: HttpRequest, body: bytes) -> HttpResponse | Verified:
        """Check a request without the database: a response, or an event to process."""
        checked = super().check(request, body)
        if isinstance(checked, HttpResponse):
            return checked
        challenge = self.settings.provider.challenge(checked)
        if challenge is not None:
            return responses.echoed(challenge)
        age = None if checked.occurred_at is None else self._now() - checked.occurred_at
        if age is not None and age > (self.settings.oldest or timedelta.max):
            self.rejected("event_too_old")
            return responses.TOO_OLD
        return checked

    def rejected(self, code: str) -> None:
        """Report a rejection to the log and the listeners."""
        settings, provider = self.settings, self.settings.provider.name
        log.warning(
            "A webhook of %s:%s is rejected: %s (%s).", provider, self.name, why(code), code
        )
        settings.report(WebhookRejected(provider, self.name, code, settings.tenant))

    def delivery(
        self, verified: Verified, request: HttpRequest, handler: Handler, arguments: Arguments
    ) -> EndpointDelivery:
        """The delivery of an event."""
        chosen = handler if self.settings.enqueue is None else self._enqueue

        def call(received: Received) -> Procedure[Any]:
            return (yield Call(chosen, (received, *arguments)))

        blocking = not inspect.iscoroutinefunction(chosen)
        return WebhookDelivery(self.settings, verified, request, call, blocking=blocking)

    def _enqueue(self, event: Received, *_: Any) -> None:
        """The handler of a webhook with `enqueue=`."""
        settings = self.settings
        assert settings.enqueue is not None
        payload = {"event": msgspec.to_builtins(event.stored())}
        event.within().enqueue(settings.enqueue, payload, **settings.enqueue_options)

    def _now(self) -> datetime:
        return from_micros(self.settings.onefold.context.now())
