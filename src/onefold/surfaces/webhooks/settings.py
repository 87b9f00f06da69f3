"""The settings of one receiver, checked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import msgspec

from onefold.app import Tenant
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import given, names
from onefold.model.moment import span, to_micros
from onefold.surfaces.webhooks.provider import Provider
from onefold.surfaces.webhooks.received import Received, StoredEvent
from onefold.surfaces.webhooks.verified import Verified

if TYPE_CHECKING:
    from onefold.calls.jobs import EnqueueOptions
    from onefold.calls.procedure import Procedure
    from onefold.model.webhook_event import WebhookOutcome

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
    """What of an event whose id was another's: refuse it, answer 2xx and do nothing, or process it.
    There is an alarm in any case."""
    guard: Literal["drop", "flag", "off"]
    """What of a body that came before under another id, where ids are not signed: answer 2xx and do
    nothing, or process it with `event.suspect`. There is an alarm in both cases."""
    guard_window: timedelta
    """For how long such bodies are remembered."""
    second_key: SecondKey | None
    oldest: timedelta | None
    """Refuse events that happened longer ago, by their own word, however fresh their signature."""
    occurred_at: Callable[[Verified], datetime | None] | None
    """Finds out when an event happened, where its provider does not."""
    order_retention: timedelta | None
    """How long `is_newest` remembers an object it was not asked about; None is until told."""
    max_body: int
    """Bytes; more is 413."""
    probe: Literal[200, 405]
    """What GET and HEAD are answered with."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`WebhookOptions` says what they mean."""

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
        """Whose events they are."""
        return self.onefold._tenant  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    @property
    def done(self) -> WebhookOutcome:
        """What has become of an event that was accepted."""
        return "processed" if self.enqueue is None else "enqueued"

    def scope(self, verified: Verified) -> str:
        """Whose ids these are: the same text of another sender or endpoint is another id."""
        return f"{verified.provider}:{self.name}"

    def dated(self, verified: Verified) -> Verified:
        """The event with the time at which it happened, where the application knows better."""
        found = None if self.occurred_at is None else self.occurred_at(verified)
        if found is None:
            return verified
        to_micros(found, "occurred_at")
        return msgspec.structs.replace(verified, occurred_at=found)

    def enqueued(self, received: Received) -> Procedure[Any] | None:
        """The enqueue of the job that stands for an event; None where it is processed here."""
        if self.enqueue is None:
            return None
        payload = {"event": msgspec.to_builtins(_stored(self, received))}
        return self.onefold._enqueue_one(  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            self.enqueue, payload, self.enqueue_options
        )


def _stored(settings: Settings, received: Received) -> StoredEvent:
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


def settings(onefold: object, provider: object, name: str, options: WebhookOptions) -> Settings:
    """Check the settings of a receiver."""
    given.options(options, WebhookOptions.__optional_keys__)
    if not isinstance(onefold, Tenant):
        raise InvalidInput("onefold", f"must be an Onefold or a tenant of one, got {onefold!r}")
    if not isinstance(provider, Provider):
        raise InvalidInput("provider", f"must be a provider such as Stripe(…), got {provider!r}")
    if ":" in names.name(name, "name"):
        raise InvalidInput("name", f"must not contain a colon, got {name!r}")
    made = Settings(onefold=onefold, provider=provider, name=name, **options)
    _check_values(made)
    if made.enqueue is not None:
        names.name(made.enqueue, "enqueue")
    elif made.enqueue_options:
        raise ConflictingOptions("enqueue_options", "are for a receiver that says enqueue=")
    return made


def _check_values(made: Settings) -> None:
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
