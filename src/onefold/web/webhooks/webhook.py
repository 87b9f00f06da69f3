"""`Webhook`: an endpoint that processes each event of one sender once, and its settings."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

import msgspec

from onefold.app.jobs import enqueue_kind
from onefold.app.onefold import Tenant
from onefold.errors import ConflictingOptions, InvalidInput, UsageError
from onefold.model import checks
from onefold.model.event import WebhookRejected
from onefold.model.timestamps import from_micros, span, to_micros
from onefold.web.webhooks import processing
from onefold.web.webhooks.processing import Reception
from onefold.web.webhooks.provider import BadSignature, Provider, verify, why
from onefold.web.webhooks.webhook_apps import AsgiWebhook, WsgiWebhook
from onefold.web.webhooks.webhook_event import Received, StoredEvent, Verified

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.jobs.enqueue_options import EnqueueOptions
    from onefold.model.event import WebhookEvent, WebhookOutcome
    from onefold.runtime import Procedure
    from onefold.web.http import HttpRequest, HttpResponse


RETENTION: Final = timedelta(days=30)
MAX_BODY: Final = 1024 * 1024
_MOMENT: Final = timedelta(microseconds=1)


class SecondKey(msgspec.Struct, frozen=True):
    """Something else that makes an event one: two of them with the same are one, for a while."""

    of: Callable[[Verified], str | None]
    """Gives it; None for events that have none."""
    window: timedelta = timedelta(minutes=5)


class WebhookOptions(TypedDict, total=False):
    """How a receiver treats its events."""

    transaction: object
    """What the handler's transaction is begun on: an engine, a pool, a maker of sessions, or a
    function that gives one. Without it, Onefold's own database."""
    enqueue: str | None
    """The kind of a job to enqueue for each event, instead of processing it here."""
    enqueue_options: EnqueueOptions
    """`queue`, `priority` and so on, of that job."""
    retention: timedelta
    """How long an event is remembered: longer than its sender tries, by hand too."""
    reused_id: Literal["refuse", "ignore", "process"]
    """An event with the id of another event: reject it, respond with 2xx and ignore it, or process
    it. Listeners receive a `WebhookAlarm` in each case."""
    guard: Literal["drop", "flag", "off"]
    """A body that was received under another id, if ids are not signed: respond with 2xx and ignore
    it, or process it with `event.suspect`. Listeners receive a `WebhookAlarm` in both cases."""
    guard_window: timedelta
    """How long the digests of bodies are stored."""
    second_key: SecondKey | None
    oldest: timedelta | None
    """Reject events that are older by their own time, also if their signature is new."""
    occurred_at: Callable[[Verified], datetime | None] | None
    """Returns the time of an event, if its provider does not."""
    order_retention: timedelta | None
    """How long `is_newest` stores an object after its last event; None: for ever."""
    max_body: int
    """Bytes; more is 413."""
    probe: Literal[200, 405]
    """What GET and HEAD are answered with."""


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`WebhookOptions` describes them."""

    onefold: Tenant
    provider: Provider
    name: str
    transaction: Any = None
    enqueue: str | None = None
    enqueue_options: Any = {}
    retention: timedelta = RETENTION
    reused_id: Literal["refuse", "ignore", "process"] = "refuse"
    guard: Literal["drop", "flag", "off"] = "drop"
    guard_window: timedelta = RETENTION
    second_key: SecondKey | None = None
    oldest: timedelta | None = None
    occurred_at: Callable[[Verified], datetime | None] | None = None
    order_retention: timedelta | None = None
    max_body: int = MAX_BODY
    probe: Literal[200, 405] = 405

    @property
    def tenant(self) -> str:
        """The tenant of the events."""
        return self.onefold.context.tenant

    @property
    def done(self) -> WebhookOutcome:
        """The outcome of an accepted event."""
        return "processed" if self.enqueue is None else "enqueued"

    def scope(self, verified: Verified) -> str:
        """The scope of the ids: the same text of another sender or endpoint is another id."""
        return f"{verified.provider}:{self.name}"

    def dated(self, verified: Verified) -> Verified:
        """The event with the time that the application gives it."""
        found = None if self.occurred_at is None else self.occurred_at(verified)
        if found is None:
            return verified
        to_micros(found, "occurred_at")
        return msgspec.structs.replace(verified, occurred_at=found)

    def enqueued(self, received: Received) -> Procedure[Any] | None:
        """The enqueue of the job that stands for an event; None if it is processed here."""
        if self.enqueue is None:
            return None
        payload = {"event": msgspec.to_builtins(_stored(self, received))}
        return enqueue_kind(self.onefold.context, self.enqueue, payload, self.enqueue_options)


def _stored(settings: WebhookSettings, received: Received) -> StoredEvent:
    verified, request = received.verified, received.request
    kept = {*settings.provider.kept, "content-type"}
    return StoredEvent(
        provider=verified.provider,
        endpoint=settings.name,
        id=verified.id,
        type=verified.event_type,
        body=verified.body,
        content=verified.content,
        headers={name.lower(): value for name, value in request.headers if name.lower() in kept},
        timestamp=verified.timestamp,
        occurred_at=verified.occurred_at,
        suspect=received.suspect,
    )


def settings(
    onefold: object, provider: object, name: str, options: WebhookOptions
) -> WebhookSettings:
    """Check the settings of a receiver."""
    checks.options(options, WebhookOptions.__optional_keys__)
    if not isinstance(onefold, Tenant):
        raise InvalidInput("onefold", f"must be an Onefold or a tenant of one, got {onefold!r}")
    if not isinstance(provider, Provider):
        raise InvalidInput("provider", f"must be a provider such as Stripe(…), got {provider!r}")
    if ":" in checks.name(name, "name"):
        raise InvalidInput("name", f"must not contain a colon, got {name!r}")
    made = WebhookSettings(onefold=onefold, provider=provider, name=name, **options)
    _check_values(made)
    if made.enqueue is not None:
        checks.name(made.enqueue, "enqueue")
    elif made.enqueue_options:
        raise ConflictingOptions("enqueue_options", "are for a receiver with enqueue=")
    return made


def _check_values(made: WebhookSettings) -> None:
    for field in ("retention", "guard_window"):
        span(getattr(made, field), field, least=_MOMENT)
    for field in ("oldest", "order_retention"):
        if getattr(made, field) is not None:
            span(getattr(made, field), field, least=_MOMENT)
    _check_second(made.second_key)
    size: object = made.max_body
    if type(size) is not int or size < 0:
        raise InvalidInput("max_body", f"must be a whole number from 0 on, got {size!r}")
    for field, known in _CHOICES.items():
        value: object = getattr(made, field)
        if value not in known:
            raise InvalidInput(field, f"must be one of {', '.join(map(str, known))}, got {value!r}")


def _check_second(second: SecondKey | None) -> None:
    if second is None:
        return
    if not isinstance(second, SecondKey):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("second_key", f"must be a SecondKey, got {second!r}")
    span(second.window, "window", least=_MOMENT)


_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "reused_id": ("refuse", "ignore", "process"),
    "guard": ("drop", "flag", "off"),
    "probe": (200, 405),
}


if TYPE_CHECKING:
    Handler = TypeVar("Handler", bound=Callable[..., Any])

log: logging.Logger = logging.getLogger("onefold.web")

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
        """`name` identifies this endpoint; after a renaming, old events are processed again."""
        self.settings: WebhookSettings = settings(onefold, provider, name, options)
        self._handler: Callable[..., Any] | None = None

    def process(self, handler: Handler) -> Handler:
        """Process each event with a function, which receives a `Received`.

        It returns None, or an `HttpResponse` that redeliveries receive. What it raises undoes its
        rows, and the event comes again; `Refuse` prevents that.
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
        """The type of the first argument of a handler."""
        return Received

    @property
    def max_body(self) -> int:
        """Bytes of a body; more is 413."""
        return self.settings.max_body

    async def respond(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> tuple[HttpResponse, None]:
        """The answer to one request, and nothing to do after it."""
        return await self.areceive(request, body, handler, arguments), None

    def verify(self, request: HttpRequest, body: bytes) -> Verified:
        """Check a request; raises `BadSignature`. Nothing is stored."""
        now = from_micros(self._context.now())
        return self.settings.dated(verify(self.settings.provider, request, body, now))

    def receive(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> HttpResponse:
        """Receive one request, blocking: the answer is for its sender."""
        checked = self.check(request, body)
        if not isinstance(checked, tuple):
            return checked
        runtime, reception = self._context.runtime, self._reception(checked[0], request)
        try:
            return runtime.run(reception.process(self._handled_by(handler), arguments))
        finally:
            runtime.run(reception.roll_back())

    async def areceive(
        self,
        request: HttpRequest,
        body: bytes,
        handler: Callable[..., Any] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> HttpResponse:
        """`receive`, awaited. A plain function runs in a thread."""
        checked = self.check(request, body)
        if not isinstance(checked, tuple):
            return checked
        function = self._handled_by(handler)
        is_plain = not inspect.iscoroutinefunction(function)
        runtime, reception = self._context.runtime, self._reception(checked[0], request)
        try:
            return await runtime.arun(reception.process(function, arguments, blocking=is_plain))
        finally:
            await runtime.arun(reception.roll_back())

    def _reception(self, verified: Verified, request: HttpRequest) -> Reception:
        note = self._context.duplicate_log.note
        return Reception(self.settings, verified, request, report=self._report, note=note)

    def check(self, request: HttpRequest, body: bytes) -> HttpResponse | tuple[Verified]:
        """The part without a database: a response, or the event with a valid signature."""
        if (probed := self.probed(request.method)) is not None:
            return probed
        if len(body) > self.settings.max_body:
            return processing.too_large(self.settings.max_body)
        try:
            verified = self.verify(request, body)
        except BadSignature as error:
            return self._rejected(error.code)
        challenge = self.settings.provider.challenge(verified)
        if challenge is not None:
            return processing.echoed(challenge)
        if self._is_too_old(verified):
            self._rejected("event_too_old")
            return processing.TOO_OLD
        return (verified,)

    def probed(self, method: str) -> HttpResponse | None:
        """The response to a request that is not a POST: a probe of the endpoint."""
        if method == "POST":
            return None
        if method in PROBES and self.settings.probe == processing.DONE.status:
            return processing.DONE
        return processing.NOT_ALLOWED

    def _rejected(self, code: str) -> HttpResponse:
        provider, name = self.settings.provider.name, self.settings.name
        log.warning("A webhook of %s:%s is rejected: %s (%s).", provider, name, why(code), code)
        self._report(WebhookRejected(provider, name, code, self.settings.tenant))
        return processing.REJECTED

    def _is_too_old(self, verified: Verified) -> bool:
        oldest = self.settings.oldest
        if oldest is None or verified.occurred_at is None:
            return False
        return verified.occurred_at < from_micros(self._context.now()) - oldest

    def _handled_by(self, handler: Callable[..., Any] | None) -> Callable[..., Any]:
        found = self._handler if handler is None else handler
        if found is None and self.settings.enqueue is None:
            raise UsageError(
                f"The webhook {self.settings.name!r} has no handler: declare one with @….process,"
                " or enqueue= a job."
            )
        return _nothing if found is None else found

    def _report(self, event: WebhookEvent) -> None:
        hooks = self._context.hooks
        if hooks.wanted:
            hooks.tell(event)

    @property
    def _context(self) -> Context:
        return self.settings.onefold.context


def _nothing(*_: Any) -> None:
    """The job does it."""
