"""Slack: `X-Slack-Signature: v0=…`, over the timestamp and the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, Provider, Secret, matching, payload
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from onefold.web.http import HttpRequest


class Slack(Provider, frozen=True):
    """Slack's events, interactions and commands. An event is known by its `event_id`."""

    tolerance: timedelta = provider.FIVE_MINUTES

    name: ClassVar[str] = "slack"
    mistaken: ClassVar[dict[str, str]] = {"xox": "a token", "xapp-": "a token"}
    wanted: ClassVar[str] = "the signing secret of the app (Basic Information, App Credentials)"
    kept: ClassVar[tuple[str, ...]] = (
        "x-slack-request-timestamp", "x-slack-retry-num", "x-slack-retry-reason", "content-type",
    )  # fmt: skip
    no_retry: ClassVar[tuple[tuple[str, str], ...]] = (("X-Slack-No-Retry", "1"),)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        provider.check_tolerance(self.tolerance)

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature."""
        stamp = provider.header(request, "x-slack-request-timestamp")
        given = provider.header(request, "x-slack-signature")
        signed_at = provider.seconds(stamp)
        if not given.startswith("v0="):
            raise BadSignature("no_usable_scheme", header="x-slack-signature")
        content = b"v0:%s:%s" % (stamp.encode(), body)

        def fits(secret: Secret) -> bool:
            expected = provider.mac(secret.text.encode(), content)
            return provider.is_hex(expected, given.removeprefix("v0="))

        secret = matching(self.ring, now, fits)
        provider.refuse_stale(signed_at, now, self.tolerance)
        wrapped = payload(request, body)
        event = provider.json_object(body if wrapped is None else wrapped)
        return Verified(
            provider=self.name,
            id=provider.text_of(event.get("event_id")) or f"digest:{provider.sha256(body)}",
            signed_id=True,
            secret_id=secret.id,
            body=body,
            content=wrapped,
            event_type=_type(event),
            timestamp=signed_at,
            occurred_at=provider.moment_of(event.get("event_time")),
        )

    def challenge(self, verified: Verified) -> str | None:
        """The challenge of Slack's url_verification, which is not an event."""
        event = provider.json_object(verified.event)
        if event.get("type") != "url_verification":
            return None
        return provider.text_of(event.get("challenge"))


def _type(event: dict[str, object]) -> str | None:
    """The type of the event; else the type of the request."""
    inner = event.get("event")
    found = inner.get("type") if isinstance(inner, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return provider.text_of(found) or provider.text_of(event.get("type"))  # pyright: ignore[reportUnknownArgumentType]
